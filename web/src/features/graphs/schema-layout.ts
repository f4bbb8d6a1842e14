import type { GraphSummary } from "@/api/types";

export const WIDTH = 420;
export const HEIGHT = 320;
const MARGIN_X = 70;
const MARGIN_Y = 48;
const RADIUS_MINIMUM = 22;
const RADIUS_MAXIMUM = 40;

export interface TypeCircle {
  name: string;
  nodes: number;
  x: number;
  y: number;
  radius: number;
}

/** All edge types between the same two node types, drawn as one arrow. */
export interface Arrow {
  source: TypeCircle;
  target: TypeCircle;
  relations: string[];
}

export interface SchemaLayout {
  circles: TypeCircle[];
  arrows: Arrow[];
}

/** Places the type with the most edge types in the middle and the others around it. */
export function layOutSchema(graph: GraphSummary): SchemaLayout {
  const uses = (name: string) =>
    graph.edge_types.filter(({ source, target }) => source === name || target === name).length;
  const [hub, ...others] = graph.node_types.toSorted((a, b) => uses(b.name) - uses(a.name));
  if (!hub) return { circles: [], arrows: [] };
  const most = Math.log1p(Math.max(...graph.node_types.map(({ nodes }) => nodes)));
  const radius = (nodes: number) =>
    RADIUS_MINIMUM + (RADIUS_MAXIMUM - RADIUS_MINIMUM) * (Math.log1p(nodes) / (most || 1));
  const few = others.length <= 3;
  const centre = { x: WIDTH / 2, y: few && others.length > 0 ? HEIGHT * 0.4 : HEIGHT / 2 };
  const circles = [
    { ...hub, ...centre, radius: radius(hub.nodes) },
    ...others.map((type, index) => {
      // Few types hang below the middle, whose loops then have the room above it.
      const angle = -Math.PI / 2 + (2 * Math.PI * (index + 0.5)) / others.length;
      const place = few
        ? { x: (WIDTH * (index + 0.5)) / others.length, y: HEIGHT - MARGIN_Y }
        : {
            x: centre.x - Math.cos(angle) * (WIDTH / 2 - MARGIN_X),
            y: centre.y + Math.sin(angle) * (HEIGHT / 2 - MARGIN_Y),
          };
      return { ...type, ...place, radius: radius(type.nodes) };
    }),
  ];
  return { circles, arrows: gatherArrows(graph, circles) };
}

function gatherArrows(graph: GraphSummary, circles: TypeCircle[]): Arrow[] {
  const byName = new Map(circles.map((circle) => [circle.name, circle]));
  const arrows = new Map<string, Arrow>();
  for (const { source, relation, target } of graph.edge_types) {
    const from = byName.get(source);
    const to = byName.get(target);
    if (!from || !to) continue;
    const key = JSON.stringify([source, target]);
    const arrow = arrows.get(key);
    if (arrow) arrow.relations.push(relation);
    else arrows.set(key, { source: from, target: to, relations: [relation] });
  }
  return [...arrows.values()];
}

/** The path of an arrow, from rim to rim; a loop above the circle when both ends are one type. */
export function arrowPath({ source, target }: Arrow): string {
  if (source.name === target.name) {
    const { x, y, radius } = source;
    const dx = radius * 0.62;
    const dy = radius * 0.78;
    return `M${x - dx} ${y - dy} C${x - 44} ${y - radius - 52} ${x + 44} ${y - radius - 52} ${x + dx + 2} ${y - dy - 4}`;
  }
  const [dx, dy] = [target.x - source.x, target.y - source.y];
  const length = Math.hypot(dx, dy) || 1;
  const at = (circle: TypeCircle, gap: number) => {
    const sign = circle === source ? 1 : -1;
    const step = (sign * (circle.radius + gap)) / length;
    return `${circle.x + dx * step} ${circle.y + dy * step}`;
  };
  return `M${at(source, 0)} L${at(target, 6)}`;
}

/** Where the names of an arrow's relations stand, in lines of at most three. */
export function arrowLabel({ source, target, relations }: Arrow) {
  const lines: string[] = [];
  for (let start = 0; start < relations.length; start += 3) {
    lines.push(relations.slice(start, start + 3).join(" · "));
  }
  if (source.name === target.name) {
    return { x: source.x, y: source.y - source.radius - 46 - (lines.length - 1) * 14, lines };
  }
  return { x: (source.x + target.x) / 2, y: (source.y + target.y) / 2 - 4, lines };
}
