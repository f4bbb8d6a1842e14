import { http, HttpResponse } from "msw";
import { setupServer } from "msw/node";
import { compression } from "./compression-fixtures";
import * as fixtures from "./fixtures";

const runsById = new Map(
  [fixtures.runningRun, fixtures.finishedRun, fixtures.failedRun].map((run) => [run.id, run]),
);

const notFound = (what: string) =>
  HttpResponse.json(
    {
      code: "not_found",
      message: `no ${what}`,
      where: "path parameter",
      hint: "did you mean `debian-20261119-2`?",
      request_id: "0123456789abcdef",
    },
    { status: 404 },
  );

/** Answers like a server that has run the pipeline of the bundled graph. */
export const server = setupServer(
  http.get("*/api/v1/overview", () => HttpResponse.json(fixtures.overview)),
  http.get("*/api/v1/runs", () => HttpResponse.json(fixtures.runs)),
  http.get("*/api/v1/runs/:id", ({ params }) => {
    const run = runsById.get(String(params.id));
    return run ? HttpResponse.json(run) : notFound(`run \`${String(params.id)}\``);
  }),
  http.get("*/api/v1/runs/:id/metrics", () => HttpResponse.json(fixtures.metrics)),
  http.get("*/api/v1/models", () => HttpResponse.json(fixtures.models)),
  http.get("*/api/v1/models/debian-companion/compressions", () => HttpResponse.json([compression])),
  http.get("*/api/v1/models/:name/compressions", () => HttpResponse.json([])),
  http.get("*/api/v1/models/debian-companion/compressions/:id", ({ params }) =>
    params.id === compression.id
      ? HttpResponse.json(compression)
      : notFound(`search \`${String(params.id)}\``),
  ),
  http.get("*/api/v1/models/:name/neighbors", () => HttpResponse.json(fixtures.neighbors)),
  http.get("*/api/v1/models/:name/ids", ({ request }) => {
    const { searchParams } = new URL(request.url);
    const prefix = searchParams.get("prefix") ?? "";
    const wanted = searchParams.get("type");
    const ids = fixtures.ids.filter(
      ({ id, type }) => String(id).startsWith(prefix) && (wanted ?? type) === type,
    );
    return HttpResponse.json({ ids });
  }),
  http.get("*/api/v1/models/:name/encode", ({ params }) =>
    HttpResponse.json({ model: params.name, version: 1, unseen: null }),
  ),
  http.get("*/api/v1/graphs", () => HttpResponse.json(fixtures.graphs)),
  http.get("*/api/v1/targets", () => HttpResponse.json(fixtures.targets)),
  http.get("*/v2/models/:name/versions/:version", () => HttpResponse.json(fixtures.kserveMetadata)),
);
