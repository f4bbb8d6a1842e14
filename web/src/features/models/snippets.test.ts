import { describe, expect, it } from "vitest";
import { exampleRequest, indented } from "./kserve";
import { curlSnippet, encodeSnippet, pythonSnippet } from "./snippets";

const metadata = {
  name: "companion",
  versions: ["1"],
  inputs: [{ name: "id", datatype: "BYTES", shape: [-1] }],
  outputs: [{ name: "embedding", datatype: "FP32", shape: [-1, 4] }],
};
const numbers = { ...metadata, inputs: [{ name: "id", datatype: "INT64", shape: [-1] }] };

describe("the example request", () => {
  it("is JSON that a shell takes as one word, quotes included", () => {
    const nodes = [{ id: "it's", type: "package" }];
    const request = exampleRequest(metadata, nodes);
    const command = curlSnippet({ metadata, version: undefined, nodes, request });
    const word = /-d '(.*)'$/s.exec(command)![1]!.replaceAll(String.raw`'\''`, "'");
    expect(JSON.parse(word)).toMatchObject({ inputs: [{ data: ["it's"], datatype: "BYTES" }] });
  });

  it("keeps integer ids beyond 2^53 exact", () => {
    const nodes = [{ id: "9007199254740993", type: "item" }];
    const request = exampleRequest(numbers, nodes);
    expect(request).toContain("[9007199254740993]");
    expect(pythonSnippet({ metadata: numbers, version: 3, nodes, request })).toContain(
      "np.array([9007199254740993], dtype=int64)",
    );
  });

  it("names the version only when another one is served", () => {
    const nodes = [{ id: "a", type: "package" }];
    const inputs = { metadata, nodes, request: exampleRequest(metadata, nodes) };
    expect(curlSnippet({ ...inputs, version: undefined })).toContain("/v2/models/companion/infer");
    expect(curlSnippet({ ...inputs, version: 2 })).toContain(
      "/v2/models/companion/versions/2/infer",
    );
    expect(pythonSnippet({ ...inputs, version: 2 })).toContain('model_version="2"');
  });
});

describe("the request of a new node", () => {
  it("is a call that a shell takes apart as it was meant", () => {
    const body = '{"nodes":[{"neighbors":{"r":[9007199254740993]}}]}';
    const command = encodeSnippet("my shops", { k: 10, linked: false }, body);
    expect(command).toContain("/api/v1/models/my%20shops/encode?k=10&linked=false' ");
    expect(command).toContain("[9007199254740993]");
    expect(encodeSnippet("shops", {}, body)).toMatch(/\/encode \\\n/);
  });
});

describe("indented", () => {
  it("keeps lists of plain values on one line and leaves other text alone", () => {
    expect(indented('{"a":[1,2],"b":["x","y"],"c":[{"d":[]}]}')).toBe(
      '{\n  "a": [1, 2],\n  "b": ["x", "y"],\n  "c": [\n    {\n      "d": []\n    }\n  ]\n}',
    );
    expect(indented("Bad Gateway")).toBe("Bad Gateway");
  });

  it("keeps integers beyond 2^53, and strings of digits as strings", () => {
    const data = '[9007199254740993, -9223372036854775808, "9007199254740993", 12]';
    expect(indented(`{"data":${data}}`)).toBe(`{\n  "data": ${data}\n}`);
  });
});
