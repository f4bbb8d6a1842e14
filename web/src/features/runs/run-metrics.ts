import type { MetricSeries, RunMetrics } from "@/api/types";

/** What an event `point` carries: the values of one line of the run's metrics. */
export interface MetricPoint {
  model: string;
  /** Phase of the training, such as `pretrain`; null: the training itself. */
  phase: string | null;
  step: number;
  values: Record<string, number | null>;
}

/** A point with the number of its line, after which a new connection goes on. */
export interface NumberedPoint {
  line: number;
  point: MetricPoint;
}

/**
 * Adds points to the series. Adding the same points twice changes nothing, and a file that a resumed
 * run wrote anew replaces what was there: a point drops those at its step and after it.
 */
export function appendPoints(metrics: RunMetrics, points: NumberedPoint[]): RunMetrics {
  const series = new Map(metrics.series.map((entry) => [seriesId(entry), copy(entry)]));
  for (const { point } of points) {
    for (const [key, value] of Object.entries(point.values)) {
      const id = seriesId({ ...point, key });
      const entry = series.get(id) ?? emptySeries(point, key);
      series.set(id, entry);
      if (value === null) entry.non_finite += 1;
      else append(entry, point.step, value);
    }
  }
  const last_line = points.at(-1)?.line ?? metrics.last_line;
  return { ...metrics, series: [...series.values()], last_line };
}

function append(entry: MetricSeries, step: number, value: number): void {
  let kept = entry.steps.length;
  while (kept > 0 && (entry.steps[kept - 1] ?? step) >= step) kept -= 1;
  entry.steps.length = kept;
  entry.values.length = kept;
  entry.steps.push(step);
  entry.values.push(value);
}

type Phase = Pick<MetricSeries, "model" | "phase">;

const seriesId = ({ model, phase, key }: Phase & { key: string }) =>
  JSON.stringify([model, phase, key]);

const copy = (entry: MetricSeries): MetricSeries => ({
  ...entry,
  steps: [...entry.steps],
  values: [...entry.values],
});

const emptySeries = ({ model, phase }: Phase, key: string): MetricSeries => ({
  model,
  phase,
  key,
  steps: [],
  values: [],
  non_finite: 0,
});

/** Exponential moving average, unbiased at its start; weight 0 leaves the values as they are. */
export function smooth(values: number[], weight: number): number[] {
  if (weight <= 0) return values;
  let average = 0;
  let total = 0;
  return values.map((value) => {
    average = weight * average + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return average / total;
  });
}

const LOWER_IS_BETTER = /loss|error|perplexity|latency|_ms$|_bytes$|size|drop/;
const SPEED = /_per_s$/;

/** Whether a smaller value of the metric is the better one; after a dot is the label it is measured of. */
export function lowerIsBetter(key: string): boolean {
  return LOWER_IS_BETTER.test(key.replace(/\..*/, ""));
}

/** Whether the metric measures quality, so that its best value is worth naming. */
export function isQuality(key: string): boolean {
  return !SPEED.test(key);
}

/** The series of one phase of a model's training. */
export interface PhaseSeries extends Phase {
  series: MetricSeries[];
}

/** Series by model and phase in the order of their training, each with the loss first and speeds last. */
export function groupByPhase(series: MetricSeries[]): PhaseSeries[] {
  const rank = (key: string) => (/^(?!validation_).*loss$/.test(key) ? 0 : SPEED.test(key) ? 2 : 1);
  const groups = new Map<string, PhaseSeries>();
  for (const entry of series) {
    const { model, phase } = entry;
    const id = JSON.stringify([model, phase]);
    const group = groups.get(id) ?? { model, phase, series: [] };
    group.series.push(entry);
    groups.set(id, group);
  }
  return [...groups.values()].map((group) => ({
    ...group,
    series: group.series.toSorted(
      (a, b) => rank(a.key) - rank(b.key) || a.key.localeCompare(b.key),
    ),
  }));
}
