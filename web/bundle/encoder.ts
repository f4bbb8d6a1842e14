import type { Ranked } from "./best.ts";
import type { Description, LookupForm, PaddedBlockForm } from "./description.ts";
import { PaddedBlockFeeds } from "./feeds.ts";
import type { BundleFiles } from "./files.ts";
import { Ids } from "./ids.ts";
import { Program } from "./program.ts";
import { Ranking } from "./ranking.ts";
import { Rows } from "./rows.ts";

export interface Answer {
  /** Best first; null where the model has no table to rank. */
  neighbors: Ranked[] | null;
  /** Probabilities of the classes; null where the model does not classify. */
  probabilities: Float32Array | null;
}

type Encode = (
  node: number,
  id: string,
) => Promise<{ embedding: Float32Array; probabilities: Float32Array | null }>;

/** A model that turns ids into embeddings and ranks the rows of a table by them. */
export class Encoder {
  private constructor(
    private readonly description: Description,
    private readonly ids: ReadonlyMap<string, Ids>,
    private readonly rankings: ReadonlyMap<string, Ranking>,
    private readonly encoders: ReadonlyMap<string, Encode>,
    readonly classes: readonly string[],
  ) {}

  static async load(
    files: BundleFiles,
    description: Description,
    form: LookupForm | PaddedBlockForm,
  ): Promise<Encoder> {
    const ids = new Map<string, Ids>();
    for (const [nodeType, spec] of Object.entries(description.ids)) {
      ids.set(nodeType, await Ids.load(files, spec));
    }
    const tables = new Map<string, Rows>();
    for (const [name, spec] of Object.entries(description.tables)) {
      tables.set(name, await Rows.load(files, spec));
    }
    const rankings = new Map<string, Ranking>();
    for (const [nodeType, { table, score }] of Object.entries(description.targets)) {
      rankings.set(nodeType, new Ranking(tables.get(table)!, score));
    }
    const encoders =
      form.form === "lookup"
        ? lookups(form, tables)
        : await padded(files, description, form, tables);
    const classes = form.form === "lookup" ? [] : form.classes;
    return new Encoder(description, ids, rankings, encoders, classes);
  }

  /** Node types whose ids can be asked for; the first is the default. */
  get queryTypes(): string[] {
    return [...this.encoders.keys()];
  }

  idsOf(nodeType: string): Ids {
    return this.ids.get(nodeType)!;
  }

  /** Node type of the neighbors of a query type; null where there is no table to rank. */
  targetType(queryType: string): string | null {
    const target = this.description.targets[queryType];
    return target ? this.description.tables[target.table]!.node_type : null;
  }

  candidates(queryType: string): number {
    return this.rankings.get(queryType)?.count ?? 0;
  }

  /** The `k` nearest of a node, which is left out itself. */
  async answer(queryType: string, node: number, id: string, k: number): Promise<Answer> {
    const { embedding, probabilities } = await this.encoders.get(queryType)!(node, id);
    const ranking = this.rankings.get(queryType);
    const exclude = this.targetType(queryType) === queryType ? node : null;
    const neighbors = ranking ? await ranking.best(embedding, k, exclude) : null;
    return { neighbors, probabilities };
  }
}

function lookups(form: LookupForm, tables: ReadonlyMap<string, Rows>): Map<string, Encode> {
  const types = [...new Set([form.node_type, ...Object.keys(form.tables)])];
  return new Map(
    types.map((nodeType) => {
      const table = tables.get(form.tables[nodeType]!)!;
      const encode: Encode = (node) => {
        const embedding = new Float32Array(table.dim);
        table.read(node, embedding);
        return Promise.resolve({ embedding, probabilities: null });
      };
      return [nodeType, encode];
    }),
  );
}

async function padded(
  files: BundleFiles,
  description: Description,
  form: PaddedBlockForm,
  tables: ReadonlyMap<string, Rows>,
): Promise<Map<string, Encode>> {
  const { path, outputs } = description.onnx!;
  const program = await Program.open(await files.bytes(path));
  const feeds = await PaddedBlockFeeds.load(files, form, tables, program);
  const encode: Encode = async (node, id) => {
    const found = await program.run(feeds.build(node, id));
    const [embedding, probabilities] = outputs.map(({ name }) => found[name]!.data as Float32Array);
    return {
      embedding: embedding!,
      probabilities: form.classes.length > 0 ? probabilities! : null,
    };
  };
  return new Map([[form.node_type, encode]]);
}
