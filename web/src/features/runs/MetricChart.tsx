import { ActionIcon, ScrollArea, Table, Text, Tooltip } from "@mantine/core";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { MetricSeries } from "@/api/types";
import { IconChartLine, IconTable } from "@/components/icons";
import { type Line, LineChart } from "@/components/LineChart";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { useFormat } from "@/i18n/format";
import { isQuality, lowerIsBetter, smooth } from "./run-metrics";
import classes from "./MetricChart.module.css";

const CHART_HEIGHT = 190;
const TABLE_ROWS = 200;

interface MetricChartProps {
  series: MetricSeries;
  /** Names it among the charts of its page. */
  name: string;
  color: number;
  smoothing: number;
}

/** One measured quantity as a chart, or as a table with the same values. */
export function MetricChart({ series, name, color, smoothing }: MetricChartProps) {
  const { t } = useTranslation("runs");
  const [asTable, setAsTable] = useState(false);
  const [cursor, setCursor] = useState<number | null>(null);
  const lines = useMemo<Line[]>(() => {
    const main = { values: smooth(series.values, smoothing), color };
    return smoothing > 0 ? [{ values: series.values, color, faint: true }, main] : [main];
  }, [series.values, color, smoothing]);
  const description = useDescription(name, series.values);
  const toggleName = asTable ? t("chart.showChart") : t("chart.showTable");
  return (
    <Panel
      title={series.key}
      label={name}
      actions={
        <Tooltip label={toggleName}>
          <ActionIcon
            variant="subtle"
            color="gray"
            aria-label={`${toggleName}: ${name}`}
            onClick={() => setAsTable(!asTable)}
          >
            {asTable ? <IconChartLine size={17} /> : <IconTable size={17} />}
          </ActionIcon>
        </Tooltip>
      }
      flush
    >
      <Readout series={series} cursor={cursor} />
      {asTable ? (
        <SeriesTable series={series} name={name} />
      ) : (
        <LineChart
          description={description}
          x={series.steps}
          lines={lines}
          height={CHART_HEIGHT}
          syncKey={`${series.model} ${series.phase}`}
          onCursor={setCursor}
        />
      )}
    </Panel>
  );
}

/** The value under the cursor, or the last one, with the best beside it. */
function Readout({ series, cursor }: { series: MetricSeries; cursor: number | null }) {
  const { t } = useTranslation("runs");
  const format = useFormat();
  const index = cursor ?? series.values.length - 1;
  const value = series.values[index];
  const step = series.steps[index];
  if (value === undefined || step === undefined) return null;
  const best = (lowerIsBetter(series.key) ? Math.min : Math.max)(...series.values);
  return (
    <div className={classes.readout}>
      <span className={classes.value}>{format.number(value)}</span>
      <Text span size="xs" c="dimmed">
        {t("training.at", { step: format.integer(step) })}
        {isQuality(series.key) && ` · ${t("training.best")} ${format.number(best)}`}
      </Text>
    </div>
  );
}

function SeriesTable({ series, name }: { series: MetricSeries; name: string }) {
  const { t } = useTranslation("runs");
  const format = useFormat();
  const count = series.steps.length;
  const nth = Math.ceil(count / TABLE_ROWS);
  const indices = Array.from({ length: Math.ceil(count / nth) }, (_, row) =>
    Math.max(count - 1 - row * nth, 0),
  );
  return (
    <ScrollArea
      h={CHART_HEIGHT}
      viewportProps={{
        tabIndex: 0,
        role: "region",
        "aria-label": t("chart.table", { name }),
      }}
    >
      <PlainTable label={name} verticalSpacing={2}>
        {nth > 1 && <Table.Caption>{t("chart.sampled", { nth, count })}</Table.Caption>}
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("training.step")}</Table.Th>
            <Table.Th ta="right">{t("training.value")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {indices.map((index) => (
            <Table.Tr key={index}>
              <Table.Td>{format.integer(series.steps[index] ?? 0)}</Table.Td>
              <Table.Td ta="right">{format.number(series.values[index] ?? Number.NaN)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </PlainTable>
    </ScrollArea>
  );
}

function useDescription(name: string, values: number[]): string {
  const { t } = useTranslation("runs");
  const format = useFormat();
  const [first, last] = [values[0], values.at(-1)];
  if (first === undefined || last === undefined) return t("chart.empty", { name });
  return t("chart.summary", {
    name,
    axis: t("training.step"),
    count: values.length,
    first: format.number(first),
    last: format.number(last),
    lowest: format.number(Math.min(...values)),
    highest: format.number(Math.max(...values)),
  });
}
