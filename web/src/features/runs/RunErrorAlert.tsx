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

/** Mentions of the command that the alert shows itself, or that cannot work for this run. */
const RESUME = "graphbox runs resume";

/** Why a run stopped, and what can be done: commands are shown only where they work. */
export function RunErrorAlert({ run, error }: RunErrorAlertProps) {
  const { t } = useTranslation("runs");
  const interrupted = run.state === "interrupted";
  const hint = error.hint?.includes(RESUME) ? null : error.hint;
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
        <NextStep run={run} />
      </Stack>
    </Alert>
  );
}

function NextStep({ run }: { run: RunDetail }) {
  const { t } = useTranslation("runs");
  if (run.resumable) {
    const { state } = run;
    return (
      <>
        <Text size="sm">{t(state === "failed" ? "error.resumeMended" : "error.resume")}</Text>
        <CommandLine command={`${RESUME} ${run.id}`} />
      </>
    );
  }
  if (!run.removable) return null;
  return (
    <>
      <Text size="sm">{t("error.notResumable")}</Text>
      <CommandLine command={`graphbox runs rm ${run.id}`} />
    </>
  );
}
