import { describe, expect, it } from "vitest";
import { parseExploreSearch } from "./search";

describe("parseExploreSearch", () => {
  it("keeps what it understands", () => {
    expect(
      parseExploreSearch({ model: "m", version: 2, type: "package", id: "nginx", k: 50 }),
    ).toEqual({ model: "m", version: 2, type: "package", id: "nginx", k: 50 });
  });

  it("takes an id of digits, which the router reads as a number, as text", () => {
    expect(parseExploreSearch({ id: 42 })).toEqual({ id: "42" });
  });

  it("takes the choice to leave linked nodes out, and nothing else of that name", () => {
    expect(parseExploreSearch({ linked: false })).toEqual({ linked: false });
    expect(parseExploreSearch({ linked: "false" })).toEqual({ linked: false });
    expect(parseExploreSearch({ linked: true })).toEqual({});
  });

  it("leaves out what makes no sense", () => {
    expect(parseExploreSearch({ version: 0, k: -1, id: "", type: ["package"], x: 1 })).toEqual({});
    expect(parseExploreSearch({ version: "two", k: 1.5 })).toEqual({});
  });
});
