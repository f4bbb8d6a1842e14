import { Best, type Ranked } from "./best.ts";
import type { Description, TriplesForm } from "./description.ts";
import type { BundleFiles } from "./files.ts";
import { Ids } from "./ids.ts";
import { Program } from "./program.ts";
import { pause } from "./ranking.ts";
import { Rows } from "./rows.ts";

/** Most numbers of candidates' rows in one call of the program. */
const MOST_NUMBERS = 1 << 22;

export interface Question {
  relation: string;
  /** Index of the head; of the tail where heads are asked for. */
  node: number;
  toHeads: boolean;
  k: number;
  /** Whether known links are among the answers. */
  withKnown: boolean;
}

export interface Answer extends Ranked {
  isKnown: boolean;
}

/** Answers questions about triples, as `graphbox/deploy/knowledge_graph.py` does. */
export class KnowledgeGraph {
  private constructor(
    private readonly form: TriplesForm,
    private readonly ids: ReadonlyMap<string, Ids>,
    private readonly tables: ReadonlyMap<string, Rows>,
    private readonly links: ReadonlyMap<string, Int32Array>,
    private readonly program: Program,
    private readonly output: string,
  ) {}

  static async load(
    files: BundleFiles,
    description: Description,
    form: TriplesForm,
  ): Promise<KnowledgeGraph> {
    const ids = new Map<string, Ids>();
    for (const [nodeType, spec] of Object.entries(description.ids)) {
      ids.set(nodeType, await Ids.load(files, spec));
    }
    const tables = new Map<string, Rows>();
    for (const [name, spec] of Object.entries(description.tables)) {
      tables.set(name, await Rows.load(files, spec));
    }
    const links = new Map<string, Int32Array>();
    for (const [relation, path] of Object.entries(description.links)) {
      links.set(relation, await files.array(path, "<i4", null));
    }
    const { path, outputs } = description.onnx!;
    const program = await Program.open(await files.bytes(path));
    return new KnowledgeGraph(form, ids, tables, links, program, outputs[0]!.name);
  }

  get relations(): string[] {
    return Object.keys(this.form.ends);
  }

  /** Node types of what a question is about and of its answers. */
  typesOf(relation: string, toHeads: boolean): { asked: string; answer: string } {
    const [head, tail] = this.form.ends[relation]!;
    return toHeads ? { asked: tail, answer: head } : { asked: head, answer: tail };
  }

  idsOf(nodeType: string): Ids {
    return this.ids.get(nodeType)!;
  }

  /** How many nodes there are to answer with. */
  candidates(nodeType: string): number {
    return this.rowsOf(nodeType).count;
  }

  /** The likeliest answers, best first; ties go to the lower index. */
  async answer({ relation, node, toHeads, k, withKnown }: Question): Promise<Answer[]> {
    const { form, program } = this;
    const { asked, answer } = this.typesOf(relation, toHeads);
    const candidates = this.rowsOf(answer);
    const known = this.known(relation, node, toHeads);
    const number = this.idsOf(form.relation_type).find(relation)!;
    const ofRelation = this.tables.get(toHeads ? form.to_heads : form.to_tails)!;
    const feeds = {
      [form.rows_input]: this.row(this.rowsOf(asked), node),
      [form.relations_input]: this.row(ofRelation, number),
    };
    const step = Math.max(1, Math.floor(MOST_NUMBERS / candidates.dim));
    const buffer = new Float32Array(Math.min(step, candidates.count) * candidates.dim);
    const best = new Best(k);
    for (let start = 0; start < candidates.count; start += step) {
      if (start > 0) await pause();
      const stop = Math.min(start + step, candidates.count);
      const size = (stop - start) * candidates.dim;
      const block = candidates.block(start, stop, buffer).subarray(0, size);
      const tensor = program.tensor("float32", block, [stop - start, candidates.dim]);
      const found = await program.run({ ...feeds, [form.candidates_input]: tensor });
      (found[this.output]!.data as Float32Array).forEach((score, i) => {
        const index = start + i;
        if (Number.isFinite(score) && (withKnown || !known.has(index))) best.offer(index, score);
      });
    }
    return best.found.map((each) => ({ ...each, isKnown: known.has(each.index) }));
  }

  private rowsOf(nodeType: string): Rows {
    return this.tables.get(this.form.entities[nodeType]!)!;
  }

  private row(rows: Rows, index: number) {
    const values = new Float32Array(rows.dim);
    rows.read(index, values);
    return this.program.tensor("float32", values, [1, rows.dim]);
  }

  /** Indices of the answers that known links have. */
  private known(relation: string, node: number, toHeads: boolean): Set<number> {
    const pairs = this.links.get(relation) ?? new Int32Array();
    const [asked, answer] = toHeads ? [1, 0] : [0, 1];
    const found = new Set<number>();
    for (let pair = 0; pair < pairs.length; pair += 2) {
      if (pairs[pair + asked] === node) found.add(pairs[pair + answer]!);
    }
    return found;
  }
}
