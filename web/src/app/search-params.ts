import { parseSearchWith, stringifySearchWith } from "@tanstack/react-router";

/**
 * Parses a value of the address as JSON, but only numbers that are written as JavaScript writes them:
 * others are ids, such as 9007199254740993 or 1e5, and stay text.
 *
 * Raises: SyntaxError: the value is text; the router keeps it as it is.
 */
function parseValue(text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (typeof value === "number" && String(value) !== text) throw new SyntaxError(text);
  return value;
}

export const parseSearch = parseSearchWith(parseValue);
export const stringifySearch = stringifySearchWith(JSON.stringify, parseValue);
