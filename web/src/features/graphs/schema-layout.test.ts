import { describe, expect, it } from "vitest";
import { graphs } from "@/testing/fixtures";
import { arrowLabel, arrowPath, HEIGHT, layOutSchema, WIDTH } from "./schema-layout";

describe("layOutSchema", () => {
  const graph = graphs[0]!;

  it("draws each type once, inside the picture, without overlap", () => {
    const { circles } = layOutSchema(graph);
    expect(circles.map(({ name }) => name).sort()).toEqual(["package", "source", "tag"]);
    for (const { x, y, radius } of circles) {
      expect(x - radius).toBeGreaterThanOrEqual(0);
      expect(x + radius).toBeLessThanOrEqual(WIDTH);
      expect(y - radius).toBeGreaterThanOrEqual(0);
      expect(y + radius).toBeLessThanOrEqual(HEIGHT);
    }
    circles.forEach((a, index) => {
      for (const b of circles.slice(index + 1)) {
        expect(Math.hypot(a.x - b.x, a.y - b.y)).toBeGreaterThan(a.radius + b.radius);
      }
    });
  });

  it("gathers edge types between the same types into one arrow", () => {
    const { arrows } = layOutSchema(graph);
    expect(arrows.map(({ relations }) => relations.length)).toEqual([5, 1, 1]);
    expect(arrowLabel(arrows[0]!).lines).toEqual([
      "depends · recommends · suggests",
      "pre_depends · enhances",
    ]);
    expect(arrowPath(arrows[0]!)).toContain("C");
    expect(arrowPath(arrows[1]!)).toContain("L");
  });

  it("lays out a graph with one type, and one with many", () => {
    const type = (index: number) => ({ name: `type${index}`, nodes: 10 ** index });
    const only = { ...graph, node_types: [type(1)], edge_types: [] };
    expect(layOutSchema(only).circles).toHaveLength(1);
    const many = {
      ...graph,
      node_types: Array.from({ length: 7 }, (_, i) => type(i)),
      edge_types: [],
    };
    expect(layOutSchema(many).circles).toHaveLength(7);
  });
});
