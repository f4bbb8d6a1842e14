/** The content of `bundle.json`, which `graphbox targets build --target browser` writes. */

export type Datatype =
  | "BOOL"
  | "INT8"
  | "INT16"
  | "INT32"
  | "INT64"
  | "UINT8"
  | "UINT16"
  | "UINT32"
  | "UINT64"
  | "FP16"
  | "FP32"
  | "FP64";

/** Score of a row for a query; `max_inner_product`: the largest for one of the query's vectors. */
export type Score = "inner_product" | "cosine" | "max_inner_product";

export interface TensorSpec {
  name: string;
  datatype: Datatype;
  /** -1: of any size. */
  shape: number[];
}

/** An input of the example request; 64-bit integers are strings. */
export interface ExampleInput {
  name: string;
  shape: number[];
  data: unknown[];
}

export interface TableSpec {
  node_type: string;
  codec: "float32" | "float16" | "int8_rowwise";
  rows: number;
  dim: number;
  /** Paths of `.npy` files; `factors` are the scale and the bias of each row of codes. */
  values: string;
  factors: string | null;
}

export interface RelationGroup {
  edge_types: [string, string, string][];
  counts: string;
  neighbors: string;
  normalization: "mean" | "square_root" | "table" | "none";
  weights: string | null;
  neighbors_input: string;
  weights_input: string | null;
}

export interface LayerSpec {
  groups: RelationGroup[];
  self_inputs: Record<string, string>;
}

export interface LookupForm {
  form: "lookup";
  node_type: string;
  tables: Record<string, string>;
}

export interface PaddedBlockForm {
  form: "padded_block";
  node_type: string;
  rows: Record<string, { input: string; tables: string[] }>;
  layers: LayerSpec[];
  classes: string[];
}

export interface FieldSpec {
  name: string;
  kind: "number" | "integer" | "categorical" | "boolean" | "vector" | "slots";
  /** Length of a vector, else null. */
  dim: number | null;
  mean: number[];
  deviation: number[];
  /** Of numbers and integers; ascending. */
  knots: number[];
  /** Of slots that are a history: how many events are read, each as a bag; the last ones. */
  window?: number;
  /** What the values name, where columns share rows; all are read as values of slots. */
  items?: string;
}

export interface FieldsForm {
  form: "fields";
  fields: FieldSpec[];
  /** Columns each combination of whose values has a key. */
  crosses: string[][];
  tables: Record<string, { input: string; crosses: boolean }>;
  numbers: string | null;
  /** Of several: what each probability is of, in the order of the ONNX outputs. */
  labels?: string[];
}

export interface TriplesForm {
  form: "triples";
  /** Tables by node type. */
  entities: Record<string, string>;
  relation_type: string;
  to_tails: string;
  to_heads: string;
  /** Node types of the heads and of the tails, by relation. */
  ends: Record<string, [string, string]>;
  rows_input: string;
  relations_input: string;
  candidates_input: string;
  compares_numbers: boolean;
}

export interface TensorsForm {
  form: "tensors";
}

export interface Description {
  format: "graphbox-browser-bundle";
  format_version: number;
  name: string;
  version: number;
  /** Identifies every byte of the files. */
  digest: string;
  /** Sizes in bytes, by path. */
  files: Record<string, number>;
  /** Files with the original ids of each node type: a JSON list of strings, of integers too. */
  ids: Record<string, { path: string; kind: "string" | "int64" }>;
  tables: Record<string, TableSpec>;
  /** Files with the keys of the rows of each table of a click model: int64, ascending. */
  keys: Record<string, string>;
  /** Files with the known links of each relation: int32 [links, 2], heads and tails. */
  links: Record<string, string>;
  targets: Record<string, { table: string; score: Score }>;
  form: LookupForm | PaddedBlockForm | FieldsForm | TriplesForm | TensorsForm;
  onnx: { path: string; inputs: TensorSpec[]; outputs: TensorSpec[] } | null;
  example: ExampleInput[];
}

export const FORMAT_VERSION = 1;
