import type {
  DeploymentTarget,
  EncodedNode,
  GraphSummary,
  ModelSummary,
  NeighborAnswer,
  NodeId,
  Overview,
  RunDetail,
  RunMetrics,
  RunSummary,
  UnseenFeature,
  UnseenInputs,
} from "@/api/types";

/** Answers of a server that has run the pipeline of the bundled graph. */

export const overview: Overview = {
  version: "0.1.0",
  workspace_name: "debian-workspace",
  graphs: 1,
  runs: 3,
  models: 2,
  running: 1,
  can_promote: true,
  follows: true,
};

const MINUTE_MS = 60_000;
export const before = (minutes: number) => new Date(Date.now() - minutes * MINUTE_MS).toISOString();

export const runs: RunSummary[] = [
  {
    id: "debian-20261120-1",
    name: "debian",
    state: "running",
    stage: "train",
    created_at: before(3),
    updated_at: before(0),
    seconds: 183.4,
    size_bytes: 21_400_000,
  },
  {
    id: "debian-20261119-2",
    name: "debian",
    state: "finished",
    stage: "bench",
    created_at: before(60 * 26),
    updated_at: before(60 * 25),
    seconds: 402.7,
    size_bytes: 86_300_000,
  },
  {
    id: "shop-20261118-1",
    name: "shop",
    state: "failed",
    stage: "compress",
    created_at: before(60 * 50),
    updated_at: before(60 * 49),
    seconds: 77.1,
    size_bytes: 9_100_000,
  },
];

const stages: RunDetail["stages"] = [
  { name: "import", state: "finished", seconds: 6.2, peak_bytes: 412_000_000 },
  { name: "train", state: "finished", seconds: 301.8, peak_bytes: 1_320_000_000 },
  { name: "evaluate", state: "finished", seconds: 41.5, peak_bytes: 1_180_000_000 },
  { name: "export", state: "finished", seconds: 12.9, peak_bytes: 890_000_000 },
  { name: "compress", state: "finished", seconds: 23.6, peak_bytes: 760_000_000 },
  { name: "bench", state: "finished", seconds: 16.7, peak_bytes: 510_000_000 },
];

const config = `version: 1
name: debian
seed: 0
graph:
  name: debian
  root: .
tasks:
  companion:
    kind: recommend
    node_type: package
    relations: [recommends, suggests]
models:
  sage:
    kind: sage
    task: companion
    dim: 64
`;

const ranking = (
  recall: number,
  ndcg: number,
  mrr: number,
  recallOfPopular: number,
  recallOfNew: number,
) => ({
  "recall@20": recall,
  "ndcg@20": ndcg,
  mrr,
  queries: 3318,
  positives: 6082,
  "recall@20_in_degree_over_50": recallOfPopular,
  positives_in_degree_over_50: 4670,
  "recall@20_in_degree_0": recallOfNew,
  positives_in_degree_0: 1412,
});

export const finishedRun: RunDetail = {
  ...(runs[1] as RunSummary),
  stages,
  config,
  report: {
    training: {
      network: {
        epochs: 120,
        chosen: {
          settings: { layer: "appnp", layers: 10 },
          why: "best accuracy of 2, 1 more pruned: search",
          metric: "accuracy",
          trials: [
            {
              settings: { layer: "sage", layers: 2 },
              state: "measured",
              value: 0.742,
              cost: -0.742,
              seconds: 4.2,
            },
            {
              settings: { layer: "appnp", layers: 10 },
              state: "measured",
              value: 0.771,
              cost: -0.771,
              seconds: 6.1,
            },
            {
              settings: { layer: "gat", layers: 16 },
              state: "pruned",
              value: 0.75,
              cost: -0.75,
              median: 0.76,
              epochs: 20,
              seconds: 1.4,
            },
          ],
        },
      },
    },
    metrics: {
      section: { skipgram: { accuracy: 0.757, macro_f1: 0.579, nodes: 12_353 } },
      companion: { sage: ranking(0.351, 0.249, 0.262, 0.812, 0.03) },
    },
    baselines: {
      section: {
        majority: { accuracy: 0.113, macro_f1: 0.004, nodes: 12_353 },
        neighbors_vote: { accuracy: 0.52, macro_f1: 0.41, nodes: 12_353 },
      },
      companion: {
        popular: ranking(0.144, 0.102, 0.11, 0.61, 0),
        popular_within_category: ranking(0.286, 0.221, 0.23, 0.827, 0),
        adamic_adar: ranking(0.228, 0.131, 0.128, 0.533, 0.066),
        personalized_pagerank: ranking(0.309, 0.175, 0.171, 0.795, 0.055),
        user_knn: ranking(0.363, 0.282, 0.301, 0.819, 0),
      },
    },
    baselines_left_out: {
      companion: {
        ease: "left out, about 14 min on this graph; name it under `baselines` to run it",
      },
    },
    notes: { companion: { sage: "validation recall@20 0.347" } },
    export: {
      "debian-companion": {
        version: 1,
        size_bytes: 24_100_000,
        max_absolute_error: 2.4e-7,
        max_relative_error: 1.1e-6,
      },
    },
    compress: {
      "debian-companion": {
        size_bytes: { before: 24_100_000, after: 7_300_000 },
        metric: { name: "recall@20", before: 0.351, after: 0.3495, drop: 0.0015, max_drop: 0.01 },
      },
    },
    bench: {
      "debian-companion": [
        {
          version: 2,
          precision: "int8_dynamic",
          batches: [
            { operation: "neighbors", batch: 1, p50_ms: 1.31, p99_ms: 1.92, rows_per_s: 748 },
            { operation: "infer", batch: 32, p50_ms: 6.4, p99_ms: 8.8, rows_per_s: 4920 },
          ],
        },
      ],
    },
  },
  error: null,
  resumable: false,
  removable: true,
};

export const runningRun: RunDetail = {
  ...(runs[0] as RunSummary),
  stages: [
    { name: "import", state: "finished", seconds: 6.2, peak_bytes: 412_000_000 },
    { name: "train", state: "running", seconds: 176.9, peak_bytes: 1_250_000_000 },
  ],
  config,
  report: {
    training: {},
    metrics: {},
    baselines: {},
    baselines_left_out: {},
    notes: {},
    export: {},
    compress: {},
    bench: {},
  },
  error: null,
  resumable: false,
  removable: false,
};

export const failedRun: RunDetail = {
  ...(runs[2] as RunSummary),
  stages: stages.slice(0, 4).concat({
    name: "compress",
    state: "failed",
    seconds: 4.1,
    peak_bytes: 300_000_000,
  }),
  config,
  report: finishedRun.report,
  error: {
    code: "gate",
    message: "expected recall@20 to drop by at most 0.02, received a drop of 0.051",
    where: "compress.max_drop",
    hint: "raise compress.max_drop, or keep the rows in float16 with compress.rows=float16",
  },
  resumable: false,
  removable: true,
};

const steps = Array.from({ length: 120 }, (_, index) => (index + 1) * 25);
const wobble = (index: number) => Math.sin(index * 12.9898) * 0.5;

export const metrics: RunMetrics = {
  series: [
    {
      model: "sage",
      phase: null,
      key: "loss",
      steps,
      values: steps.map((_, index) => 0.4 + 3 * Math.exp(-index / 30) + 0.12 * wobble(index)),
      non_finite: 0,
    },
    {
      model: "sage",
      phase: null,
      key: "samples_per_s",
      steps,
      values: steps.map((_, index) => 41_000 + 3_000 * wobble(index)),
      non_finite: 0,
    },
    {
      model: "sage",
      phase: null,
      key: "validation_recall@20",
      steps: steps.filter((_, index) => index % 12 === 11),
      values: [0.12, 0.19, 0.24, 0.28, 0.305, 0.32, 0.334, 0.341, 0.343, 0.347],
      non_finite: 0,
    },
  ],
  last_line: 130,
  damaged_lines: 0,
};

export const models: ModelSummary[] = [
  {
    name: "debian-companion",
    canary: null,
    shadow: null,
    versions: [
      {
        version: 2,
        kind: "encoder",
        task: "companion",
        precision: "int8_dynamic",
        size_bytes: 7_300_000,
        parent: 1,
        run_id: "debian-20261119-2",
        created_at: before(60 * 25),
        active: true,
        metrics: { companion: ranking(0.3495, 0.2481, 0.261, 0.812, 0.031) },
        deciding_metric: "recall@20",
        comparison: null,
        bench: [
          {
            operation: "neighbors",
            target: "onnxruntime-cpu",
            threads: 1,
            batch: 1,
            p50_ms: 1.31,
            p99_ms: 1.92,
            rows_per_s: 748,
          },
          {
            operation: "infer",
            target: "onnxruntime-cpu",
            threads: 1,
            batch: 32,
            p50_ms: 6.4,
            p99_ms: 8.8,
            rows_per_s: 4920,
          },
        ],
        served: true,
        promotable: true,
        failure: null,
        running: {
          adapter: "onnxruntime",
          device: "cpu",
          provider: "CPUExecutionProvider",
          precision: "int8_dynamic",
          threads: 1,
          runtime: "onnxruntime 1.31.1",
          measured_ms: { "onnxruntime/cpu": [0.05, 0.2], "openvino/cpu": [0.4, 0.6] },
          nearest: { package: "exact" },
        },
      },
      {
        version: 1,
        kind: "encoder",
        task: "companion",
        precision: "float32",
        size_bytes: 24_100_000,
        parent: null,
        run_id: "debian-20261119-2",
        created_at: before(60 * 25 + 2),
        active: false,
        metrics: { companion: ranking(0.351, 0.249, 0.262, 0.812, 0.03) },
        deciding_metric: "recall@20",
        comparison: {
          active: 2,
          metric: "recall@20",
          quality: { version: 0.351, active: 0.3495 },
          not_comparable: null,
          size_bytes: { version: 24_100_000, active: 7_300_000 },
          request_ms: { version: 1.92, active: 1.31 },
          request: "neighbors",
        },
        bench: [
          {
            operation: "neighbors",
            target: "onnxruntime-cpu",
            threads: 1,
            batch: 1,
            p50_ms: 1.92,
            p99_ms: 2.7,
            rows_per_s: 511,
          },
          {
            operation: "infer",
            target: "onnxruntime-cpu",
            threads: 1,
            batch: 32,
            p50_ms: 11.2,
            p99_ms: 15.1,
            rows_per_s: 2830,
          },
        ],
        served: false,
        promotable: true,
        failure: null,
        running: null,
      },
    ],
  },
  {
    name: "debian-section",
    canary: null,
    shadow: null,
    versions: [
      {
        version: 1,
        kind: "embedding",
        task: "section",
        precision: "float32",
        size_bytes: 16_900_000,
        parent: null,
        run_id: "debian-20261119-2",
        created_at: before(60 * 25),
        active: true,
        metrics: { section: { accuracy: 0.757, macro_f1: 0.579, nodes: 12_353 } },
        deciding_metric: "accuracy",
        comparison: null,
        bench: [],
        served: true,
        promotable: true,
        failure: null,
        running: null,
      },
    ],
  },
];

const names = [
  "nginx-common",
  "apache2",
  "ssl-cert",
  "certbot",
  "python3-certbot-nginx",
  "php-fpm",
  "logrotate",
  "haproxy",
  "varnish",
  "libnginx-mod-http-geoip",
  "lighttpd",
  "fail2ban",
  "ufw",
  "goaccess",
  "awstats",
  "squid",
  "memcached",
  "redis-server",
  "openssl",
  "nginx-doc",
];

const linksOf: Record<string, NeighborAnswer["neighbors"][number]["links"]> = {
  "nginx-common": [{ relation: "depends", direction: "out", held_out: false }],
  "python3-certbot-nginx": [{ relation: "recommends", direction: "in", held_out: true }],
  "php-fpm": [{ relation: "suggests", direction: "out", held_out: true }],
  "ssl-cert": [
    { relation: "suggests", direction: "out", held_out: false },
    { relation: "recommends", direction: "in", held_out: false },
  ],
};

export const neighbors: NeighborAnswer = {
  model: "debian-companion",
  version: 2,
  rows_sequence: null,
  query: { id: "nginx", type: "package" },
  query_types: ["package"],
  neighbors: names.map((id, index) => ({
    id,
    type: "package",
    score: 9.412 - 0.31 * index - 0.02 * index ** 1.3,
    links: linksOf[id] ?? [],
  })),
};

export const ids: NodeId[] = [
  { id: "nginx", type: "package" },
  { id: "nginx", type: "source" },
  { id: "nginx-common", type: "package" },
  { id: "nginx-core", type: "package" },
];

export const graphs: GraphSummary[] = [
  {
    name: "debian",
    size_bytes: 12_700_000,
    created_at: before(60 * 27),
    node_types: [
      { name: "package", nodes: 63_714 },
      { name: "source", nodes: 34_021 },
      { name: "tag", nodes: 597 },
    ],
    edge_types: [
      { source: "package", relation: "depends", target: "package", edges: 275_310 },
      { source: "package", relation: "recommends", target: "package", edges: 34_110 },
      { source: "package", relation: "suggests", target: "package", edges: 31_250 },
      { source: "package", relation: "pre_depends", target: "package", edges: 6_120 },
      { source: "package", relation: "enhances", target: "package", edges: 3_044 },
      { source: "package", relation: "built_from", target: "source", edges: 63_714 },
      { source: "package", relation: "tagged", target: "tag", edges: 110_450 },
    ],
  },
];

export const targets: DeploymentTarget[] = [
  {
    adapter: "onnxruntime-cpu",
    device: "cpu",
    available: true,
    reason: null,
    details: { runtime: "onnxruntime 1.31.1", cores: "2" },
    distribution: "graphbox 0.1.0",
    kind: "cpu",
    description: "AMD EPYC 9R14",
  },
  {
    adapter: "onnxruntime-cuda",
    device: null,
    available: false,
    reason: "onnxruntime on this machine has no CUDA provider",
    details: {},
    distribution: "graphbox 0.1.0",
    kind: null,
    description: null,
  },
];

/** Inputs of an encoder of shops with a feature of every kind, whose products have integer ids. */
export const unseenInputs: UnseenInputs = {
  node_type: "shop",
  features: [
    feature("category", "categorical", { categories: ["books", "food"], num_categories: 2 }),
    feature("rating", "number"),
    feature("staff", "integer"),
    feature("open", "boolean"),
    feature("profile", "vector", { dim: 3 }),
    feature("words", "slots"),
  ],
  relations: [
    {
      name: "product__sold_by__shop",
      node_type: "product",
      integer_ids: true,
      weighed: false,
      edge_features: [feature("price", "number")],
    },
    {
      name: "package__near__shop",
      node_type: "package",
      integer_ids: false,
      weighed: true,
      edge_features: [],
    },
  ],
  classes: ["small", "large"],
  target_type: "product",
  example: {
    features: {
      category: "books",
      rating: 4.1,
      staff: 12,
      open: true,
      profile: [0, 0.5, 1],
      words: ["new", "7", 7],
    },
    neighbors: { product__sold_by__shop: [11, "9007199254740993"], package__near__shop: ["s1"] },
    edge_features: { product__sold_by__shop: [{ price: 9.5 }, { price: 12 }] },
  },
};

function feature(
  name: string,
  kind: UnseenFeature["kind"],
  more: Partial<UnseenFeature> = {},
): UnseenFeature {
  return { name, kind, dim: null, categories: [], num_categories: 0, ...more };
}

export const encodedNode: EncodedNode = {
  embedding: [0.25, -1],
  probabilities: { small: 0.2, large: 0.8 },
  neighbors: [
    { id: "9007199254740995", type: "product", score: 3.5 },
    { id: 12, type: "product", score: 1.25 },
  ],
};

export const kserveMetadata = {
  name: "debian-companion",
  versions: ["1", "2"],
  platform: "graphbox",
  inputs: [{ name: "id", datatype: "BYTES", shape: [-1] }],
  outputs: [{ name: "embedding", datatype: "FP32", shape: [-1, 64] }],
};
