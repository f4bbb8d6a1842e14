import { Stack, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { RunReport } from "@/api/types";
import { chosenSettings } from "./chosen-settings";
import { ChosenSettingsPanel } from "./ChosenSettingsPanel";
import { ResultsTable } from "./ResultsTable";
import { taskResults } from "./results";
import { StageReports } from "./StageReports";

/** What a run achieved: quality beside the baselines, settings that were chosen, then the later stages. */
export function ResultsTab({ report }: { report: RunReport }) {
  const { t } = useTranslation("runs");
  const tasks = taskResults(report);
  return (
    <Stack gap="md">
      {tasks.length === 0 ? (
        <Text c="dimmed">{t("results.none")}</Text>
      ) : (
        tasks.map((task) => <ResultsTable key={task.task} results={task} />)
      )}
      {chosenSettings(report.training).map((chosen) => (
        <ChosenSettingsPanel key={chosen.model} chosen={chosen} />
      ))}
      <StageReports report={report} />
    </Stack>
  );
}
