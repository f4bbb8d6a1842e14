import type { BenchPoint, ModelSummary, ModelVersion } from "@/api/types";

/** The version of a model that is shown when none was chosen: the served one, else the newest. */
export function defaultVersion({ versions }: ModelSummary): ModelVersion | undefined {
  return versions.find((version) => version.served) ?? versions[0];
}

/** The version another one was made from, when it is still there. */
export function parentOf(model: ModelSummary, version: ModelVersion): ModelVersion | undefined {
  return model.versions.find((other) => version.parent === other.version);
}

/** The batch sizes that were measured for any version. */
export function measuredBatches(versions: ModelVersion[]): number[] {
  const batches = new Set(versions.flatMap(({ bench }) => bench.map(({ batch }) => batch)));
  return [...batches].sort((a, b) => a - b);
}

/** The fastest measurement at a batch size, over targets and threads. */
export function latencyAt(version: ModelVersion, batch: number): BenchPoint | undefined {
  return version.bench
    .filter((point) => point.batch === batch)
    .toSorted((a, b) => a.p50_ms - b.p50_ms)[0];
}

export interface VersionMetric {
  task: string;
  metric: string;
  value: number | null;
  /** Its value for the version this one was made from. */
  parent: number | null;
}

/** The metrics of a version beside those of the version it was made from. */
export function compareMetrics(
  version: ModelVersion,
  parent: ModelVersion | undefined,
): VersionMetric[] {
  return Object.entries(version.metrics).flatMap(([task, metrics]) =>
    Object.entries(metrics).map(([metric, value]) => ({
      task,
      metric,
      value,
      parent: parent?.metrics[task]?.[metric] ?? null,
    })),
  );
}
