import { describe, expect, it } from "vitest";
import { parseExploreSearch } from "@/features/explore/search";
import { parseSearch, stringifySearch } from "./search-params";

describe("the address", () => {
  it.each(["9007199254740993", "-9223372036854775808", "1e5", "-0", "007", "42", "true", "a b"])(
    "keeps the id %s as it was typed",
    (id) => {
      const typed = parseExploreSearch(parseSearch(`?id=${encodeURIComponent(id)}&k=50`));
      expect(typed).toEqual({ id, k: 50 });
      expect(parseExploreSearch(parseSearch(stringifySearch({ ...typed })))).toEqual(typed);
    },
  );
});
