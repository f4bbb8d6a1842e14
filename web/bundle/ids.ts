import type { BundleFiles } from "./files.ts";

const SUGGESTIONS = 10;
const MOST_MATCHES = 1000;
const INTEGER = /^-?[0-9]{1,19}$/;

/** The original ids of a node type, as text; position = index of the node. */
export class Ids {
  private readonly indexOf: Map<string, number>;

  private constructor(
    private readonly texts: string[],
    private readonly kind: "string" | "int64",
  ) {
    this.indexOf = new Map(texts.map((text, index) => [text, index]));
  }

  static async load(
    files: BundleFiles,
    spec: { path: string; kind: "string" | "int64" },
  ): Promise<Ids> {
    return new Ids((await files.json(spec.path)) as string[], spec.kind);
  }

  text(index: number): string {
    return this.texts[index]!;
  }

  /** The index of an id, or null. */
  find(text: string): number | null {
    const written = this.kind === "int64" && INTEGER.test(text) ? BigInt(text).toString() : text;
    return this.indexOf.get(written) ?? null;
  }

  /** A few ids that start with `prefix`, shortest first. */
  withPrefix(prefix: string): string[] {
    const matches: string[] = [];
    for (const text of this.texts) {
      if (text.startsWith(prefix)) matches.push(text);
      if (matches.length === MOST_MATCHES) break;
    }
    return matches.sort((a, b) => a.length - b.length).slice(0, SUGGESTIONS);
  }
}
