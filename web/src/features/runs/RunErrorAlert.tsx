import { Alert, Code, Stack, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { RunDetail } from "@/api/types";
import { CommandLine } from "@/components/CommandLine";
import { IconAlertTriangle } from "@/components/icons";

interface RunErrorAlertProps {
  run: RunDetail;
  error: NonNullable<RunDetail["error"]>;
}

/** Why a run stopped, and how it goes on. */
export function RunErrorAlert({ run, error }: RunErrorAlertProps) {
  const { t } = useTranslation("runs");
  return (
    <Alert color="red" icon={<IconAlertTriangle />} title={t("error.title")}>
      <Stack gap="xs" align="flex-start">
        <Text>{error.message}</Text>
        {error.where !== null && <Code>{error.where}</Code>}
        {error.hint !== null && <Text size="sm">{error.hint}</Text>}
        <Text size="sm">{t("error.resume")}</Text>
        <CommandLine command={`graphbox runs resume ${run.id}`} />
      </Stack>
    </Alert>
  );
}
