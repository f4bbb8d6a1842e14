import type { Compression, CompressionPoint } from "@/api/types";
import { before } from "./fixtures";

/** The report of a search for compressed models. */

const latency = (p50_ms: number, spread: number, p99_ms: number) => ({
  p50_ms,
  p50_min_ms: p50_ms - spread,
  p50_max_ms: p50_ms + spread,
  p99_ms,
  original_p50_ms: 0.5,
  original_p99_ms: 0.9,
});

function point(
  key: string,
  version: number | null,
  codec: string,
  recall: number,
  more: Partial<CompressionPoint>,
): CompressionPoint {
  return {
    key,
    version,
    name: `dense int8; tables ${codec}`,
    recipe: {
      dense: "int8",
      tables: { package: codec },
      float_layers: [],
      kept_neurons: 1,
      by_layer: false,
      max_neighbors: null,
      tuned: false,
      unchanged: ["tag"],
    },
    source: "ladder",
    state: "measured",
    reason: null,
    size_bytes: 7_300_000,
    parts_bytes: { dense: 50_000, tables: 7_000_000, other: 250_000 },
    metrics: { "recall@20": recall, queries: 1679 },
    latency: latency(0.3, 0.05, 0.6),
    seconds: 3,
    exceeds: [],
    standard_error: 0.012,
    ...more,
  };
}

const original = point("a0", 1, "float32", 0.351, {
  name: "dense float32; tables as they are",
  size_bytes: 24_100_000,
  latency: latency(0.45, 0.02, 0.8),
});
const chosen = point("a1", 2, "int8", 0.3495, {});
const larger = point("a2", 3, "float16", 0.3512, {
  size_bytes: 12_400_000,
  latency: latency(0.49, 0.05, 0.95),
});
const small = point("a3", null, "int4", 0.31, {
  size_bytes: 4_100_000,
  exceeds: ["--max-drop"],
});
const refused = point("a4", null, "int3", 0, {
  state: "refused",
  reason: "expected rows of 8 or more elements, received 4",
  size_bytes: 0,
  metrics: {},
  latency: null,
  standard_error: null,
});

/** A finished search: its original, two points, a model beyond the limit and a refused one. */
export const compression: Compression = {
  id: "1-0123456789ab",
  version: 1,
  key: "0123456789ab",
  state: "finished",
  running: false,
  updated_at: before(60 * 20),
  trials: 5,
  chosen_version: 2,
  metric: "recall@20",
  limits: ["--max-size 13000000B", "--max-p50 100%", "--max-drop 0.5%"],
  bounds: {
    size_bytes: 13_000_000,
    p50_ms: null,
    p50_ratio: 1,
    p99_ms: null,
    p99_ratio: null,
    metric: 0.3492,
  },
  original,
  tried: [original, { ...chosen, latency: latency(0.7, 0.1, 2) }, larger, small, refused],
  points: [chosen, larger],
  chosen: "a1",
  metrics_test: { "recall@20": 0.341 },
  drift: [
    { group: "in_degree_over_50", positives: 1_204, original: 0.412, chosen: 0.4135 },
    { group: "in_degree_5_to_50", positives: 2_870, original: 0.353, chosen: 0.351 },
    { group: "in_degree_0", positives: 1, original: 0, chosen: null },
  ],
  rejected: [],
  layer_errors: { "dense.0": 0.0123 },
  table_errors: {
    package: { float32: 0, int8: 0.0053, int4: 0.086 },
    tag: { float32: 0, int8: 0.0047 },
  },
  command:
    "graphbox compress debian-companion --version 1 --max-size 13000000B --max-p50 100% --max-drop 0.5% --trials 5",
  environment: "target onnxruntime/cpu, device AMD EPYC, threads 1, batch 1",
  unfinished: null,
};
