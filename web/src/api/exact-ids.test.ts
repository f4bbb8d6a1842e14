import { describe, expect, it } from "vitest";
import { exactInteger, quoteLongIntegers, stringifyExactly } from "./exact-ids";

describe("quoteLongIntegers", () => {
  it.each([
    ['{"id":9007199254740993}', '{"id":"9007199254740993"}'],
    ["[-9223372036854775808, 12]", '["-9223372036854775808", 12]'],
  ])("keeps %s exact", (json, expected) => {
    expect(quoteLongIntegers(json)).toBe(expected);
  });

  it.each([
    '{"score":0.12345678901234567}',
    '{"score":-1234567890123456.5e-3}',
    '{"id":"x: 12345678901234567, y"}',
    '{"id":"quote \\" 12345678901234567"}',
    '{"id":123456789012345}',
  ])("leaves %s alone", (json) => {
    expect(quoteLongIntegers(json)).toBe(json);
  });
});

describe("stringifyExactly", () => {
  it("writes integers of any length as numbers, and texts of digits as texts", () => {
    const long = exactInteger("-9223372036854775808");
    expect(stringifyExactly({ ids: [long, exactInteger("007"), "12", 0.5] })).toBe(
      '{"ids":[-9223372036854775808,7,"12",0.5]}',
    );
  });

  it.each(["", "1.5", "1e3", "12 ", "u7"])("takes %o for no integer", (text) => {
    expect(exactInteger(text)).toBeNull();
  });
});
