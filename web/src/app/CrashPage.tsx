import { Alert, Code } from "@mantine/core";
import type { ErrorComponentProps } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { IconAlertTriangle } from "@/components/icons";

/** Shown when a page itself failed: a defect of ours, so the text to report is there. */
export function CrashPage({ error }: ErrorComponentProps) {
  const { t } = useTranslation();
  return (
    <Alert
      role="alert"
      color="red"
      icon={<IconAlertTriangle />}
      title={t("problem.crashed")}
      m="xl"
    >
      <p>{t("problem.crashedHint")}</p>
      <Code block>{error instanceof Error ? error.message : String(error)}</Code>
    </Alert>
  );
}
