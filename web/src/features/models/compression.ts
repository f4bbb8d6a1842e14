import type { Compression, CompressionTrial } from "@/api/types";

/** How the median latency of a model compares with that of the original in the same turns. */
export type Speed = "faster" | "same" | "slower";

/** Returns how fast a model was beside the original in all repeats; null where it was not measured. */
export function speedOf({ latency }: CompressionTrial): Speed | null {
  if (latency === null) return null;
  if (latency.p50_max_ms < latency.original_p50_ms) return "faster";
  return latency.p50_min_ms > latency.original_p50_ms ? "slower" : "same";
}

/** The role of a model in the report of a search. */
export type Role = "chosen" | "point" | "original" | "tried" | "beyond";

export interface Placed {
  role: Role;
  trial: CompressionTrial;
  /** Its value of the metric that decides. */
  value: number;
  version: number | null;
  speed: Speed | null;
}

const ORDER: Role[] = ["beyond", "tried", "original", "point", "chosen"];

/**
 * The measured models of a search, each once, the least important first. Points have the figures that
 * were measured last, together.
 */
export function placedModels(report: Compression): Placed[] {
  const points = new Map(report.points.map((point) => [point.key, point]));
  const roleOf = (trial: CompressionTrial): Role => {
    if (trial.key === report.chosen) return "chosen";
    if (points.has(trial.key)) return "point";
    if (trial.key === report.original.key) return "original";
    return trial.exceeds.length > 0 ? "beyond" : "tried";
  };
  return report.tried
    .map((tried) => points.get(tried.key) ?? tried)
    .flatMap((trial): Placed[] => {
      const value = trial.metrics[report.metric];
      if (trial.state !== "measured" || value == null) return [];
      const isOriginal = trial.key === report.original.key;
      const version = points.get(trial.key)?.version ?? (isOriginal ? report.version : null);
      return [{ role: roleOf(trial), trial, value, version, speed: speedOf(trial) }];
    })
    .sort((a, b) => ORDER.indexOf(a.role) - ORDER.indexOf(b.role));
}

/** The latency of the original as it was measured in turns with the points; else alone. */
export function originalLatency(report: Compression): { p50_ms: number; p99_ms: number } | null {
  const beside = report.points.find(({ latency }) => latency !== null)?.latency;
  if (beside) return { p50_ms: beside.original_p50_ms, p99_ms: beside.original_p99_ms };
  return report.original.latency;
}

/** The command that starts a search for versions of a model. */
export function searchCommand(name: string): string {
  return `graphbox compress ${name} --max-drop 0.5% --trials 20`;
}
