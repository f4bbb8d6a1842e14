import "uplot/dist/uPlot.min.css";

import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { useFormat } from "@/i18n/format";
import { cssColor } from "./css-color";
import classes from "./LineChart.module.css";
import {
  type Box,
  type Limit,
  linearRange,
  logRange,
  logTicks,
  type Mark,
  nearestMark,
  placeLabel,
} from "./scatter";

const FONT = '"Inter Variable", system-ui, sans-serif';
const RADIUS = { small: 3.5, ring: 6, disc: 6.5, diamond: 6.5 };
const REACH = 24;
const LABEL_HEIGHT = 12;
/** The enumeration of uPlot has no value at run time. */
const LOGARITHMIC = 3 as unknown as uPlot.Scale.Distr;

interface ScatterChartProps {
  /** What a screen reader says instead of the picture. */
  description: string;
  /** Drawn in this order; `x` is positive. */
  marks: Mark[];
  limits: { x: Limit | null; y: Limit | null };
  formatX: (value: number) => string;
  height?: number;
  /** Told the index of the mark under the cursor, null when it leaves. */
  onMark?: (index: number | null) => void;
}

/**
 * Marks over a logarithmic axis, with their errors and limits, on a canvas. Whoever uses it puts a table
 * with the same values beside it.
 */
export function ScatterChart(props: ScatterChartProps) {
  const { description, marks, limits, formatX, height = 320, onMark } = props;
  const scheme = useComputedColorScheme("light", { getInitialValueInEffect: false });
  const format = useFormat();
  const host = useRef<HTMLDivElement>(null);
  const listener = useRef(onMark);

  useEffect(() => {
    listener.current = onMark;
  }, [onMark]);

  useEffect(() => {
    const element = host.current;
    if (!element || marks.length === 0) return;
    const { x, y } = limits;
    const rangeX = logRange([...marks.map((mark) => mark.x), ...(x ? [x.value] : [])]);
    const rangeY = linearRange([
      ...marks.flatMap((mark) => [mark.y - (mark.error ?? 0), mark.y + (mark.error ?? 0)]),
      ...(y ? [y.value] : []),
    ]);
    const axis: uPlot.Axis = {
      stroke: cssColor("--mantine-color-dimmed"),
      grid: { stroke: cssColor("--chart-grid"), width: 1 },
      ticks: { show: false },
      font: `11px ${FONT}`,
    };
    const sorted = [...marks].sort((a, b) => a.x - b.x);
    const made = new uPlot(
      {
        width: element.clientWidth,
        height,
        legend: { show: false },
        scales: {
          x: { time: false, distr: LOGARITHMIC, range: () => rangeX },
          y: { range: () => rangeY },
        },
        padding: [10, 22, 0, 0],
        cursor: { x: false, y: false, points: { show: false }, drag: { x: false, y: false } },
        axes: [
          {
            ...axis,
            size: 26,
            gap: 4,
            splits: () => logTicks(rangeX),
            filter: (_, ticks) => ticks,
            values: (_, ticks) => ticks.map(formatX),
          },
          {
            ...axis,
            size: 52,
            gap: 6,
            space: 34,
            values: (_, ticks) => ticks.map((tick) => format.compact(tick)),
          },
        ],
        series: [{}, { points: { show: false }, paths: () => null }],
        hooks: {
          draw: [
            (chart) => {
              drawLimits(chart, limits);
              drawMarks(chart, marks);
            },
          ],
          setCursor: [
            (chart) => {
              const { left = -1, top = -1 } = chart.cursor;
              const places = marks.map((mark) => ({
                x: chart.valToPos(mark.x, "x"),
                y: chart.valToPos(mark.y, "y"),
              }));
              listener.current?.(left < 0 ? null : nearestMark(places, { x: left, y: top }, REACH));
            },
          ],
        },
      },
      [sorted.map((mark) => mark.x), sorted.map((mark) => mark.y)],
      element,
    );
    const observer = new ResizeObserver(() => {
      made.setSize({ width: element.clientWidth, height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [scheme, format, height, marks, limits, formatX]);

  return <div ref={host} role="img" aria-label={description} className={classes.chart} />;
}

/** Draws dashed lines, each with its label along it. */
function drawLimits(chart: uPlot, limits: ScatterChartProps["limits"]) {
  const { ctx, bbox } = chart;
  const ratio = uPlot.pxRatio;
  const color = cssColor("--mantine-color-error");
  ctx.save();
  ctx.strokeStyle = color;
  ctx.fillStyle = color;
  ctx.lineWidth = ratio;
  ctx.setLineDash([5 * ratio, 4 * ratio]);
  ctx.font = `${11 * ratio}px ${FONT}`;
  const line = (fromX: number, fromY: number, toX: number, toY: number) => {
    ctx.beginPath();
    ctx.moveTo(fromX, fromY);
    ctx.lineTo(toX, toY);
    ctx.stroke();
  };
  if (limits.x) {
    const x = chart.valToPos(limits.x.value, "x", true);
    line(x, bbox.top, x, bbox.top + bbox.height);
    const { width } = ctx.measureText(limits.x.label);
    const fits = x + 6 * ratio + width <= bbox.left + bbox.width;
    ctx.textAlign = fits ? "left" : "right";
    ctx.textBaseline = "bottom";
    ctx.fillText(limits.x.label, x + (fits ? 6 : -6) * ratio, bbox.top + bbox.height - 6 * ratio);
  }
  if (limits.y) {
    const y = chart.valToPos(limits.y.value, "y", true);
    line(bbox.left, y, bbox.left + bbox.width, y);
    ctx.textAlign = "right";
    ctx.textBaseline = "top";
    ctx.fillText(limits.y.label, bbox.left + bbox.width, y + 4 * ratio);
  }
  ctx.restore();
}

/** Draws the marks with their errors, then the labels that cover none of them. */
function drawMarks(chart: uPlot, marks: Mark[]) {
  const { ctx, bbox } = chart;
  const ratio = uPlot.pxRatio;
  const surface = cssColor("--surface");
  ctx.save();
  const drawn = marks.map((mark) => {
    const [x, y] = [chart.valToPos(mark.x, "x", true), chart.valToPos(mark.y, "y", true)];
    const color = cssColor(mark.color);
    const radius = RADIUS[mark.shape] * ratio;
    ctx.strokeStyle = color;
    ctx.lineWidth = 1.5 * ratio;
    if (mark.error !== null) {
      const [low, high] = [mark.y - mark.error, mark.y + mark.error].map((value) =>
        chart.valToPos(value, "y", true),
      ) as [number, number];
      ctx.globalAlpha = 0.55;
      ctx.beginPath();
      ctx.moveTo(x, low);
      ctx.lineTo(x, high);
      ctx.stroke();
      ctx.globalAlpha = 1;
    }
    ctx.lineWidth = 2 * ratio;
    ctx.beginPath();
    if (mark.shape === "diamond") {
      ctx.moveTo(x, y - radius);
      ctx.lineTo(x + radius, y);
      ctx.lineTo(x, y + radius);
      ctx.lineTo(x - radius, y);
      ctx.closePath();
    } else {
      ctx.arc(x, y, radius, 0, 2 * Math.PI);
    }
    ctx.fillStyle = mark.shape === "ring" || mark.shape === "diamond" ? surface : color;
    ctx.fill();
    if (mark.shape !== "small") ctx.stroke();
    return { mark, x, y, radius };
  });
  const taken: Box[] = drawn.map(({ x, y, radius }) => ({
    left: x - radius,
    top: y - radius,
    width: 2 * radius,
    height: 2 * radius,
  }));
  ctx.font = `550 ${11 * ratio}px ${FONT}`;
  ctx.fillStyle = cssColor("--mantine-color-text");
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  for (const { mark, x, y, radius } of drawn) {
    if (mark.label === undefined) continue;
    const size = { width: ctx.measureText(mark.label).width, height: LABEL_HEIGHT * ratio };
    const box = placeLabel({ x, y }, size, radius + 3 * ratio, taken, bbox);
    if (box === null) continue;
    taken.push(box);
    ctx.fillText(mark.label, box.left, box.top);
  }
  ctx.restore();
}
