import type { Description, FieldSpec, FieldsForm } from "./description.ts";
import { type FieldValues, readField, utf8 } from "./field-values.ts";
import type { BundleFiles } from "./files.ts";
import { digestNumber, salted } from "./keys.ts";
import { type Feeds, Program } from "./program.ts";
import { Rows } from "./rows.ts";

const FARTHEST_DEVIATIONS = 5;

export interface Prediction {
  /** Of each label: one, or in the order of `form.labels`. */
  probabilities: number[];
  /** Columns of whose values none was learnt; they add nothing to the probabilities. */
  unseen: string[];
}

/** A model that turns a row of columns into the probability of each label, as `graphbox/deploy/click.py` does. */
export class ClickModel {
  private constructor(
    readonly form: FieldsForm,
    private readonly tables: ReadonlyMap<string, KeyedRows>,
    private readonly program: Program,
    private readonly outputs: string[],
  ) {}

  static async load(
    files: BundleFiles,
    description: Description,
    form: FieldsForm,
  ): Promise<ClickModel> {
    const tables = new Map<string, KeyedRows>();
    for (const name of Object.keys(form.tables)) {
      const spec = description.tables[name]!;
      const keys = await files.array(description.keys[name]!, "<i8", spec.rows);
      tables.set(name, new KeyedRows(keys, await Rows.load(files, spec)));
    }
    const { path, outputs } = description.onnx!;
    const program = await Program.open(await files.bytes(path));
    const names = outputs.slice(0, form.labels?.length ?? 1).map(({ name }) => name);
    return new ClickModel(form, tables, program, names);
  }

  /** The probabilities of a row; its columns are text. Throws a `Problem` that names a wrong one. */
  async predict(row: Record<string, string>): Promise<Prediction> {
    const { form } = this;
    const values = form.fields.map((field) => readField(field, row[field.name] ?? ""));
    const keyed = form.fields.flatMap((field, i) => bagsOf(field, values[i]!));
    const crosses = this.crosses(values);
    const feeds: Feeds = {};
    if (form.numbers !== null) {
      const numbers = this.numbers(values);
      feeds[form.numbers] = this.program.tensor("float32", numbers, [1, numbers.length]);
    }
    const names = form.fields.filter(({ kind }) => kind !== "vector").map(({ name }) => name);
    const unseen = new Set(names);
    for (const [name, spec] of Object.entries(form.tables)) {
      const table = this.tables.get(name)!;
      const bags = spec.crosses ? [...keyed, ...crosses] : keyed;
      const sums = new Float32Array(bags.length * table.dim);
      const asked = new Set<string>();
      bags.forEach((bag, i) => {
        const found = table.addUp(bag, sums.subarray(i * table.dim, (i + 1) * table.dim));
        if (i >= keyed.length) return;
        const { name } = keyed[i]!;
        if (bag.weights.some((weight) => weight > 0)) asked.add(name);
        if (found) unseen.delete(name);
      });
      names.filter((name) => !asked.has(name)).forEach((name) => unseen.delete(name));
      feeds[spec.input] = this.program.tensor("float32", sums, [1, bags.length, table.dim]);
    }
    const outputs = await this.program.run(feeds);
    return {
      probabilities: this.outputs.map((name) => (outputs[name]!.data as Float32Array)[0]!),
      unseen: names.filter((name) => unseen.has(name)),
    };
  }

  private crosses(values: FieldValues[]): Bag[] {
    const single = new Map(values.map((each, i) => [this.form.fields[i]!.name, each.single]));
    return this.form.crosses.map((names) => {
      const salt = (name: string) => digestNumber(utf8(name));
      const own = names.reduce((key, name) => salted(key ^ single.get(name)!, salt(name)), 0n);
      return { keys: [salted(own, salt(names.join(" x ")))], weights: [1] };
    });
  }

  /** Numbers standardized, 0 where missing; then for each column of single numbers 1 where it is missing. */
  private numbers(values: FieldValues[]): Float32Array {
    const standardized = values.flatMap(({ numbers }, i) => {
      const { mean, deviation } = this.form.fields[i]!;
      return numbers.map((value, place) => {
        const distance = (value - mean[place]!) / deviation[place]!;
        const held = Math.min(Math.max(distance, -FARTHEST_DEVIATIONS), FARTHEST_DEVIATIONS);
        return Number.isNaN(held) ? 0 : held;
      });
    });
    const isMissing = values
      .filter((_, i) => this.form.fields[i]!.knots.length > 0)
      .map(({ numbers }) => (Number.isNaN(numbers[0]!) ? 1 : 0));
    return Float32Array.from([...standardized, ...isMissing]);
  }
}

type Bag = Pick<FieldValues, "keys" | "weights">;

/** The bags of a column: none of vectors, of a history one for each event of its window, else one. */
function bagsOf(field: FieldSpec, { keys, weights }: FieldValues): (Bag & { name: string })[] {
  const { name, window } = field;
  if (field.kind === "vector") return [];
  if (window === undefined) return [{ name, keys, weights }];
  return Array.from({ length: window }, (_, place) => ({
    name,
    keys: keys.slice(place, place + 1),
    weights: weights.slice(place, place + 1),
  }));
}

/** Rows of values, found by their keys. */
class KeyedRows {
  constructor(
    private readonly keys: BigInt64Array,
    private readonly rows: Rows,
  ) {}

  get dim(): number {
    return this.rows.dim;
  }

  /** Adds the weighted rows of a bag to `sum`; returns whether a value that counts has a row. */
  addUp({ keys, weights }: Bag, sum: Float32Array): boolean {
    const row = new Float32Array(this.dim);
    let found = false;
    keys.forEach((key, i) => {
      const place = this.find(BigInt.asIntN(64, key));
      if (place === null) return;
      found ||= weights[i]! > 0;
      this.rows.read(place, row);
      row.forEach((value, number) => (sum[number]! += weights[i]! * value));
    });
    return found;
  }

  private find(key: bigint): number | null {
    let low = 0;
    let high = this.keys.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.keys[middle]! < key) low = middle + 1;
      else high = middle;
    }
    return this.keys[low] === key ? low : null;
  }
}
