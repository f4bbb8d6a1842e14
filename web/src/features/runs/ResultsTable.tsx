import { Badge, Group, Switch, Table } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { IconStar } from "@/components/icons";
import { Meter } from "@/components/Meter";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { useFormat } from "@/i18n/format";
import type { ResultRow, TaskResults } from "./results";
import classes from "./ResultsTable.module.css";

/** One task: our models beside the baselines, the best value of each metric marked. */
export function ResultsTable({ results }: { results: TaskResults }) {
  const { t } = useTranslation("runs");
  const title = t("results.task", { task: results.task });
  const [inParts, setInParts] = useState(false);
  const metrics = inParts ? [...results.metrics, ...results.breakdown] : results.metrics;
  return (
    <Panel
      title={title}
      note={t("results.note")}
      actions={
        results.breakdown.length > 0 && (
          <Switch
            size="xs"
            label={t("results.breakdown")}
            checked={inParts}
            onChange={(event) => setInParts(event.currentTarget.checked)}
          />
        )
      }
      flush
    >
      <PlainTable label={title}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("results.model")}</Table.Th>
            {metrics.map((metric) => (
              <Table.Th key={metric} ta="right">
                {metric}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {results.rows.map((row) => (
            <Table.Tr key={`${row.baseline} ${row.model}`} data-baseline={row.baseline}>
              <Table.Th scope="row" className={classes.model}>
                <Group gap="xs" wrap="nowrap">
                  <span>{row.model}</span>
                  <Badge color={row.baseline ? "gray" : "brand"}>
                    {row.baseline ? t("results.baseline") : t("results.ours")}
                  </Badge>
                </Group>
              </Table.Th>
              {metrics.map((metric) => (
                <Table.Td key={metric} ta="right" className={classes.cell}>
                  <MetricCell row={row} metric={metric} best={results.best[metric]} />
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </PlainTable>
    </Panel>
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
