import type { TableSpec } from "./description.ts";
import type { BundleFiles } from "./files.ts";
import { float16Values } from "./float16.ts";

/** Rows as they are stored, decoded as they are read. */
export class Rows {
  private constructor(
    readonly count: number,
    readonly dim: number,
    private readonly decode: (start: number, out: Float32Array, at: number) => void,
    private readonly plain: Float32Array | null,
  ) {}

  static async load(files: BundleFiles, spec: TableSpec): Promise<Rows> {
    const { rows, dim } = spec;
    if (spec.codec === "float32") {
      const values = await files.array(spec.values, "<f4", rows * dim);
      const copy = (row: number, out: Float32Array, at: number) =>
        out.set(values.subarray(row * dim, (row + 1) * dim), at);
      return new Rows(rows, dim, copy, values);
    }
    const widened = float16Values();
    if (spec.codec === "float16") {
      const bits = await files.array(spec.values, "<f2", rows * dim);
      const widen = (row: number, out: Float32Array, at: number) => {
        for (let i = 0; i < dim; i++) out[at + i] = widened[bits[row * dim + i]!]!;
      };
      return new Rows(rows, dim, widen, null);
    }
    const codes = await files.array(spec.values, "|u1", rows * dim);
    const factors = await files.array(spec.factors!, "<f2", rows * 2);
    const dequantize = (row: number, out: Float32Array, at: number) => {
      const scale = widened[factors[2 * row]!]!;
      const bias = widened[factors[2 * row + 1]!]!;
      for (let i = 0; i < dim; i++) out[at + i] = codes[row * dim + i]! * scale + bias;
    };
    return new Rows(rows, dim, dequantize, null);
  }

  /** Writes a row into `out` from position `at` on. */
  read(row: number, out: Float32Array, at = 0): void {
    this.decode(row, out, at);
  }

  /** Rows `start` to `stop` as float32; `buffer` has room for them and may be what is returned. */
  block(start: number, stop: number, buffer: Float32Array): Float32Array {
    if (this.plain) return this.plain.subarray(start * this.dim, stop * this.dim);
    for (let row = start; row < stop; row++) this.decode(row, buffer, (row - start) * this.dim);
    return buffer;
  }
}
