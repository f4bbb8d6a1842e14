import type { Tensor } from "onnxruntime-web/wasm";
import type { Datatype, ExampleInput, TensorSpec } from "./description.ts";
import { float16Bits, float16Values } from "./float16.ts";
import { Problem } from "./problem.ts";
import type { Feeds, Program } from "./program.ts";

const NUMBER_TYPES = {
  INT8: ["int8", Int8Array],
  INT16: ["int16", Int16Array],
  INT32: ["int32", Int32Array],
  UINT8: ["uint8", Uint8Array],
  UINT16: ["uint16", Uint16Array],
  UINT32: ["uint32", Uint32Array],
  FP32: ["float32", Float32Array],
  FP64: ["float64", Float64Array],
} as const;
const BIG_TYPES = { INT64: ["int64", BigInt64Array], UINT64: ["uint64", BigUint64Array] } as const;

/** Reads inputs that were written as JSON. */
export function readInputs(json: string): ExampleInput[] {
  let read: unknown;
  try {
    read = JSON.parse(json);
  } catch {
    throw new Problem("wrong_json");
  }
  const isInput = (value: unknown) => {
    const { name, shape, data } = (value ?? {}) as Partial<Record<string, unknown>>;
    return typeof name === "string" && Array.isArray(shape) && Array.isArray(data);
  };
  if (!Array.isArray(read) || !read.every(isInput)) throw new Problem("wrong_json");
  return read as ExampleInput[];
}

/** The feeds of a program; throws a `Problem` that names the input that does not fit. */
export function feedsOf(program: Program, specs: TensorSpec[], inputs: ExampleInput[]): Feeds {
  return Object.fromEntries(
    specs.map((spec) => {
      const input = inputs.find(({ name }) => name === spec.name);
      try {
        if (!input) throw new TypeError("no such input");
        const [type, data] = typed(spec.datatype, input.data);
        return [spec.name, program.tensor(type, data, input.shape)];
      } catch {
        const expected = `${spec.datatype} [${spec.shape.map((size) => (size < 0 ? "n" : size)).join(", ")}]`;
        throw new Problem("wrong_input", { name: spec.name, expected });
      }
    }),
  );
}

function typed(datatype: Datatype, data: unknown[]): [Tensor.Type, Tensor.DataType] {
  if (datatype === "BOOL") return ["bool", Uint8Array.from(data, (value) => (value ? 1 : 0))];
  if (datatype === "INT64" || datatype === "UINT64") {
    const [type, array] = BIG_TYPES[datatype];
    return [type, array.from((data as (string | number)[]).map(BigInt))];
  }
  const numbers = data.map(Number);
  if (datatype === "FP16") return ["float16", Uint16Array.from(numbers, float16Bits)];
  const [type, array] = NUMBER_TYPES[datatype];
  return [type, array.from(numbers)];
}

/** The values of an output as text. */
export function valuesOf(output: Tensor): string[] {
  const { data, type } = output;
  if (type === "float16" && data instanceof Uint16Array) {
    const values = float16Values();
    return Array.from(data, (bits) => String(values[bits]));
  }
  return Array.from(data as ArrayLike<unknown>, String);
}
