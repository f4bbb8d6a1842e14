import type { BenchPoint, ModelVersion } from "./types";

const REQUESTS: BenchPoint["operation"][] = ["neighbors", "answers", "infer"];

/** The measurement of the smallest request, end to end: what `latency` means of a version. */
export function requestLatency({ bench }: ModelVersion): BenchPoint | undefined {
  return bench
    .filter(({ operation }) => REQUESTS.includes(operation))
    .toSorted(
      (a, b) =>
        Number(a.operation === "infer") - Number(b.operation === "infer") ||
        a.batch - b.batch ||
        a.p50_ms - b.p50_ms,
    )[0];
}

/** Whether two measurements are of the same request. */
export function sameRequest(a: BenchPoint, b: BenchPoint): boolean {
  return a.operation === b.operation && a.batch === b.batch;
}
