import { Button, type ButtonProps } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { ProblemAlert } from "@/components/ProblemAlert";
import { useRefreshModels } from "./use-refresh-models";

interface PromoteButtonProps extends ButtonProps {
  name: string;
  version: number;
}

/** The button that promotes a version, and why the server refused it. */
export function PromoteButton({ name, version, ...props }: PromoteButtonProps) {
  const { t } = useTranslation("models");
  const onSuccess = useRefreshModels();
  const promotion = api.useMutation("post", "/api/v1/models/{name}/promote", { onSuccess });
  return (
    <>
      <Button
        size="xs"
        loading={promotion.isPending}
        onClick={() => promotion.mutate({ params: { path: { name } }, body: { version } })}
        {...props}
      >
        {t("promote.button", { version })}
      </Button>
      {promotion.error && <ProblemAlert error={promotion.error} />}
    </>
  );
}
