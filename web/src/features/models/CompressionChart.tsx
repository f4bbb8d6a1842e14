import { Text } from "@mantine/core";
import { type CSSProperties, useCallback, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Compression } from "@/api/types";
import { Figure } from "@/components/Figure";
import { Panel } from "@/components/Panel";
import type { Mark } from "@/components/scatter";
import { ScatterChart } from "@/components/ScatterChart";
import { useFormat } from "@/i18n/format";
import { type Placed, placedModels, type Role, type Speed } from "./compression";
import classes from "./CompressionChart.module.css";

const SHAPES: Record<Role, Mark["shape"]> = {
  chosen: "disc",
  point: "ring",
  original: "diamond",
  tried: "small",
  beyond: "small",
};
const SPEED_COLORS: Record<Speed, string> = {
  faster: "--chart-3",
  same: "--chart-1",
  slower: "--chart-2",
};
const PALE = "--chart-pale";
const PALER = "--chart-paler";

function colorOf({ role, speed }: Placed): string {
  if (role === "original") return "--mantine-color-dimmed";
  if (role === "tried") return PALE;
  if (role === "beyond") return PALER;
  return speed === null ? PALE : SPEED_COLORS[speed];
}

/** Size against quality of all models that were measured, the points coloured by latency. */
export function CompressionChart({ report }: { report: Compression }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const [hovered, setHovered] = useState<number | null>(null);
  const { metric, bounds } = report;
  const placed = useMemo(() => placedModels(report), [report]);
  const marks = useMemo<Mark[]>(
    () =>
      placed.map((each) => {
        const isPoint = each.role === "point" || each.role === "chosen";
        return {
          x: each.trial.size_bytes,
          y: each.value,
          error: isPoint ? each.trial.standard_error : null,
          color: colorOf(each),
          shape: SHAPES[each.role],
          ...(each.version !== null &&
            (isPoint || each.role === "original") && {
              label: t("compression.chart.label", { version: each.version }),
            }),
        };
      }),
    [placed, t],
  );
  const limits = useMemo(
    () => ({
      x:
        bounds.size_bytes === null
          ? null
          : {
              value: bounds.size_bytes,
              label: t("compression.chart.limit", { value: format.bytes(bounds.size_bytes) }),
            },
      y:
        bounds.metric === null
          ? null
          : {
              value: bounds.metric,
              label: t("compression.chart.limit", { value: format.quality(bounds.metric) }),
            },
    }),
    [bounds, format, t],
  );
  const formatX = useCallback((value: number) => format.bytes(value), [format]);
  const title = t("compression.chart.title", { metric });
  const description = t("compression.chart.summary", {
    metric,
    count: placed.length,
    number: format.integer(placed.length),
  });
  return (
    <Panel title={title} note={t("compression.chart.note")} flush>
      <Readout metric={metric} shown={hovered === null ? undefined : placed[hovered]} />
      <ScatterChart
        description={description}
        marks={marks}
        limits={limits}
        formatX={formatX}
        onMark={setHovered}
      />
      <Legend hasLimits={limits.x !== null || limits.y !== null} />
    </Panel>
  );
}

/** The figures of the model under the cursor. */
function Readout({ metric, shown }: { metric: string; shown: Placed | undefined }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  if (shown === undefined) {
    return (
      <div className={classes.readout}>
        <Text size="xs" c="dimmed">
          {t("compression.chart.hover")}
        </Text>
      </div>
    );
  }
  const { trial, version, value } = shown;
  const { latency } = trial;
  const figures = [
    version !== null && t("versionTitle", { version }),
    format.bytes(trial.size_bytes),
    `${metric} ${format.quality(value)}`,
    latency && `${t("bench.p50")} ${format.milliseconds(latency.p50_ms)}`,
    latency && `${t("bench.p99")} ${format.milliseconds(latency.p99_ms)}`,
    trial.exceeds.length > 0 &&
      t("compression.chart.exceeds", { limits: trial.exceeds.join(", ") }),
  ];
  return (
    <div className={classes.readout}>
      <Figure value={trial.name}>{figures.filter(Boolean).join(" · ")}</Figure>
    </div>
  );
}

function Legend({ hasLimits }: { hasLimits: boolean }) {
  const { t } = useTranslation("models");
  const entries: [text: string, shape: Mark["shape"], color: string][] = [
    [t("compression.chart.chosen"), "disc", "--mantine-color-text"],
    [t("compression.chart.point"), "ring", "--mantine-color-text"],
    [t("compression.original"), "diamond", "--mantine-color-dimmed"],
    [t("compression.chart.tried"), "small", PALE],
    [t("compression.chart.beyond"), "small", PALER],
    [t("compression.chart.faster"), "disc", SPEED_COLORS.faster],
    [t("compression.chart.same"), "disc", SPEED_COLORS.same],
    [t("compression.chart.slower"), "disc", SPEED_COLORS.slower],
  ];
  return (
    <ul className={classes.legend}>
      {entries.map(([text, shape, color]) => (
        <li key={text}>
          <span
            className={classes.mark}
            data-shape={shape}
            style={{ "--color": `var(${color})` } as CSSProperties}
          />
          {text}
        </li>
      ))}
      {hasLimits && (
        <li>
          <span className={classes.limit} />
          {t("compression.chart.limitLine")}
        </li>
      )}
    </ul>
  );
}
