import { Table, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { useFormat } from "@/i18n/format";
import type { ChosenSettings, SettingsTrial } from "./chosen-settings";

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
                  <Figure trial={trial} />
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

/** The figure of a trial, or in words why it has none that counts. */
function Figure({ trial }: { trial: SettingsTrial }) {
  const { t } = useTranslation("runs");
  const format = useFormat();
  if (trial.value === null)
    return isKnown(trial.state) ? t(`chosen.state.${trial.state}`) : trial.state;
  const value = format.quality(trial.value);
  if (trial.pruned === null) return value;
  return t("chosen.pruned", {
    epoch: format.integer(trial.pruned.epoch),
    value,
    median: format.quality(trial.pruned.median),
  });
}

const isKnown = (state: string) => state === "refused" || state === "stopped";
