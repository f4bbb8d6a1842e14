import { exactInteger, stringifyExactly } from "@/api/exact-ids";
import type { Problem, UnseenFeature, UnseenInputs, UnseenRelation } from "@/api/types";

/** What is typed for a node: text, the values of a slot, or a switch. */
export type FeatureInput = string | string[] | boolean;

export interface NewNodeForm {
  features: Record<string, FeatureInput>;
  /** Original ids by relation, as text. */
  neighbors: Record<string, string[]>;
}

/** Why an input cannot be sent. */
export type InputError =
  | { key: "notNumber" }
  | { key: "notInteger" }
  | { key: "notVector"; dim: number; received: number }
  | { key: "notIds"; ids: string };

/** Texts of errors by field: `featurePlace` or `relationPlace`. */
export type ErrorsByPlace<Error> = Partial<Record<string, Error>>;

/** Where the server says an error of a feature or relation is. */
export const featurePlace = ({ name }: UnseenFeature) => `node 0, feature \`${name}\``;
export const relationPlace = ({ name }: UnseenRelation) => `node 0, neighbours \`${name}\``;

type ExampleValue = string | number | boolean | null | (string | number)[];

/** The form with nothing in it. */
export function emptyForm({ features, relations }: UnseenInputs): NewNodeForm {
  const empty = { slots: [], boolean: false };
  return {
    features: Object.fromEntries(
      features.map(({ name, kind }) => [
        name,
        kind === "slots" || kind === "boolean" ? empty[kind] : "",
      ]),
    ),
    neighbors: Object.fromEntries(relations.map(({ name }) => [name, []])),
  };
}

/** The form with the node that the server gives as an example. */
export function exampleForm(inputs: UnseenInputs): NewNodeForm {
  const { features, neighbors } = emptyForm(inputs);
  const { example } = inputs;
  for (const { name, kind } of inputs.features) {
    const value = example.features[name] as ExampleValue;
    if (Array.isArray(value))
      features[name] = kind === "slots" ? value.map(slotText) : value.join(", ");
    else features[name] = typeof value === "boolean" ? value : String(value ?? "");
  }
  for (const { name } of inputs.relations) {
    neighbors[name] = (example.neighbors[name] ?? []).map(String);
  }
  return { features, neighbors };
}

/** Returns the JSON body that encodes the node, or what is wrong with its inputs. */
export function encodeRequest(
  inputs: UnseenInputs,
  form: NewNodeForm,
): { body: string } | { errors: ErrorsByPlace<InputError> } {
  const errors: ErrorsByPlace<InputError> = {};
  const features: Record<string, unknown> = {};
  const neighbors: Record<string, string[]> = {};
  for (const feature of inputs.features) {
    const read = featureValue(feature, form.features[feature.name] ?? "");
    if ("error" in read) errors[featurePlace(feature)] = read.error;
    else features[feature.name] = read.value;
  }
  for (const relation of inputs.relations) {
    const ids = form.neighbors[relation.name] ?? [];
    const wrong = relation.integer_ids ? ids.filter((id) => exactInteger(id) === null) : [];
    if (wrong.length > 0)
      errors[relationPlace(relation)] = { key: "notIds", ids: wrong.join(", ") };
    if (ids.length > 0) {
      neighbors[relation.name] = ids.map((id) => (relation.integer_ids && exactInteger(id)) || id);
    }
  }
  if (Object.keys(errors).length > 0) return { errors };
  return { body: stringifyExactly({ nodes: [{ features, neighbors }] }) };
}

/** Returns the feature or relation that an error of the server is about, if it is about one. */
export function placeOf({ where }: Problem, inputs: UnseenInputs): string | undefined {
  const places = [...inputs.features.map(featurePlace), ...inputs.relations.map(relationPlace)];
  return places.find((place) => place === where);
}

type Read = { value: unknown } | { error: InputError };

/** Returns the JSON value of what was typed; no text is a missing value. */
function featureValue({ kind, dim }: UnseenFeature, input: FeatureInput): Read {
  if (typeof input === "boolean") return { value: input };
  if (typeof input !== "string") return { value: input.map(slotValue) };
  const text = input.trim();
  if (kind === "categorical") return { value: input === "" ? null : input };
  if (kind === "integer") {
    const integer = exactInteger(text);
    return integer === null ? { error: { key: "notInteger" } } : { value: integer };
  }
  if (kind === "number") {
    const number = text === "" ? null : Number(text);
    return number !== null && !Number.isFinite(number)
      ? { error: { key: "notNumber" } }
      : { value: number };
  }
  return vectorValue(text, dim ?? 0);
}

function vectorValue(text: string, dim: number): Read {
  if (text === "") return { value: Array.from({ length: dim }, () => null) };
  const numbers = text.split(/[\s,;]+/).map(Number);
  if (!numbers.every(Number.isFinite)) return { error: { key: "notNumber" } };
  return numbers.length === dim
    ? { value: numbers }
    : { error: { key: "notVector", dim, received: numbers.length } };
}

/** An integer is sent as one; in quotes it is a text. */
function slotValue(text: string): string {
  const quoted = /^"(.+)"$/.exec(text);
  return quoted?.[1] ?? exactInteger(text) ?? text;
}

function slotText(value: string | number): string {
  return typeof value === "string" && exactInteger(value) !== null ? `"${value}"` : String(value);
}
