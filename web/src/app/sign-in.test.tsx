import { screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { renderApp } from "@/testing/render-app";
import { server } from "@/testing/server";
import { infer } from "@/features/models/kserve";
import { browserWindow, restoreAddress } from "@/api/sign-in";

const refusal = HttpResponse.json(
  {
    code: "token_required",
    message: "expected the token of this server, received a wrong one",
    where: null,
    hint: null,
    choices: [],
    request_id: "0123456789abcdef",
  },
  { status: 401 },
);

describe("a cookie that is no longer accepted", () => {
  const reload = vi.fn();

  beforeEach(() => {
    window.sessionStorage.clear();
    vi.spyOn(browserWindow, "reload").mockImplementation(reload);
    reload.mockClear();
    server.use(
      http.all("*/api/v1/*", () => refusal.clone()),
      http.all("*/v2/*", () => HttpResponse.json({ error: "token" }, { status: 401 })),
    );
  });

  afterEach(() => {
    window.history.replaceState(null, "", "/");
    window.sessionStorage.clear();
  });

  it("leads to the form once, and back to the address after it", async () => {
    window.history.replaceState(null, "", "#/runs/debian-1?tab=config");
    renderApp("/runs");
    await waitFor(() => expect(reload).toHaveBeenCalled());
    expect((await screen.findAllByRole("alert"))[0]).toHaveTextContent("expected the token");
    expect(reload).toHaveBeenCalledOnce();
    window.history.replaceState(null, "", "/");
    restoreAddress();
    expect(window.location.hash).toBe("#/runs/debian-1?tab=config");
    window.history.replaceState(null, "", "/");
    restoreAddress();
    expect(window.location.hash).toBe("");
  });

  it("does so from a request to a model, too", async () => {
    await infer("debian-companion", 1, "{}");
    expect(reload).toHaveBeenCalledOnce();
  });

  it("is not the refusal of one request", async () => {
    server.use(http.all("*/v2/*", () => HttpResponse.json({ error: "no token" }, { status: 403 })));
    await infer("debian-companion", 1, "{}");
    expect(reload).not.toHaveBeenCalled();
  });
});
