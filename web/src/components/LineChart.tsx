import "uplot/dist/uPlot.min.css";

import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { useFormat } from "@/i18n/format";
import { cssColor } from "./css-color";
import classes from "./LineChart.module.css";

/** Below this many points each one is drawn as a dot, so that a lone point is seen too. */
const DOTS_BELOW = 40;

export interface Line {
  values: (number | null)[];
  /** Index into the palette, 1 to 4. */
  color: number;
  /** Drawn thin and pale: the measured values behind a smoothed line. */
  faint?: boolean;
}

interface LineChartProps {
  /** What a screen reader says instead of the picture. */
  description: string;
  x: number[];
  lines: Line[];
  height?: number;
  /** Charts with the same key move their cursors together. */
  syncKey?: string;
  /** Told the index of the point under the cursor, null when it leaves. */
  onCursor?: (index: number | null) => void;
}

function makeSeries({ color, faint }: Line, points: number): uPlot.Series {
  const stroke = cssColor(`--chart-${color}`);
  return {
    stroke: faint ? `${stroke}59` : stroke,
    width: faint ? 1 : 1.75,
    points: { show: !faint && points < DOTS_BELOW, size: 5, fill: stroke },
  };
}

/** A line chart on a canvas. Whoever uses it puts a table with the same values beside it. */
export function LineChart(props: LineChartProps) {
  const { description, x, lines, height = 190, syncKey, onCursor } = props;
  const scheme = useComputedColorScheme("light", { getInitialValueInEffect: false });
  const format = useFormat();
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot>(null);
  const cursorListener = useRef(onCursor);
  const data = useRef<uPlot.AlignedData>([x, ...lines.map((line) => line.values)]);
  const dots = x.length < DOTS_BELOW;
  const structure = lines.map((line) => `${line.color}${line.faint ? "f" : ""}`).join();

  useEffect(() => {
    cursorListener.current = onCursor;
  }, [onCursor]);

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const axis: uPlot.Axis = {
      stroke: cssColor("--mantine-color-dimmed"),
      grid: { stroke: cssColor("--chart-grid"), width: 1 },
      ticks: { show: false },
      font: '11px "Inter Variable", system-ui, sans-serif',
    };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height,
        legend: { show: false },
        scales: { x: { time: false } },
        padding: [10, 22, 0, 0],
        cursor: {
          points: { size: 7 },
          ...(syncKey !== undefined && { sync: { key: syncKey, setSeries: false } }),
        },
        axes: [
          {
            ...axis,
            size: 26,
            gap: 4,
            space: 70,
            values: (_, ticks) => ticks.map((tick) => format.compact(tick)),
          },
          {
            ...axis,
            size: 52,
            gap: 6,
            space: 34,
            values: (_, ticks) => ticks.map((tick) => format.compact(tick)),
          },
        ],
        series: [{}, ...lines.map((line) => makeSeries(line, x.length))],
        hooks: { setCursor: [(self) => cursorListener.current?.(self.cursor.idx ?? null)] },
      },
      data.current,
      element,
    );
    chart.current = made;
    const observer = new ResizeObserver(() => {
      made.setSize({ width: element.clientWidth, height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      chart.current = null;
    };
    // Drawn anew when its looks change; new values come through setData below.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [scheme, format, height, syncKey, structure, dots]);

  useEffect(() => {
    data.current = [x, ...lines.map((line) => line.values)];
    chart.current?.setData(data.current);
  }, [x, lines]);

  return <div ref={host} role="img" aria-label={description} className={classes.chart} />;
}
