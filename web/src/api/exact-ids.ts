/** Strings as a whole, so that digits inside them are passed over, or a whole number of 16+ digits. */
const STRING_OR_LONG_INTEGER = /"(?:[^"\\]|\\.)*"|(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g;
const HAS_LONG_INTEGER = /\d{16}/;

/**
 * Quotes whole numbers of 16 digits and more in JSON text. Ids may be any 64-bit integers, but
 * JavaScript numbers are exact only to 2^53: such ids are kept as text.
 */
export function quoteLongIntegers(json: string): string {
  if (!HAS_LONG_INTEGER.test(json)) return json;
  return json.replace(STRING_OR_LONG_INTEGER, (token) =>
    token.startsWith('"') ? token : `"${token}"`,
  );
}

/** `JSON.stringify(JSON.parse(json), null, 2)` that keeps long integers. */
export function indentExactly(json: string): string {
  // Marked by a character that ids do not have, to tell them from strings of digits.
  const marked = json.replace(STRING_OR_LONG_INTEGER, (token) =>
    token.startsWith('"') ? token : `"\\u0000${token}"`,
  );
  return unmarked(JSON.stringify(JSON.parse(marked), null, 2));
}

const INTEGER = /^-?\d+$/;

/** The integer that a text spells, for `stringifyExactly`; null for any other text. */
export function exactInteger(text: string): string | null {
  return INTEGER.test(text) ? `\u0000${BigInt(text)}` : null;
}

/** `JSON.stringify` in which integers of `exactInteger` are numbers, however long they are. */
export function stringifyExactly(value: unknown): string {
  return unmarked(JSON.stringify(value));
}

function unmarked(json: string): string {
  return json.replace(/"\\u0000(-?\d+)"/g, "$1");
}

/** `fetch` whose JSON answers keep long ids exact. */
export async function fetchExactly(request: Request): Promise<Response> {
  const response = await globalThis.fetch(request);
  if (!response.headers.get("content-type")?.includes("json")) return response;
  const { status, statusText, headers } = response;
  return new Response(quoteLongIntegers(await response.text()), { status, statusText, headers });
}
