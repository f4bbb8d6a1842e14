import type { MetricTree, RunReport } from "@/api/types";
import { type Breakdown, type CountName, sortMetricNames } from "@/components/metric-names";
import { lowerIsBetter } from "./run-metrics";

export interface ResultRow {
  model: string;
  /** Whether the run trained it, or it is there to compare with. */
  baseline: boolean;
  metrics: Record<string, number | null>;
}

/** The results of one task: a row for each model and baseline, a column for each metric. */
export interface TaskResults {
  task: string;
  metrics: string[];
  /** Metrics of parts of what was evaluated, such as rare targets. */
  breakdowns: Breakdown[];
  /** What was counted, the same for all rows: they are evaluated on the same split. */
  counts: CountName[];
  /** The values of all counts, those of parts too. */
  countValues: Record<string, number>;
  rows: ResultRow[];
  /** For each metric its best value, to mark it; none where all rows have the same. */
  best: Record<string, number>;
  /** What else there is to say of models, and of baselines that did not run. */
  notes: { name: string; text: string }[];
}

/** Gathers the metrics of the models and of the baselines by task, best model first. */
export function taskResults(report: RunReport): TaskResults[] {
  const { metrics, baselines } = report;
  const tasks = [...new Set([...Object.keys(metrics), ...Object.keys(baselines)])];
  return tasks.map((task) => {
    const rows = [...rowsOf(metrics, task, false), ...rowsOf(baselines, task, true)];
    const names = [...new Set(rows.flatMap((row) => Object.keys(row.metrics)))];
    const sorted = sortMetricNames(names);
    const parts = sorted.breakdowns.flatMap((breakdown) => breakdown.parts);
    const [leading] = sorted.metrics;
    return {
      task,
      ...sorted,
      rows: leading === undefined ? rows : rows.toSorted(byMetric(leading)),
      countValues: firstValues(rows, [...sorted.counts, ...parts.map(({ count }) => count)]),
      best: bestValues(
        rows,
        [...sorted.metrics, ...parts.map(({ metric }) => metric)].filter(isBetterOneWay),
      ),
      notes: [report.baselines_left_out, report.notes].flatMap((tree) =>
        Object.entries(tree[task] ?? {}).map(([name, text]) => ({ name, text })),
      ),
    };
  });
}

/** Whether more, or less, is better: average popularity says what is recommended, not how well. */
const isBetterOneWay = (metric: string) => !metric.startsWith("arp@");

function rowsOf(tree: MetricTree, task: string, baseline: boolean): ResultRow[] {
  return Object.entries(tree[task] ?? {}).map(([model, metrics]) => ({ model, baseline, metrics }));
}

const valuesOf = (rows: ResultRow[], name: string) =>
  rows.flatMap((row) => row.metrics[name] ?? []);

function firstValues(rows: ResultRow[], names: string[]): Record<string, number> {
  return Object.fromEntries(
    names.flatMap((name) =>
      valuesOf(rows, name)
        .slice(0, 1)
        .map((value) => [name, value]),
    ),
  );
}

function bestValues(rows: ResultRow[], names: string[]): Record<string, number> {
  return Object.fromEntries(
    names.flatMap((name) => {
      const values = valuesOf(rows, name);
      return new Set(values).size > 1 ? [[name, bestOf(name, values)]] : [];
    }),
  );
}

function bestOf(metric: string, values: number[]): number {
  return lowerIsBetter(metric) ? Math.min(...values) : Math.max(...values);
}

function byMetric(metric: string): (a: ResultRow, b: ResultRow) => number {
  const sign = lowerIsBetter(metric) ? 1 : -1;
  const worst = sign * Number.POSITIVE_INFINITY;
  return (a, b) => sign * ((a.metrics[metric] ?? worst) - (b.metrics[metric] ?? worst));
}
