import { useId } from "react";
import { useTranslation } from "react-i18next";
import type { GraphSummary } from "@/api/types";
import { useFormat } from "@/i18n/format";
import { arrowLabel, arrowPath, HEIGHT, layOutSchema, WIDTH } from "./schema-layout";
import classes from "./SchemaPicture.module.css";

const LINE_HEIGHT = 14;

/** The node types as circles and the edge types as arrows between them. */
export function SchemaPicture({ graph }: { graph: GraphSummary }) {
  const { t } = useTranslation("graphs");
  const format = useFormat();
  const head = useId();
  const { circles, arrows } = layOutSchema(graph);
  return (
    <svg
      role="img"
      aria-label={t("schema", { name: graph.name })}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      className={classes.picture}
    >
      <defs>
        <marker
          id={head}
          viewBox="0 0 8 8"
          refX="6"
          refY="4"
          markerWidth="7"
          markerHeight="7"
          orient="auto"
        >
          <path d="M0 0.5 7.5 4 0 7.5z" className={classes.head} />
        </marker>
      </defs>
      {arrows.map((arrow) => (
        <path
          key={`${arrow.source.name} ${arrow.target.name}`}
          d={arrowPath(arrow)}
          className={classes.arrow}
          markerEnd={`url(#${head})`}
        />
      ))}
      {circles.map(({ name, nodes, x, y, radius }) => (
        <g key={name}>
          <circle cx={x} cy={y} r={radius} className={classes.circle} />
          <text x={x} y={y - 1} className={classes.name}>
            {name}
          </text>
          <text x={x} y={y + 13} className={classes.count}>
            {format.compact(nodes)}
          </text>
        </g>
      ))}
      {arrows.map((arrow) => {
        const { x, y, lines } = arrowLabel(arrow);
        return (
          <text key={`${arrow.source.name} ${arrow.target.name}`} className={classes.relation}>
            {lines.map((line, index) => (
              <tspan key={line} x={x} y={y + index * LINE_HEIGHT}>
                {line}
              </tspan>
            ))}
          </text>
        );
      })}
    </svg>
  );
}
