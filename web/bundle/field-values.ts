import type { FieldSpec } from "./description.ts";
import { digestNumber, salted, textHash } from "./keys.ts";
import { Problem } from "./problem.ts";

/** What a row has in a column, as `graphbox/fields/rows.py` computes it. */
export interface FieldValues {
  /** Keys of the column's values, and the factors of their rows; none of vectors. */
  keys: bigint[];
  weights: number[];
  /** What crosses combine; null of slots and vectors. */
  single: bigint | null;
  /** Numbers before they are standardized, NaN where missing. */
  numbers: number[];
}

const SEPARATOR = "|";
const MISSING_TEXT = Uint8Array.of(0xff);
const MISSING_KNOT = -1;
const LARGEST_FLOAT32 = 3.4028234663852886e38;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const INTEGER = /^[+-]?\d{1,19}$/;

export const utf8 = (text: string) => new TextEncoder().encode(text);
export const unsigned = (value: bigint) => BigInt.asUintN(64, value);

/** Reads a column from text; empty text is a missing value. Throws a `Problem` that names the column. */
export function readField(field: FieldSpec, text: string): FieldValues {
  const salt = digestNumber(utf8(field.items ?? field.name));
  const one = (value: bigint): FieldValues => {
    const key = salted(value, salt);
    return { keys: [key], weights: [1], single: key, numbers: [] };
  };
  if (field.items !== undefined && field.kind !== "slots" && text !== "") {
    if (field.kind === "integer") integer(field, text);
    return one(slot(field.kind === "integer" ? plain(text) : text, field, text));
  }
  switch (field.kind) {
    case "categorical":
      return one(digestNumber(text === "" ? MISSING_TEXT : utf8(text)));
    case "boolean":
      return one(text === "true" ? 1n : 0n);
    case "slots": {
      const values =
        text === "" ? [] : text.split(SEPARATOR).map((part) => slot(part, field, text));
      if (field.window !== undefined) {
        const keys = values.slice(-field.window).map((value) => salted(value, salt));
        return { keys, weights: keys.map(() => 1), single: null, numbers: [] };
      }
      const weights = values.map(() => Math.fround(1 / values.length));
      return {
        keys: values.map((value) => salted(value, salt)),
        weights,
        single: null,
        numbers: [],
      };
    }
    case "vector":
      return { keys: [], weights: [], single: null, numbers: vector(field, text) };
    default: {
      const value = field.kind === "integer" ? integer(field, text) : float32(text);
      if (value === null) throw new Problem("wrong_number", { column: field.name, value: text });
      const [low, high, share] = betweenKnots(value, field.knots);
      return {
        keys: [low, high].map((knot) => salted(unsigned(BigInt(knot)), salt)),
        weights: [Math.fround(1 - share), Math.fround(share)],
        single: unsigned(BigInt(low)),
        numbers: [Math.sign(value) * Math.log1p(Math.abs(value))],
      };
    }
  }
}

/** An integer as it is printed. */
const plain = (text: string) => BigInt(text.trim().replace("+", "")).toString();

/** A slot's value: the integer that a text spells as it would be printed, else the hash of the text. */
function slot(part: string, field: FieldSpec, text: string): bigint {
  if (part === "") throw new Problem("wrong_slots", { column: field.name, value: text });
  const number = INTEGER.test(part) ? BigInt(part) : null;
  const isPlain = number?.toString() === part && BigInt.asIntN(64, number) === number;
  return isPlain ? unsigned(number) : textHash(utf8(part));
}

function vector(field: FieldSpec, text: string): number[] {
  const parts = text.trim() === "" ? Array<string>(field.dim!).fill("") : text.split(",");
  const numbers = parts.map(float32);
  if (numbers.length !== field.dim || numbers.includes(null)) {
    throw new Problem("wrong_vector", { column: field.name, dim: field.dim!, value: text });
  }
  return numbers as number[];
}

function integer(field: FieldSpec, text: string): number {
  const value = INTEGER.test(text.trim()) ? BigInt(text.trim().replace("+", "")) : null;
  if (value === null || BigInt.asIntN(64, value) !== value) {
    throw new Problem("wrong_integer", { column: field.name, value: text });
  }
  return Number(value);
}

/** A finite number of the type float32, NaN where the text is empty, null where it is no number. */
function float32(text: string): number | null {
  if (text.trim() === "") return NaN;
  const value = NUMBER.test(text.trim()) ? Number(text) : Infinity;
  return Math.abs(value) <= LARGEST_FLOAT32 ? Math.fround(value) : null;
}

/** The two knots that a number lies between, and the share of the upper one. */
function betweenKnots(value: number, knots: number[]): [number, number, number] {
  if (Number.isNaN(value)) return [MISSING_KNOT, MISSING_KNOT, 0];
  const last = knots.length - 1;
  const held = Math.min(Math.max(value, knots[0]!), knots[last]!);
  const above = knots.findIndex((knot) => knot > held);
  const low = (above < 0 ? knots.length : above) - 1;
  const high = Math.min(low + 1, last);
  const width = knots[high]! - knots[low]!;
  return [low, high, width > 0 ? (held - knots[low]!) / width : 0];
}
