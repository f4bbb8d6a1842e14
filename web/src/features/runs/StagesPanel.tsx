import { Table, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { StageSummary } from "@/api/types";
import { Meter } from "@/components/Meter";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { StateBadge } from "@/components/StateBadge";
import { useStageName } from "@/components/use-stage-name";
import { useFormat } from "@/i18n/format";

/** The stages of a run with the time and the memory each took. */
export function StagesPanel({ stages }: { stages: StageSummary[] }) {
  const { t } = useTranslation("runs");
  const format = useFormat();
  const stageName = useStageName();
  const total = stages.reduce((sum, { seconds }) => sum + (seconds ?? 0), 0);
  if (stages.length === 0) {
    return (
      <Panel title={t("stages.title")}>
        <Text c="dimmed">{t("stages.none")}</Text>
      </Panel>
    );
  }
  return (
    <Panel title={t("stages.title")} flush>
      <PlainTable label={t("stages.title")} verticalSpacing={5}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("stages.name")}</Table.Th>
            <Table.Th>{t("stages.state")}</Table.Th>
            <Table.Th ta="right">{t("stages.seconds")}</Table.Th>
            <Table.Th w="34%">{t("stages.share")}</Table.Th>
            <Table.Th ta="right">{t("stages.peak")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {stages.map(({ name, state, seconds, peak_bytes }) => (
            <Table.Tr key={name}>
              <Table.Td fw={550}>{stageName(name)}</Table.Td>
              <Table.Td>
                <StateBadge state={state} />
              </Table.Td>
              <Table.Td ta="right">{seconds === null ? "–" : format.seconds(seconds)}</Table.Td>
              <Table.Td>
                <Meter share={total > 0 ? (seconds ?? 0) / total : 0} />
              </Table.Td>
              <Table.Td ta="right">{peak_bytes === null ? "–" : format.bytes(peak_bytes)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </PlainTable>
    </Panel>
  );
}
