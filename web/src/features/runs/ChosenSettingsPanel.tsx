import { Table, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { useFormat } from "@/i18n/format";
import type { ChosenSettings } from "./chosen-settings";

/** The settings that the data chose for a model, why, and what they were compared with. */
export function ChosenSettingsPanel({ chosen }: { chosen: ChosenSettings }) {
  const { t } = useTranslation("runs");
  const format = useFormat();
  const title = t("chosen.title", { model: chosen.model });
  return (
    <Panel title={title} note={chosen.why} flush={chosen.trials.length > 0}>
      {chosen.trials.length === 0 ? (
        <Text size="sm">{chosen.settings}</Text>
      ) : (
        <PlainTable label={title}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th ta="right">{t("chosen.trial")}</Table.Th>
              <Table.Th>{t("chosen.settings")}</Table.Th>
              <Table.Th ta="right">{t("chosen.validation", { metric: chosen.metric })}</Table.Th>
              <Table.Th ta="right">{t("chosen.time")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {chosen.trials.map((trial) => (
              <Table.Tr key={trial.number}>
                <Table.Td ta="right">{format.integer(trial.number)}</Table.Td>
                <Table.Td>{trial.settings}</Table.Td>
                <Table.Td ta="right">
                  {trial.value === null ? trial.state : format.quality(trial.value)}
                </Table.Td>
                <Table.Td ta="right">{format.seconds(trial.seconds)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </PlainTable>
      )}
    </Panel>
  );
}
