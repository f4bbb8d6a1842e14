import { serverAddress } from "@/api/client";
import { indentExactly } from "@/api/exact-ids";
import { signInAgain } from "@/api/sign-in";
import type { NodeId } from "@/api/types";

/** A tensor as the KServe v2 protocol describes it. */
export interface TensorDescription {
  name: string;
  datatype: string;
  shape: number[];
}

export interface ModelMetadata {
  name: string;
  versions: string[];
  inputs: TensorDescription[];
  outputs: TensorDescription[];
}

/** What a call came to: the status, the milliseconds it took, and the body as text. */
export interface CallResult {
  status: number;
  milliseconds: number;
  body: string;
}

/** Asks for the inputs and outputs of a model version. */
export async function fetchMetadata(name: string, version: number): Promise<ModelMetadata> {
  const response = await fetch(serverAddress(modelPath(name, version)));
  signInAgain(response);
  const body: unknown = await response.json();
  if (!response.ok) throw new Error(errorText(body));
  return body as ModelMetadata;
}

/** Path of a model in the KServe v2 protocol; without a version it is the served one. */
export function modelPath(name: string, version?: number): string {
  const path = `v2/models/${encodeURIComponent(name)}`;
  return version === undefined ? path : `${path}/versions/${version}`;
}

function errorText(body: unknown): string {
  const error = (body as { error?: unknown } | null)?.error;
  return typeof error === "string" ? error : JSON.stringify(body);
}

/** The body of a request that asks for the vectors of a few nodes. */
export function exampleRequest(metadata: ModelMetadata, nodes: NodeId[]): string {
  const [input] = metadata.inputs;
  const request = {
    inputs: [
      {
        name: input?.name ?? "id",
        shape: [nodes.length],
        datatype: input?.datatype ?? "BYTES",
        data: nodes.map(({ id }) => id),
      },
    ],
    ...(nodes[0] && { parameters: { node_type: nodes[0].type } }),
  };
  const text = indented(JSON.stringify(request));
  // Ids too long for a JavaScript number are kept as text; here they are numbers again.
  return input?.datatype === "BYTES" ? text : text.replace(/"(-?\d{16,})"/g, "$1");
}

/** Sends a request to a model version. */
export async function infer(name: string, version: number, body: string): Promise<CallResult> {
  const start = performance.now();
  const response = await fetch(serverAddress(`${modelPath(name, version)}/infer`), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  });
  signInAgain(response);
  const text = await response.text();
  return {
    status: response.status,
    milliseconds: performance.now() - start,
    body: indented(text),
  };
}

/** Indents JSON, but keeps lists of numbers and words on one line. */
export function indented(text: string): string {
  try {
    return indentExactly(text).replace(
      /\[\s+([^[\]{}]+?)\s+\]/g,
      (_, items: string) => `[${items.replace(/,\s+/g, ", ")}]`,
    );
  } catch {
    return text;
  }
}
