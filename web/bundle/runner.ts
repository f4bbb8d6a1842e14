import type { Tensor } from "onnxruntime-web/wasm";
import { Program } from "./program.ts";

/** Type, bytes in base64, shape. */
type Coded = [Tensor.Type, string, number[]];

const ARRAYS = {
  bool: Uint8Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  float16: Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
} as const;
const CHUNK_BYTES = 1 << 15;

const bytesOf = (text: string) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

function base64(bytes: Uint8Array): string {
  let text = "";
  for (let start = 0; start < bytes.length; start += CHUNK_BYTES) {
    text += String.fromCharCode(...bytes.subarray(start, start + CHUNK_BYTES));
  }
  return btoa(text);
}

const programs = new Map<number, Program>();
let opened = 0;

/** What `graphbox/deploy/adapters/chromium.py` calls: programs by number, tensors as bytes. */
const runner = {
  async open(model: string): Promise<number> {
    programs.set(++opened, await Program.open(bytesOf(model)));
    return opened;
  },

  async run(number: number, feeds: Record<string, Coded>): Promise<Record<string, Coded>> {
    const program = programs.get(number)!;
    const tensors = Object.entries(feeds).map(([name, [type, text, shape]]) => {
      const data = new ARRAYS[type as keyof typeof ARRAYS](bytesOf(text).buffer);
      return [name, program.tensor(type, data, shape)];
    });
    const outputs = await program.run(Object.fromEntries(tensors) as Record<string, Tensor>);
    const coded = Object.entries(outputs).map(([name, { type, data, dims }]) => {
      const { buffer, byteOffset, byteLength } = data as Float32Array;
      return [name, [type, base64(new Uint8Array(buffer, byteOffset, byteLength)), dims]];
    });
    return Object.fromEntries(coded) as Record<string, Coded>;
  },

  async close(number: number): Promise<void> {
    const program = programs.get(number);
    programs.delete(number);
    await program?.close();
  },
};

Object.assign(window, { graphbox: runner });
