import type { InferenceSession, Tensor } from "onnxruntime-web/wasm";
import wasmAddress from "onnxruntime-web/ort-wasm-simd-threaded.wasm?url";
import { type Bytes, request } from "./files.ts";

export type Feeds = Record<string, Tensor>;

/** An ONNX model that ONNX Runtime Web runs on one thread. */
export class Program {
  private constructor(
    private readonly ort: typeof import("onnxruntime-web/wasm"),
    private readonly session: InferenceSession,
  ) {}

  static async open(model: Bytes): Promise<Program> {
    const ort = await import("onnxruntime-web/wasm");
    // More threads need headers that a plain file server does not send.
    ort.env.wasm.numThreads = 1;
    ort.env.logLevel = "error";
    // Fetched here: compiling while it loads needs a content type that some servers do not know.
    ort.env.wasm.wasmBinary ??= await (await request(wasmAddress, "the runtime")).arrayBuffer();
    const session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
    return new Program(ort, session);
  }

  tensor(type: Tensor.Type, data: Tensor.DataType, shape: readonly number[]): Tensor {
    return new this.ort.Tensor(type, data, shape);
  }

  /** The outputs, by name. */
  async run(feeds: Feeds): Promise<Record<string, Tensor>> {
    return this.session.run(feeds);
  }

  /** Frees the memory. */
  close(): Promise<void> {
    return this.session.release();
  }
}
