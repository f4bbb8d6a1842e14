import { Table } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { Compression } from "@/api/types";
import { Figure } from "@/components/Figure";
import { sortMetricNames } from "@/components/metric-names";
import { useMetricText } from "@/components/metric-text";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { useFormat } from "@/i18n/format";
import { Change } from "./Change";

/** The metric that decides by popularity of the targets: the original beside the chosen version. */
export function CompressionDrift({ report }: { report: Compression }) {
  const { t } = useTranslation("models");
  const text = useMetricText();
  const format = useFormat();
  const { metric, drift } = report;
  const [breakdown] = sortMetricNames(
    drift.flatMap(({ group }) => [`positives_${group}`, `${metric}_${group}`]),
  ).breakdowns;
  if (breakdown === undefined) return null;
  const quality = (value: number | null) => (value === null ? "–" : format.quality(value));
  const title = text.breakdown(breakdown);
  const groups = new Map(drift.map((row) => [`${metric}_${row.group}`, row]));
  return (
    <Panel title={title} note={t("compression.drift.note")} flush>
      <PlainTable label={title}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{text.part(breakdown)}</Table.Th>
            <Table.Th ta="right">{t("compression.drift.original")}</Table.Th>
            <Table.Th ta="right">{t("compression.drift.chosen")}</Table.Th>
            <Table.Th ta="right">{t("quality.change")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {breakdown.parts.map(({ metric: name, label }) => {
            const row = groups.get(name);
            if (row === undefined) return null;
            return (
              <Table.Tr key={name}>
                <Table.Td>
                  <Figure value={label}>{text.partCount("positives", row.positives)}</Figure>
                </Table.Td>
                <Table.Td ta="right">{quality(row.original)}</Table.Td>
                <Table.Td ta="right">{quality(row.chosen)}</Table.Td>
                <Table.Td ta="right">
                  {row.original !== null && row.chosen !== null && (
                    <Change from={row.original} to={row.chosen} />
                  )}
                </Table.Td>
              </Table.Tr>
            );
          })}
        </Table.Tbody>
      </PlainTable>
    </Panel>
  );
}
