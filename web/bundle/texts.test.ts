import { expect, it } from "vitest";
import { LANGUAGES, text, type TextKey } from "./texts.ts";

const placeholders = (value: string) => (value.match(/\{\w+\}/g) ?? []).sort();

it.each(Object.keys(LANGUAGES.en) as TextKey[])("%s has the same values in Chinese", (key) => {
  expect(placeholders(LANGUAGES["zh-CN"][key])).toEqual(placeholders(LANGUAGES.en[key]));
});

it("fills in values as they are", () => {
  expect(text("en", "unknown_id", { type: "item", id: "$& {type}" })).toBe(
    "There is no item with the id “$& {type}”.",
  );
});
