import { Alert, Code, Stack, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { RunDetail } from "@/api/types";
import { CommandLine } from "@/components/CommandLine";
import { IconAlertTriangle } from "@/components/icons";
import { Prose } from "@/components/Prose";

interface RunErrorAlertProps {
  run: RunDetail;
  error: NonNullable<RunDetail["error"]>;
}

/** Why a run stopped, and how it goes on. */
export function RunErrorAlert({ run, error }: RunErrorAlertProps) {
  const { t } = useTranslation("runs");
  const interrupted = run.state === "interrupted";
  const command = `graphbox runs resume ${run.id}`;
  const hint = error.hint?.includes(command) ? null : error.hint;
  return (
    <Alert
      role="alert"
      color={interrupted ? "orange" : "red"}
      icon={<IconAlertTriangle />}
      title={interrupted ? t("error.interrupted") : t("error.title")}
    >
      <Stack gap="xs" align="flex-start">
        <Text>
          <Prose text={error.message} />
        </Text>
        {error.where !== null && <Code>{error.where}</Code>}
        {hint !== null && (
          <Text size="sm">
            <Prose text={hint} />
          </Text>
        )}
        <Text size="sm">{t("error.resume")}</Text>
        <CommandLine command={command} />
      </Stack>
    </Alert>
  );
}
