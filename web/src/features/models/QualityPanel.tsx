import { Stack, Table, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { ModelSummary, ModelVersion } from "@/api/types";
import { Figure } from "@/components/Figure";
import { sortMetricNames } from "@/components/metric-names";
import { useMetricText } from "@/components/metric-text";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { SubTable } from "@/components/SubTable";
import { useFormat } from "@/i18n/format";
import { Change } from "./Change";
import { parentOf } from "./versions";

type Values = Record<string, number | null>;

/** The metrics of a version; beside them those of the version it was made from. */
export function QualityPanel({ model, version }: { model: ModelSummary; version: ModelVersion }) {
  const { t } = useTranslation("models");
  const parent = parentOf(model, version);
  const tasks = Object.entries(version.metrics).filter(([, values]) => Object.keys(values).length);
  if (tasks.length === 0) {
    return (
      <Panel title={t("quality.title")}>
        <Text c="dimmed">{t("quality.none")}</Text>
      </Panel>
    );
  }
  return (
    <Stack gap="md">
      {tasks.map(([task, values]) => (
        <TaskQuality
          key={task}
          task={task}
          values={values}
          version={version.version}
          before={parent && { version: parent.version, values: parent.metrics[task] ?? {} }}
        />
      ))}
    </Stack>
  );
}

interface TaskQualityProps {
  task: string;
  values: Values;
  version: number;
  before: { version: number; values: Values } | undefined;
}

function TaskQuality({ task, values, ...versions }: TaskQualityProps) {
  const { t } = useTranslation("models");
  const text = useMetricText();
  const { metrics, counts, breakdowns } = sortMetricNames(Object.keys(values));
  const title = t("quality.title");
  const note = [t("quality.task", { task }), text.counts(counts, values)];
  return (
    <Panel title={title} note={note.filter(Boolean).join(" · ")} flush>
      <PlainTable label={`${title}: ${task}`}>
        <Rows
          {...versions}
          values={values}
          of={t("quality.metric")}
          rows={metrics.map((metric) => ({ metric, head: metric }))}
        />
      </PlainTable>
      {breakdowns.map((breakdown) => (
        <SubTable
          key={`${breakdown.metric} ${breakdown.dimension}`}
          title={text.breakdown(breakdown)}
          label={`${task}: ${text.breakdown(breakdown)}`}
        >
          <Rows
            {...versions}
            values={values}
            of={text.part(breakdown)}
            rows={breakdown.parts.map(({ metric, label, count }) => ({
              metric,
              head: (
                <Figure value={label}>
                  {values[count] != null && text.partCount(count, values[count])}
                </Figure>
              ),
            }))}
          />
        </SubTable>
      ))}
    </Panel>
  );
}

interface RowsProps {
  values: Values;
  version: number;
  before: { version: number; values: Values } | undefined;
  /** What a row is. */
  of: string;
  rows: { metric: string; head: ReactNode }[];
}

function Rows({ values, version, before, of, rows }: RowsProps) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const text = (value: number | null) => (value === null ? "–" : format.quality(value));
  return (
    <>
      <Table.Thead>
        <Table.Tr>
          <Table.Th w="40%">{of}</Table.Th>
          {before && (
            <Table.Th ta="right">{t("quality.parent", { version: before.version })}</Table.Th>
          )}
          <Table.Th ta="right">{t("quality.parent", { version })}</Table.Th>
          {before && <Table.Th ta="right">{t("quality.change")}</Table.Th>}
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {rows.map(({ metric, head }) => {
          const value = values[metric] ?? null;
          const old = before?.values[metric] ?? null;
          return (
            <Table.Tr key={metric}>
              <Table.Td>{head}</Table.Td>
              {before && <Table.Td ta="right">{text(old)}</Table.Td>}
              <Table.Td ta="right">{text(value)}</Table.Td>
              {before && (
                <Table.Td ta="right">
                  {value !== null && old !== null && <Change from={old} to={value} />}
                </Table.Td>
              )}
            </Table.Tr>
          );
        })}
      </Table.Tbody>
    </>
  );
}
