import type { RunReport } from "@/api/types";

/** Exported model versions with their error against the trained model. */
export interface ExportRow {
  name: string;
  version: number | null;
  size_bytes: number | null;
  max_absolute_error: number | null;
  max_relative_error: number | null;
}

/** A figure before and after compression. */
export interface Comparison {
  artifact: string;
  /** Its name carries the unit: `size_bytes`, or a metric. */
  name: string;
  before: number;
  after: number;
  /** Largest allowed loss of a metric; null for sizes. */
  max_drop: number | null;
}

/** An operation of a model version at one batch size. */
export interface BenchRow {
  name: string;
  version: number | null;
  precision: string | null;
  operation: string;
  batch: number;
  p50_ms: number;
  p99_ms: number;
  rows_per_s: number;
}

type Json = Record<string, unknown>;

// The report's stages are open documents in the interface: what is read here is checked here.
const record = (value: unknown): Json =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const number = (value: unknown): number | null => (typeof value === "number" ? value : null);
const text = (value: unknown): string | null => (typeof value === "string" ? value : null);

export function exportRows(report: RunReport["export"]): ExportRow[] {
  return Object.entries(report).map(([name, value]) => {
    const entry = record(value);
    return {
      name,
      version: number(entry.version),
      size_bytes: number(entry.size_bytes),
      max_absolute_error: number(entry.max_absolute_error),
      max_relative_error: number(entry.max_relative_error),
    };
  });
}

export function comparisons(report: RunReport["compress"]): Comparison[] {
  return Object.entries(report).flatMap(([artifact, value]) => {
    const { size_bytes, metric } = record(value);
    const metricName = text(record(metric).name);
    return [
      comparison(artifact, "size_bytes", size_bytes),
      metricName === null ? [] : comparison(artifact, metricName, metric),
    ].flat();
  });
}

function comparison(artifact: string, name: string, value: unknown): Comparison[] {
  const entry = record(value);
  const before = number(entry.before);
  const after = number(entry.after);
  if (before === null || after === null) return [];
  return [{ artifact, name, before, after, max_drop: number(entry.max_drop) }];
}

export function benchRows(report: RunReport["bench"]): BenchRow[] {
  return Object.entries(report).flatMap(([name, versions]) =>
    list(versions).flatMap((value) => {
      const { version, precision, batches } = record(value);
      return list(batches).flatMap((point) => {
        const { operation, batch, p50_ms, p99_ms, rows_per_s } = record(point);
        const figures = [batch, p50_ms, p99_ms, rows_per_s].map(number);
        if (figures.includes(null)) return [];
        const [size, p50, p99, rate] = figures as [number, number, number, number];
        return [
          {
            name,
            version: number(version),
            precision: text(precision),
            // Earlier releases measured the model's call in Python, and did not say so.
            operation: text(operation) ?? "model",
            batch: size,
            p50_ms: p50,
            p99_ms: p99,
            rows_per_s: rate,
          },
        ];
      });
    }),
  );
}
