import { cleanup, screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { afterEach, describe, expect, it } from "vitest";
import { chooseLanguage } from "@/i18n/setup";
import { overview } from "@/testing/fixtures";
import { renderApp } from "@/testing/render-app";
import { server } from "@/testing/server";

afterEach(async () => {
  cleanup();
  await chooseLanguage("en");
});

describe("the frame", () => {
  it("leads to every page, and names the page in the title", async () => {
    const { user } = renderApp("/");
    for (const name of ["Explore", "Runs", "Models", "Graphs", "Targets", "Home"]) {
      const navigation = await screen.findByRole("navigation", { name: "Main" });
      const link = Array.from(navigation.querySelectorAll("a")).find((a) =>
        a.textContent.startsWith(name),
      );
      await user.click(link!);
      expect(await screen.findByRole("heading", { level: 1, name })).toBeInTheDocument();
      await waitFor(() => expect(document.title).toBe(`${name} · graphbox`));
    }
  });

  it("switches to Chinese, remembers it, and says so to the browser", async () => {
    const { user } = renderApp("/models");
    await screen.findByRole("heading", { level: 1, name: "Models" });
    await user.click(screen.getByRole("radio", { name: "中文" }));
    expect(await screen.findByRole("heading", { level: 1, name: "模型" })).toBeInTheDocument();
    expect(document.documentElement.lang).toBe("zh-CN");
    expect(window.localStorage.getItem("graphbox-language")).toBe("zh-CN");
  });

  it("switches the colour scheme", async () => {
    const { user } = renderApp("/");
    await user.click(await screen.findByRole("radio", { name: "Dark" }));
    expect(document.documentElement).toHaveAttribute("data-mantine-color-scheme", "dark");
    await user.click(screen.getByRole("radio", { name: "Light" }));
    expect(document.documentElement).toHaveAttribute("data-mantine-color-scheme", "light");
  });

  it("says that an address is no page", async () => {
    renderApp("/nowhere");
    expect(await screen.findByRole("heading", { name: "No such page" })).toBeInTheDocument();
  });
});

describe("without a server", () => {
  it("says so, with the command that starts it", async () => {
    server.use(http.get("*/api/v1/*", () => HttpResponse.error()));
    renderApp("/");
    expect(await screen.findByText("Server not reachable, retrying")).toBeInTheDocument();
    expect(await screen.findByRole("alert")).toHaveTextContent("graphbox serve");
  });

  it("keeps showing a proxy's answer that is no JSON as text", async () => {
    server.use(
      http.get("*/api/v1/targets", () => HttpResponse.text("502 Bad Gateway", { status: 502 })),
    );
    renderApp("/targets");
    expect(await screen.findByRole("alert")).toHaveTextContent("502 Bad Gateway");
  });
});

describe("home", () => {
  it("shows the way in where nothing is there yet", async () => {
    server.use(
      http.get("*/api/v1/overview", () =>
        HttpResponse.json({ ...overview, graphs: 0, runs: 0, models: 0, running: 0 }),
      ),
    );
    renderApp("/");
    expect(await screen.findByText("graphbox demo")).toBeInTheDocument();
  });

  it("lists what runs first, and what is served", async () => {
    renderApp("/");
    const runs = await screen.findByRole("region", { name: "Recent runs" });
    const links = await waitFor(() => {
      const found = Array.from(runs.querySelectorAll("li a"));
      expect(found).toHaveLength(3);
      return found;
    });
    expect(links[0]).toHaveTextContent("running");
    const served = screen.getByRole("region", { name: "Served" });
    expect(served).toHaveTextContent("version 2 · 7.3 MB · p50 1.31 ms");
  });
});
