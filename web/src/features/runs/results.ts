import type { MetricTree, RunReport } from "@/api/types";
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
  /** Metrics of a part of the queries, such as `recall@20/popularity>50`. */
  breakdown: string[];
  rows: ResultRow[];
  /** For each metric its best value, to mark it. */
  best: Record<string, number>;
}

/** Gathers the metrics of the models and of the baselines by task, best model first. */
export function taskResults({ metrics, baselines }: RunReport): TaskResults[] {
  const tasks = [...new Set([...Object.keys(metrics), ...Object.keys(baselines)])];
  return tasks.map((task) => {
    const rows = [...rowsOf(metrics, task, false), ...rowsOf(baselines, task, true)];
    const names = [...new Set(rows.flatMap((row) => Object.keys(row.metrics)))];
    const overall = names.filter((name) => !name.includes("/"));
    const leading = overall[0];
    return {
      task,
      metrics: overall,
      breakdown: names.filter((name) => name.includes("/")),
      rows: leading === undefined ? rows : rows.toSorted(byMetric(leading)),
      best: Object.fromEntries(
        names.flatMap((name) => {
          const values = rows.flatMap((row) => row.metrics[name] ?? []);
          return values.length > 0 ? [[name, bestOf(name, values)]] : [];
        }),
      ),
    };
  });
}

function rowsOf(tree: MetricTree, task: string, baseline: boolean): ResultRow[] {
  return Object.entries(tree[task] ?? {}).map(([model, metrics]) => ({ model, baseline, metrics }));
}

function bestOf(metric: string, values: number[]): number {
  return lowerIsBetter(metric) ? Math.min(...values) : Math.max(...values);
}

function byMetric(metric: string): (a: ResultRow, b: ResultRow) => number {
  const sign = lowerIsBetter(metric) ? 1 : -1;
  const worst = sign * Number.POSITIVE_INFINITY;
  return (a, b) => sign * ((a.metrics[metric] ?? worst) - (b.metrics[metric] ?? worst));
}
