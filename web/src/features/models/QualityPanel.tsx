import { Table, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { ModelSummary, ModelVersion } from "@/api/types";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { useFormat } from "@/i18n/format";
import { Change } from "./Change";
import { compareMetrics, parentOf } from "./versions";

/** The metrics of a version; beside them those of the version it was made from. */
export function QualityPanel({ model, version }: { model: ModelSummary; version: ModelVersion }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const parent = parentOf(model, version);
  const metrics = compareMetrics(version, parent);
  const text = (value: number | null) => (value === null ? "–" : format.quality(value));
  if (metrics.length === 0) {
    return (
      <Panel title={t("quality.title")}>
        <Text c="dimmed">{t("quality.none")}</Text>
      </Panel>
    );
  }
  return (
    <Panel title={t("quality.title")} flush>
      <PlainTable label={t("quality.title")}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("quality.metric")}</Table.Th>
            {parent && (
              <Table.Th ta="right">{t("quality.parent", { version: parent.version })}</Table.Th>
            )}
            <Table.Th ta="right">{t("quality.parent", { version: version.version })}</Table.Th>
            {parent && <Table.Th ta="right">{t("quality.change")}</Table.Th>}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {metrics.map(({ task, metric, value, parent: before }) => (
            <Table.Tr key={`${task} ${metric}`}>
              <Table.Td>
                {metric}{" "}
                <Text span size="xs" c="dimmed">
                  {task}
                </Text>
              </Table.Td>
              {parent && <Table.Td ta="right">{text(before)}</Table.Td>}
              <Table.Td ta="right">{text(value)}</Table.Td>
              {parent && (
                <Table.Td>
                  {value !== null && before !== null && <Change from={before} to={value} />}
                </Table.Td>
              )}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </PlainTable>
    </Panel>
  );
}
