import { expect, it } from "vitest";
import type { FieldSpec } from "./description.ts";
import { readField } from "./field-values.ts";
import { Problem } from "./problem.ts";

const field = (kind: FieldSpec["kind"], more: Partial<FieldSpec> = {}): FieldSpec => ({
  name: "column",
  kind,
  dim: null,
  mean: [],
  deviation: [],
  knots: [0.5, 1.5, 4],
  ...more,
});

it.each([
  ["number", "0x10", "wrong_number"],
  ["number", "1e39", "wrong_number"],
  ["number", "NaN", "wrong_number"],
  ["integer", "", "wrong_integer"],
  ["integer", "1.5", "wrong_integer"],
  ["integer", "9223372036854775808", "wrong_integer"],
  ["slots", "a||b", "wrong_slots"],
  ["vector", "1, 2, 3", "wrong_vector"],
  ["vector", "1, x", "wrong_vector"],
] as const)("%s does not read %j", (kind, text, key) => {
  const dim = kind === "vector" ? 2 : null;
  let problem: unknown;
  try {
    readField(field(kind, { dim }), text);
  } catch (error) {
    problem = error;
  }
  expect(problem).toBeInstanceOf(Problem);
  expect((problem as Problem).key).toBe(key);
});

it("weighs the two knots that a number lies between", () => {
  expect(readField(field("number"), "1.25").weights).toEqual([0.25, 0.75]);
  expect(readField(field("number"), "9").weights).toEqual([1, 0]);
  expect(readField(field("number"), "-9").weights).toEqual([1, 0]);
  expect(readField(field("number"), "").single).toBe(2n ** 64n - 1n);
});

it("takes texts that are printed integers for integers, others for texts", () => {
  const [integer] = readField(field("slots"), "7").keys;
  const [text] = readField(field("slots"), "007").keys;
  expect(readField(field("slots"), "7|007").keys).toEqual([integer, text]);
  expect(readField(field("slots"), "7|7|7").weights).toEqual(Array(3).fill(Math.fround(1 / 3)));
  expect(integer).not.toBe(text);
});

it("reads missing numbers of a vector", () => {
  const spec = field("vector", { dim: 3 });
  expect(readField(spec, "1,, -2").numbers).toEqual([1, NaN, -2]);
  expect(readField(spec, "").numbers).toEqual([NaN, NaN, NaN]);
});

it("gives an item the same key in a history, as a category and as an integer", () => {
  const shared = { items: "item", knots: [] };
  const [first, second] = readField(field("slots", { ...shared, window: 2 }), "9|-7|a").keys;
  expect(readField(field("integer", shared), "-7").keys).toEqual([first]);
  expect(readField(field("categorical", shared), "-7").keys).toEqual([first]);
  expect(readField(field("categorical", shared), "a").keys).toEqual([second]);
  expect(readField(field("slots"), "-7").keys).not.toEqual([first]);
});
