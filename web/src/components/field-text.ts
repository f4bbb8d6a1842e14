import type { Format } from "@/i18n/format";

/** A value of a report, with the name it has there. */
export interface Field {
  name: string;
  value: unknown;
}

const UNITS: [suffix: RegExp, write: (format: Format, value: number) => string][] = [
  [/_bytes$/, (format, value) => format.bytes(value)],
  [/_ms$/, (format, value) => format.milliseconds(value)],
  [/_(seconds|s)$/, (format, value) => format.seconds(value)],
  [/_(share|fraction|percent)$/, (format, value) => format.percent(value)],
];

/** Rates such as rows_per_s end like a duration, but are none. */
const RATE = /_per_[a-z]+$/;

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Lists the values of a nested report, each under the names that lead to it. */
export function flattenFields(fields: Record<string, unknown>, prefix = ""): Field[] {
  return Object.entries(fields).flatMap(([key, value]) => {
    const name = prefix === "" ? key : `${prefix} ${key}`;
    return isRecord(value) ? flattenFields(value, name) : [{ name, value }];
  });
}

/** Writes a field's name as words: the unit goes to the value. */
export function fieldLabel(name: string): string {
  const bare = RATE.test(name)
    ? name
    : UNITS.reduce((text, [suffix]) => text.replace(suffix, ""), name);
  return bare.replaceAll("_", " ");
}

/** Writes a field's value with the unit that its name ends in. */
export function fieldValue({ name, value }: Field, format: Format): string {
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) {
    return value.map((entry: unknown) => fieldValue({ name, value: entry }, format)).join(", ");
  }
  if (typeof value === "number") {
    const unit = RATE.test(name) ? undefined : UNITS.find(([suffix]) => suffix.test(name));
    if (unit) return unit[1](format, value);
    return Number.isInteger(value) ? format.integer(value) : format.number(value);
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}
