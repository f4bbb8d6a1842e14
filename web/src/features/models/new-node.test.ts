import { describe, expect, it } from "vitest";
import { unseenInputs } from "@/testing/fixtures";
import { emptyForm, encodeRequest, exampleForm, type NewNodeForm, placeOf } from "./new-node";

const withFeature = (name: string, value: NewNodeForm["features"][string]): NewNodeForm => {
  const form = exampleForm(unseenInputs);
  return { ...form, features: { ...form.features, [name]: value } };
};

const problem = (where: string) => ({
  code: "invalid_request",
  message: "",
  where,
  hint: null,
  choices: [],
  request_id: "",
});

describe("the request of a new node", () => {
  it("has the server's example unchanged, long ids included", () => {
    expect(encodeRequest(unseenInputs, exampleForm(unseenInputs))).toEqual({
      body:
        '{"nodes":[{"features":{"category":"books","rating":4.1,"staff":12,"open":true,' +
        '"profile":[0,0.5,1],"words":["new","7",7]},"neighbors":{' +
        '"product__sold_by__shop":[11,9007199254740993],"package__near__shop":["s1"]}}]}',
    });
  });

  it("has what was left empty as missing; an integer cannot be missing", () => {
    const form = emptyForm(unseenInputs);
    expect(encodeRequest(unseenInputs, form)).toEqual({
      errors: { "node 0, feature `staff`": { key: "notInteger" } },
    });
    const filled = { ...form, features: { ...form.features, staff: " 3 " } };
    expect(encodeRequest(unseenInputs, filled)).toEqual({
      body:
        '{"nodes":[{"features":{"category":null,"rating":null,"staff":3,"open":false,' +
        '"profile":[null,null,null],"words":[]},"neighbors":{}}]}',
    });
  });

  it.each([
    ["rating", "high", { key: "notNumber" }],
    ["rating", "1e999", { key: "notNumber" }],
    ["staff", "1.5", { key: "notInteger" }],
    ["profile", "1, 2", { key: "notVector", dim: 3, received: 2 }],
    ["profile", "1, 2, x", { key: "notNumber" }],
  ])("is not made of %s %o", (name, text, error) => {
    expect(encodeRequest(unseenInputs, withFeature(name, text))).toEqual({
      errors: { [`node 0, feature \`${name}\``]: error },
    });
  });

  it("is not made of ids of another kind", () => {
    const form = {
      ...exampleForm(unseenInputs),
      neighbors: { product__sold_by__shop: ["11", "p"] },
    };
    expect(encodeRequest(unseenInputs, form)).toEqual({
      errors: { "node 0, neighbours `product__sold_by__shop`": { key: "notIds", ids: "p" } },
    });
  });
});

describe("the place of an error", () => {
  it.each(["node 0, feature `staff`", "node 0, neighbours `package__near__shop`"])(
    "is %s",
    (where) => {
      expect(placeOf(problem(where), unseenInputs)).toBe(where);
    },
  );

  it("is none of another field's", () => {
    expect(placeOf(problem("node 0, feature `town`"), unseenInputs)).toBeUndefined();
  });
});
