import type { RunReport } from "@/api/types";

/** A training that was compared with others on the validation part. */
export interface SettingsTrial {
  number: number;
  settings: string;
  /** The figure on the validation part; null where it was refused or did not end. */
  value: number | null;
  state: string;
  seconds: number;
}

/** The settings of a model that its run file left to the data. */
export interface ChosenSettings {
  model: string;
  settings: string;
  why: string;
  metric: string;
  /** Best first. */
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
      .sort((one, other) => (one.cost === other.cost ? 0 : one.cost - other.cost));
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
          seconds: number(trial.seconds) ?? 0,
        })),
      },
    ];
  });
}

function inWords(settings: Json): string {
  return Object.entries(settings)
    .map(([key, value]) => {
      if (Object.keys(record(value)).length > 0) return `${key} {${inWords(record(value))}}`;
      return `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`;
    })
    .join(", ");
}
