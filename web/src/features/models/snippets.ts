import { serverAddress } from "@/api/client";
import type { NodeId } from "@/api/types";
import { indented, type ModelMetadata, modelPath } from "./kserve";

interface SnippetInputs {
  metadata: ModelMetadata;
  /** Left out when the served version answers. */
  version: number | undefined;
  nodes: NodeId[];
  request: string;
}

/** A call of the endpoint from a shell. */
export function curlSnippet({ metadata, version, request }: SnippetInputs): string {
  return curlPost(serverAddress(`${modelPath(metadata.name, version)}/infer`), request);
}

/** The request that encodes a new node, from a shell. */
export function encodeSnippet(name: string, query: Record<string, unknown>, body: string): string {
  const address = serverAddress(`api/v1/models/${encodeURIComponent(name)}/encode`);
  const parameters = new URLSearchParams(
    Object.entries(query).map(([key, value]) => [key, String(value)]),
  ).toString();
  return curlPost(parameters === "" ? address : `'${address}?${parameters}'`, indented(body));
}

function curlPost(address: string, body: string): string {
  const quoted = body.replaceAll("'", String.raw`'\''`);
  return `curl -s ${address} \\\n  -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
}

/** The same call with NVIDIA's client library, which speaks the protocol. */
export function pythonSnippet({ metadata, version, nodes }: SnippetInputs): string {
  const server = serverAddress("");
  const { host, pathname, protocol } = new URL(server);
  const [input] = metadata.inputs;
  const [output] = metadata.outputs;
  const datatype = input?.datatype ?? "BYTES";
  const dtype = datatype === "BYTES" ? "object" : "int64";
  const ids =
    datatype === "BYTES"
      ? JSON.stringify(nodes.map(({ id }) => id))
      : `[${nodes.map(({ id }) => id).join(", ")}]`;
  const options = [
    ...(version === undefined ? [] : [`model_version="${version}"`]),
    ...(nodes[0] ? [`parameters={"node_type": ${JSON.stringify(nodes[0].type)}}`] : []),
  ];
  return [
    "import numpy as np",
    "import tritonclient.http as http  # pip install tritonclient[http]",
    "",
    `client = http.InferenceServerClient("${host}${pathname.replace(/\/$/, "")}"${protocol === "https:" ? ", ssl=True" : ""})`,
    `ids = np.array(${ids}, dtype=${dtype})`,
    `tensor = http.InferInput("${input?.name ?? "id"}", [len(ids)], "${datatype}")`,
    "tensor.set_data_from_numpy(ids)",
    `answer = client.infer(${[`"${metadata.name}"`, "[tensor]", ...options].join(", ")})`,
    `vectors = answer.as_numpy("${output?.name ?? "embedding"}")`,
  ].join("\n");
}
