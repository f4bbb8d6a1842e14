import type { LayerSpec, PaddedBlockForm, RelationGroup } from "./description.ts";
import type { BundleFiles } from "./files.ts";
import { Problem } from "./problem.ts";
import type { Feeds, Program } from "./program.ts";
import type { Rows } from "./rows.ts";

const ABSENT = -1;
/** Most bytes of the neighbors' vectors that a group of relations gathers. */
const MOST_BYTES = 512 * 2 ** 20;

/** Neighbors of every node in each relation of a group, one list after the other. */
interface NeighborLists {
  counts: Uint16Array;
  start: Uint32Array;
  neighbors: Int32Array;
  weights: Float32Array | null;
}

interface Block {
  input: string;
  nodes: Int32Array;
  shape: number[];
}

type Frontier = Map<string, Int32Array>;

/** Builds the feeds of an encoder in padded-block form, as `graphbox/deploy/feeds.py` does. */
export class PaddedBlockFeeds {
  private constructor(
    private readonly form: PaddedBlockForm,
    private readonly tables: ReadonlyMap<string, Rows>,
    private readonly lists: ReadonlyMap<string, NeighborLists>,
    private readonly program: Program,
  ) {}

  static async load(
    files: BundleFiles,
    form: PaddedBlockForm,
    tables: ReadonlyMap<string, Rows>,
    program: Program,
  ): Promise<PaddedBlockFeeds> {
    const lists = new Map<string, NeighborLists>();
    for (const group of form.layers.flatMap((layer) => layer.groups)) {
      if (lists.has(group.neighbors)) continue;
      lists.set(group.neighbors, await loadLists(files, group));
    }
    return new PaddedBlockFeeds(form, tables, lists, program);
  }

  /** The feeds of one node. */
  build(node: number, id: string): Feeds {
    const feeds: Feeds = {};
    let frontier: Frontier = new Map([[this.form.node_type, Int32Array.of(node)]]);
    for (const layer of [...this.form.layers].reverse()) {
      frontier = this.descend(layer, frontier, feeds, id);
    }
    for (const [nodeType, spec] of Object.entries(this.form.rows)) {
      const nodes = frontier.get(nodeType) ?? Int32Array.of(ABSENT);
      const tables = spec.tables.map((name) => this.tables.get(name)!);
      const dim = tables.reduce((sum, table) => sum + table.dim, 0);
      const values = new Float32Array(nodes.length * dim);
      nodes.subarray(1).forEach((row, number) => {
        let at = (number + 1) * dim;
        for (const table of tables) {
          table.read(row, values, at);
          at += table.dim;
        }
      });
      feeds[spec.input] = this.program.tensor("float32", values, [nodes.length, dim]);
    }
    return feeds;
  }

  /** Writes the feeds of one layer; returns the frontier below it, whose first node is absent. */
  private descend(layer: LayerSpec, frontier: Frontier, feeds: Feeds, id: string): Frontier {
    const reads = new Map<string, Block[]>();
    const add = (nodeType: string, block: Block) =>
      reads.set(nodeType, [...(reads.get(nodeType) ?? []), block]);
    for (const group of layer.groups) {
      const targets = frontier.get(target(group)) ?? new Int32Array();
      add(group.edge_types[0]![0], this.neighborBlock(group, targets, feeds, id));
    }
    for (const [nodeType, input] of Object.entries(layer.self_inputs)) {
      const nodes = frontier.get(nodeType) ?? new Int32Array();
      add(nodeType, { input, nodes, shape: [nodes.length] });
    }
    const below: Frontier = new Map();
    for (const [nodeType, blocks] of reads) {
      const all = new Set<number>([ABSENT]);
      for (const { nodes } of blocks) nodes.forEach((node) => all.add(node));
      const unique = Int32Array.from(all).sort();
      const position = new Map(Array.from(unique, (node, number) => [node, BigInt(number)]));
      for (const { input, nodes, shape } of blocks) {
        const positions = BigInt64Array.from(nodes, (node) => position.get(node)!);
        feeds[input] = this.program.tensor("int64", positions, shape);
      }
      below.set(nodeType, unique);
    }
    return below;
  }

  /** The neighbors of `targets`, [n, R, F], -1 where absent; writes their weights. */
  private neighborBlock(
    group: RelationGroup,
    targets: Int32Array,
    feeds: Feeds,
    id: string,
  ): Block {
    const lists = this.lists.get(group.neighbors)!;
    const relations = group.edge_types.length;
    const count = (node: number, relation: number) =>
      node === ABSENT ? 0 : lists.counts[node * relations + relation]!;
    let longest = 1;
    for (const node of targets) {
      for (let r = 0; r < relations; r++) longest = Math.max(longest, count(node, r));
    }
    const shape = [targets.length, relations, longest];
    const size = targets.length * relations * longest;
    if (4 * size * this.widest > MOST_BYTES) throw new Problem("too_many_neighbors", { id });
    const nodes = new Int32Array(size).fill(ABSENT);
    const weights = new Float32Array(size);
    let at = 0;
    for (const node of targets) {
      for (let r = 0; r < relations; r++, at += longest) {
        const length = count(node, r);
        if (length === 0) continue;
        const start = lists.start[node * relations + r]!;
        nodes.set(lists.neighbors.subarray(start, start + length), at);
        if (lists.weights) weights.set(lists.weights.subarray(start, start + length), at);
        else weights.fill(weight(group, length), at, at + length);
      }
    }
    if (group.weights_input !== null) {
      feeds[group.weights_input] = this.program.tensor("float32", weights, shape);
    }
    return { input: group.neighbors_input, nodes, shape };
  }

  private get widest(): number {
    return Math.max(...Array.from(this.tables.values(), (table) => table.dim));
  }
}

const target = (group: RelationGroup) => group.edge_types[0]![2];

const weight = (group: RelationGroup, length: number) =>
  1 / (group.normalization === "square_root" ? Math.sqrt(length) : length);

async function loadLists(files: BundleFiles, group: RelationGroup): Promise<NeighborLists> {
  const counts = await files.array(group.counts, "<u2", null);
  const start = new Uint32Array(counts.length + 1);
  counts.forEach((count, list) => (start[list + 1] = start[list]! + count));
  const total = start.at(-1)!;
  const neighbors = await files.array(group.neighbors, "<i4", total);
  const weights = group.weights === null ? null : await files.array(group.weights, "<f4", total);
  return { counts, start, neighbors, weights };
}
