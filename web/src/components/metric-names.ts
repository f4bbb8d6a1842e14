/** Figures that say how much was evaluated, not how well. */
const COUNTS = ["nodes", "queries", "positives"] as const;
export type CountName = (typeof COUNTS)[number];

const COUNT = new RegExp(`^(${COUNTS.join("|")})(?:_(.+))?$`);

/** A part of what was evaluated, such as the targets with 5 to 50 links in training. */
export interface MetricPart {
  /** The metric, as measured on this part. */
  metric: string;
  /** How many there are to find in it. */
  count: string;
  /** The part's bounds, such as `5–50`; its name where that says no bounds. */
  label: string;
}

/** A metric measured on parts of the whole. */
export interface Breakdown {
  metric: string;
  /** What the parts are parts by, such as `in_degree`; null where their names do not say it. */
  dimension: string | null;
  parts: MetricPart[];
}

/** The figures of an evaluation, told apart by their names. */
export interface MetricNames {
  metrics: string[];
  /** Counts of the whole. */
  counts: CountName[];
  breakdowns: Breakdown[];
}

/**
 * Tells metrics, counts and metrics of a part apart. A part is known by its count: beside
 * `positives_in_degree_0`, `recall@20_in_degree_0` is the `recall@20` of the part `in_degree_0`.
 */
export function sortMetricNames(names: string[]): MetricNames {
  const counts = COUNTS.filter((name) => names.includes(name));
  const parts = new Map<string, string>();
  for (const name of names) {
    const part = COUNT.exec(name)?.[2];
    if (part !== undefined) parts.set(part, name);
  }
  const metrics: string[] = [];
  const breakdowns = new Map<string, Breakdown>();
  for (const name of names.filter((name) => !COUNT.test(name))) {
    const part = [...parts.keys()].find((part) => name.endsWith(`_${part}`));
    if (part === undefined) metrics.push(name);
    else {
      const metric = name.slice(0, -part.length - 1);
      const { dimension, label } = partLabel(part);
      const key = JSON.stringify([metric, dimension]);
      const breakdown = breakdowns.get(key) ?? { metric, dimension, parts: [] };
      breakdowns.set(key, breakdown);
      breakdown.parts.push({ metric: name, count: parts.get(part) ?? "", label });
    }
  }
  return { metrics, counts, breakdowns: [...breakdowns.values()] };
}

const BOUNDS: [form: RegExp, label: (bounds: string[]) => string][] = [
  [/^(.+)_(\d+)_to_(\d+)$/, ([least, most]) => `${least}–${most}`],
  [/^(.+)_over_(\d+)$/, ([bound]) => `> ${bound}`],
  [/^(.+)_under_(\d+)$/, ([bound]) => `< ${bound}`],
  [/^(.+)_(\d+)$/, ([value]) => `${value}`],
];

function partLabel(part: string): { dimension: string | null; label: string } {
  for (const [form, label] of BOUNDS) {
    const [, dimension, ...bounds] = form.exec(part) ?? [];
    if (dimension !== undefined) return { dimension, label: label(bounds) };
  }
  return { dimension: null, label: part.replaceAll("_", " ") };
}
