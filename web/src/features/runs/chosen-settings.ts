import type { RunReport } from "@/api/types";

/** A training that was compared with others on the validation part. */
export interface SettingsTrial {
  number: number;
  settings: string;
  /** The figure on the validation part; null where it was refused or the time ended it. */
  value: number | null;
  state: string;
  /** Of a trial that was pruned: after which epoch, and the median that its figure was compared with. */
  pruned: { epoch: number; median: number } | null;
  seconds: number;
}

/** The settings of a model that its run file left to the data. */
export interface ChosenSettings {
  model: string;
  settings: string;
  why: string;
  metric: string;
  /** Best first, then those that were pruned, then those without a figure. */
  trials: SettingsTrial[];
}

type Json = Record<string, unknown>;

// The report of a training is an open document in the interface: what is read here is checked here.
const record = (value: unknown): Json =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
const text = (value: unknown) => (typeof value === "string" ? value : "");
const number = (value: unknown) => (typeof value === "number" ? value : null);

/** Lists the models whose settings the data chose. */
export function chosenSettings(training: RunReport["training"]): ChosenSettings[] {
  return Object.entries(training).flatMap(([model, outcome]) => {
    const { settings, why, metric, trials } = record(record(outcome).chosen);
    const tried = Array.isArray(trials) ? trials.map(record) : [];
    if (Object.keys(record(settings)).length === 0 && tried.length === 0) return [];
    const best = tried
      .map((trial, index) => ({ trial, index, cost: number(trial.cost) ?? Infinity }))
      .sort((one, other) => group(one.trial) - group(other.trial) || order(one.cost, other.cost));
    return [
      {
        model,
        settings: inWords(record(settings)),
        why: text(why),
        metric: text(metric),
        trials: best.map(({ trial, index }) => ({
          number: index + 1,
          settings: inWords(record(trial.settings)),
          value: number(trial.value),
          state: text(trial.state),
          pruned: prunedAt(trial),
          seconds: number(trial.seconds) ?? 0,
        })),
      },
    ];
  });
}

const order = (one: number, other: number) => (one === other ? 0 : one - other);

function group(trial: Json): number {
  if (number(trial.value) === null) return 2;
  return trial.state === "pruned" ? 1 : 0;
}

function prunedAt(trial: Json): SettingsTrial["pruned"] {
  const [epoch, median] = [number(trial.epochs), number(trial.median)];
  if (trial.state !== "pruned" || epoch === null || median === null) return null;
  return { epoch, median };
}

function inWords(settings: Json): string {
  return Object.entries(settings)
    .map(([key, value]) => {
      if (Object.keys(record(value)).length > 0) return `${key} {${inWords(record(value))}}`;
      return `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`;
    })
    .join(", ");
}
