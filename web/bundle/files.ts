import { type Description, FORMAT_VERSION } from "./description.ts";
import { Problem } from "./problem.ts";

export type Bytes = Uint8Array<ArrayBuffer>;

const ARRAY_TYPES = {
  "<f4": Float32Array,
  "<f2": Uint16Array,
  "<u2": Uint16Array,
  "<i4": Int32Array,
  "<i8": BigInt64Array,
  "|u1": Uint8Array,
} as const;
type Dtype = keyof typeof ARRAY_TYPES;
export type NumberArray<D extends Dtype> = InstanceType<(typeof ARRAY_TYPES)[D]>;

/** `\x93NUMPY`, version 1.0 and the length of the header. */
const PREAMBLE_BYTES = 10;

/** Files of the bundle, fetched beside the page. */
export class BundleFiles {
  /**
   * @param base Address of the page's folder.
   * @param description Sizes and digest of the files.
   * @param onProgress Is called with the number of bytes that were loaded.
   */
  constructor(
    private readonly base: string,
    private readonly description: Description,
    private readonly onProgress: (bytes: number) => void,
  ) {}

  /** Bytes of all files of the model. */
  get totalBytes(): number {
    return Object.values(this.description.files).reduce((sum, size) => sum + size, 0);
  }

  /** The content of a file, which has the size that the description names. */
  async bytes(path: string): Promise<Bytes> {
    const expected = this.description.files[path];
    if (expected === undefined) throw new Problem("wrong_bundle");
    const content = new Uint8Array(expected);
    let received = 0;
    // The digest keeps a browser from answering with a file of another version that it cached.
    const response = await request(`${this.base}${path}?${this.description.digest}`, path);
    const reader = response.body!.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (received + part.value.length <= expected) content.set(part.value, received);
      received += part.value.length;
      this.onProgress(part.value.length);
    }
    if (received !== expected) throw new Problem("wrong_size", { path, received, expected });
    return content;
  }

  async json(path: string): Promise<unknown> {
    return JSON.parse(new TextDecoder().decode(await this.bytes(path)));
  }

  /**
   * The numbers of a `.npy` file, which has the given dtype and number of numbers; float16 as bits.
   *
   * Format: numpy.lib.format, version 1.0, little-endian, row-major.
   */
  async array<D extends Dtype>(
    path: string,
    dtype: D,
    length: number | null,
  ): Promise<NumberArray<D>> {
    const content = await this.bytes(path);
    const type = ARRAY_TYPES[dtype];
    const header = new TextDecoder("latin1").decode(
      content.subarray(PREAMBLE_BYTES, PREAMBLE_BYTES + content[8]! + 256 * content[9]!),
    );
    const start = PREAMBLE_BYTES + header.length;
    const found = (content.length - start) / type.BYTES_PER_ELEMENT;
    if (
      !header.includes(`'descr': '${dtype}', 'fortran_order': False`) ||
      !Number.isInteger(found) ||
      (length !== null && found !== length)
    ) {
      throw new Problem("wrong_array", { path, expected: `${length ?? ""} ${dtype}` });
    }
    const isAligned = start % type.BYTES_PER_ELEMENT === 0;
    const numbers = isAligned ? content : content.slice(start);
    return new type(numbers.buffer, isAligned ? start : 0, found) as NumberArray<D>;
  }
}

/** Fetches `bundle.json`. */
export async function readDescription(base: string): Promise<Description> {
  const path = "bundle.json";
  const response = await request(`${base}${path}`, path, { cache: "no-cache" });
  const description = (await response.json()) as Description;
  // A file of another version may be anything.
  const { format, format_version } = description as { format: unknown; format_version: unknown };
  if (format !== "graphbox-browser-bundle" || format_version !== FORMAT_VERSION) {
    throw new Problem("wrong_bundle");
  }
  return description;
}

/** Fetches a file; throws a `Problem` that names it. */
export async function request(
  address: string,
  path: string,
  options: RequestInit = {},
): Promise<Response> {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    throw new Problem("absent_file", { path, reason: String(error) });
  }
  if (!response.ok) throw new Problem("absent_file", { path, reason: `HTTP ${response.status}` });
  return response;
}
