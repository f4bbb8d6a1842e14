import type { paths } from "../src/api/schema";
import createClient from "openapi-fetch";
import { SERVER } from "./environment.ts";

const client = createClient<paths>({ baseUrl: SERVER });

function present<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new Error(`expected ${what} in the workspace, found none`);
  return value;
}

export async function listModels() {
  return present((await client.GET("/api/v1/models")).data, "models");
}

export async function newestCompression(name: string) {
  const { data } = await client.GET("/api/v1/models/{name}/compressions", {
    params: { path: { name } },
  });
  const [newest] = present(data, `searches of ${name}`);
  if (newest === undefined) return undefined;
  const report = await client.GET("/api/v1/models/{name}/compressions/{search_id}", {
    params: { path: { name, search_id: newest.id } },
  });
  return present(report.data, `the search ${newest.id}`);
}

export async function listGraphs() {
  return present((await client.GET("/api/v1/graphs")).data, "graphs");
}

export async function neighborsOf(name: string, id: string, type: string, k: number) {
  const { data } = await client.GET("/api/v1/models/{name}/neighbors", {
    params: { path: { name }, query: { id, type, k } },
  });
  return present(data, `neighbours of ${id}`);
}

/** A finished run that has results and was measured while it trained. */
export async function finishedRun() {
  const { data: runs = [] } = await client.GET("/api/v1/runs");
  for (const { id, state } of runs) {
    if (state !== "finished") continue;
    const { data: run } = await client.GET("/api/v1/runs/{run_id}", {
      params: { path: { run_id: id } },
    });
    const { data: metrics } = await client.GET("/api/v1/runs/{run_id}/metrics", {
      params: { path: { run_id: id } },
    });
    if (run && metrics && metrics.series.length > 0 && Object.keys(run.report.metrics).length > 0) {
      return { run, metrics };
    }
  }
  throw new Error("expected a finished run with results and training points, found none");
}

const WELL_KNOWN = ["nginx", "apache2", "git", "python3", "vim", "postgresql", "emacs", "curl"];
const WANTED = 20;

/** A package among whose neighbours some are linked to it in the graph and some are not. */
export async function packageWithLinks() {
  for (const { name, versions } of await listModels()) {
    if (!versions.some(({ served }) => served)) continue;
    for (const id of WELL_KNOWN) {
      const { data } = await client.GET("/api/v1/models/{name}/neighbors", {
        params: { path: { name }, query: { id, type: "package", k: WANTED } },
      });
      const linked = data?.neighbors.filter(({ links }) => links.length > 0).length ?? 0;
      if (data && linked > 0 && linked < WANTED) return { model: name, id, answer: data };
    }
  }
  throw new Error(`expected one of ${WELL_KNOWN} to have linked and unlinked neighbours`);
}

/** An id that several node types of a served model have. */
export async function ambiguousId() {
  for (const { name, versions } of await listModels()) {
    if (!versions.some(({ served }) => served)) continue;
    for (const id of WELL_KNOWN) {
      const { error } = await client.GET("/api/v1/models/{name}/neighbors", {
        params: { path: { name }, query: { id } },
      });
      if (error?.code === "ambiguous_id") return { model: name, id, types: error.choices };
    }
  }
  throw new Error(`expected one of ${WELL_KNOWN} to be an id of several node types`);
}
