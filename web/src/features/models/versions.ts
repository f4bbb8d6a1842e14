import type { ModelSummary, ModelVersion } from "@/api/types";

/** The version of a model that is shown when none was chosen: the served one, else the newest. */
export function defaultVersion({ versions }: ModelSummary): ModelVersion | undefined {
  return versions.find((version) => version.served) ?? versions[0];
}

const REFRESH_MS = 10_000;
const SWITCHING_REFRESH_MS = 1_000;

/** Returns when to ask again: soon while a version is about to get requests, or to replace another. */
export function refreshInterval(models: ModelSummary[] | undefined): number {
  const switching = models?.some(({ versions, canary, shadow }) =>
    versions.some(
      ({ version, active, served, failure, running }) =>
        failure === null &&
        ((active && !served) ||
          (running === null && [canary?.version, shadow?.version].includes(version))),
    ),
  );
  return switching ? SWITCHING_REFRESH_MS : REFRESH_MS;
}

/** The version another one was made from, when it is still there. */
export function parentOf(model: ModelSummary, version: ModelVersion): ModelVersion | undefined {
  return model.versions.find((other) => version.parent === other.version);
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
