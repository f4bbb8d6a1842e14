import { useMemo } from "react";
import { useTranslation } from "react-i18next";

const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86_400;
const ONE_DIGIT = { minimumFractionDigits: 1, maximumFractionDigits: 1 };

/** Numbers, sizes and times in the words of one language. */
export interface Format {
  integer(value: number): string;
  /** Four significant digits, scientific below a ten-thousandth. */
  number(value: number): string;
  /** Two decimals. */
  decimal(value: number): string;
  /** 63.7K, 6.4万. */
  compact(value: number): string;
  percent(value: number): string;
  /** With its sign, for changes. */
  signedPercent(value: number): string;
  signed(value: number): string;
  bytes(value: number): string;
  milliseconds(value: number): string;
  /** Four decimals for measures between 0 and 1, so that they compare at a glance. */
  quality(value: number): string;
  /** 8.4s, 3m 20s, 2h 5m. */
  seconds(value: number): string;
  dateTime(value: string | Date): string;
  /** 3 minutes ago. */
  ago(value: string | Date, now?: number): string;
}

const BYTE_UNITS = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"] as const;

/** Makes the formats of `language`. */
export function makeFormat(language: string): Format {
  const make = (options: Intl.NumberFormatOptions) => new Intl.NumberFormat(language, options);
  const integer = make({ maximumFractionDigits: 0 });
  const significant = make({ maximumSignificantDigits: 4 });
  const scientific = make({ notation: "scientific", maximumSignificantDigits: 3 });
  const decimal = make({ minimumFractionDigits: 2, maximumFractionDigits: 2 });
  const compact = make({ notation: "compact", maximumSignificantDigits: 3 });
  const percent = make({ style: "percent", ...ONE_DIGIT });
  const signedPercent = make({
    style: "percent",
    ...ONE_DIGIT,
    signDisplay: "exceptZero",
  });
  const signed = make({ maximumSignificantDigits: 3, signDisplay: "exceptZero" });
  const unit = (name: string, digits: number) =>
    make({ style: "unit", unit: name, unitDisplay: "short", maximumSignificantDigits: digits });
  const bytes = BYTE_UNITS.map((name) => unit(name, 3));
  const whole = (name: string) =>
    make({ style: "unit", unit: name, unitDisplay: "narrow", maximumFractionDigits: 0 });
  const [second, minute, hour, day] = ["second", "minute", "hour", "day"].map(whole) as [
    Intl.NumberFormat,
    Intl.NumberFormat,
    Intl.NumberFormat,
    Intl.NumberFormat,
  ];
  const shortSecond = make({
    style: "unit",
    unit: "second",
    unitDisplay: "narrow",
    maximumSignificantDigits: 2,
  });
  const three = make({ maximumSignificantDigits: 3 });
  const quality = make({ minimumFractionDigits: 4, maximumFractionDigits: 4 });
  const dateTime = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" });
  const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto" });

  const two = (value: number, size: number, large: Intl.NumberFormat, small: Intl.NumberFormat) => {
    const unitOfSmall = size === DAY_S ? HOUR_S : size === HOUR_S ? MINUTE_S : 1;
    const count = Math.floor(value / size);
    const rest = Math.floor((value - count * size) / unitOfSmall);
    return rest > 0 ? `${large.format(count)} ${small.format(rest)}` : large.format(count);
  };

  return {
    integer: (value) => integer.format(value),
    number: (value) =>
      value !== 0 && Math.abs(value) < 1e-4 ? scientific.format(value) : significant.format(value),
    decimal: (value) => decimal.format(value),
    compact: (value) => compact.format(value),
    percent: (value) => percent.format(value),
    signedPercent: (value) => signedPercent.format(value),
    signed: (value) => signed.format(value),
    bytes: (value) => {
      const exponent =
        value < 1 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), BYTE_UNITS.length - 1);
      return (bytes[exponent] ?? integer).format(value / 1000 ** exponent);
    },
    // The unit's symbol is the same in every language; engineers read it faster than the word.
    milliseconds: (value) => `${three.format(value)} ms`,
    quality: (value) => (Math.abs(value) <= 1 ? quality.format(value) : significant.format(value)),
    seconds: (value) => {
      if (value < 10) return shortSecond.format(value);
      if (value < MINUTE_S) return second.format(value);
      if (value < HOUR_S) return two(value, MINUTE_S, minute, second);
      if (value < DAY_S) return two(value, HOUR_S, hour, minute);
      return two(value, DAY_S, day, hour);
    },
    dateTime: (value) => dateTime.format(new Date(value)),
    ago: (value, now = Date.now()) => {
      const seconds = (new Date(value).getTime() - now) / 1000;
      const size = Math.abs(seconds);
      if (size < MINUTE_S) return relative.format(Math.round(seconds), "second");
      if (size < HOUR_S) return relative.format(Math.round(seconds / MINUTE_S), "minute");
      if (size < DAY_S) return relative.format(Math.round(seconds / HOUR_S), "hour");
      return relative.format(Math.round(seconds / DAY_S), "day");
    },
  };
}

/** Returns the formats of the page's language. */
export function useFormat(): Format {
  const { i18n } = useTranslation();
  return useMemo(() => makeFormat(i18n.language), [i18n.language]);
}
