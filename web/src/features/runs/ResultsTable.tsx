import { Badge, Group, Stack, Table, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Figure } from "@/components/Figure";
import { IconStar } from "@/components/icons";
import { Meter } from "@/components/Meter";
import { useMetricText } from "@/components/metric-text";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { SubTable } from "@/components/SubTable";
import { useFormat } from "@/i18n/format";
import type { ResultRow, TaskResults } from "./results";
import classes from "./ResultsTable.module.css";

/** One task: our models beside the baselines, the best value of each metric marked. */
export function ResultsTable({ results }: { results: TaskResults }) {
  const { t } = useTranslation("runs");
  const text = useMetricText();
  const title = t("results.task", { task: results.task });
  const counts = text.counts(results.counts, results.countValues);
  return (
    <Panel
      title={title}
      note={[counts, results.rows.length > 1 && t("results.note")].filter(Boolean).join(" · ")}
      flush
    >
      <PlainTable label={title}>
        <Columns
          results={results}
          columns={results.metrics.map((metric) => ({ metric, head: metric }))}
        />
      </PlainTable>
      {results.breakdowns.map((breakdown) => (
        <SubTable
          key={`${breakdown.metric} ${breakdown.dimension}`}
          title={text.breakdown(breakdown)}
          label={`${title}: ${text.breakdown(breakdown)}`}
        >
          <Columns
            results={results}
            columns={breakdown.parts.map(({ metric, label, count }) => ({
              metric,
              head: (
                <Figure value={label}>
                  {results.countValues[count] !== undefined &&
                    text.partCount(count, results.countValues[count])}
                </Figure>
              ),
            }))}
          />
        </SubTable>
      ))}
      {results.notes.length > 0 && (
        <Stack gap={4} p="md">
          {results.notes.map(({ name, text: note }) => (
            <Text key={name} size="xs" c="dimmed">
              {name}: {note}
            </Text>
          ))}
        </Stack>
      )}
    </Panel>
  );
}

interface ColumnsProps {
  results: TaskResults;
  columns: { metric: string; head: ReactNode }[];
}

function Columns({ results, columns }: ColumnsProps) {
  const { t } = useTranslation("runs");
  return (
    <>
      <Table.Thead>
        <Table.Tr>
          <Table.Th className={classes.model}>{t("results.model")}</Table.Th>
          {columns.map(({ metric, head }) => (
            <Table.Th key={metric} ta="right">
              {head}
            </Table.Th>
          ))}
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {results.rows.map((row) => (
          <Table.Tr key={`${row.baseline} ${row.model}`} data-baseline={row.baseline}>
            <Table.Th scope="row" className={classes.name}>
              <Group gap="xs" wrap="nowrap">
                <span>{row.model}</span>
                <Badge color={row.baseline ? "gray" : "brand"}>
                  {row.baseline ? t("results.baseline") : t("results.ours")}
                </Badge>
              </Group>
            </Table.Th>
            {columns.map(({ metric }) => (
              <Table.Td key={metric} ta="right" className={classes.cell}>
                <MetricCell row={row} metric={metric} best={results.best[metric]} />
              </Table.Td>
            ))}
          </Table.Tr>
        ))}
      </Table.Tbody>
    </>
  );
}

interface MetricCellProps {
  row: ResultRow;
  metric: string;
  best: number | undefined;
}

function MetricCell({ row, metric, best }: MetricCellProps) {
  const { t } = useTranslation("runs");
  const format = useFormat();
  const value = row.metrics[metric];
  if (value === undefined || value === null) return "–";
  const isBest = value === best;
  return (
    <>
      <span className={classes.value} data-best={isBest || undefined}>
        {isBest && <IconStar size={13} aria-label={t("results.best")} role="img" />}
        {format.quality(value)}
      </span>
      {value >= 0 && value <= 1 && <Meter share={value} tone={row.baseline ? "quiet" : "accent"} />}
    </>
  );
}
