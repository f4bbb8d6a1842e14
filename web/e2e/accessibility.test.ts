import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { AxeBuilder } from "@axe-core/playwright";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launchBrowser, newPage, type WatchedPage } from "./browser.ts";
import { SCREENSHOTS } from "./environment.ts";
import { finishedRun, packageWithLinks } from "./workspace.ts";

const SCHEMES = ["light", "dark"] as const;
const LANGUAGES = [
  { locale: "en-US", language: "en", models: "Models" },
  { locale: "zh-CN", language: "zh-CN", models: "模型" },
] as const;

let browser: Browser;
let routes: Record<string, string>;

beforeAll(async () => {
  browser = await launchBrowser();
  const { run } = await finishedRun();
  const { model, id } = await packageWithLinks();
  routes = {
    home: "/",
    runs: "/runs",
    results: `/runs/${run.id}?tab=results`,
    training: `/runs/${run.id}?tab=training`,
    config: `/runs/${run.id}?tab=config`,
    "explore-start": "/explore",
    explore: `/explore?model=${model}&type=package&id=${id}`,
    models: "/models",
    model: `/models/${model}`,
    compression: `/models/${model}?tab=compression`,
    graphs: "/graphs",
    targets: "/targets",
    "not-found": "/nowhere",
  };
});
afterAll(() => browser.close());

/** Waits until no outline of a missing answer is left and what observes the layout has seen it. */
async function settled({ page }: WatchedPage): Promise<void> {
  await page.waitForLoadState("networkidle");
  await page.locator(".mantine-Skeleton-root").first().waitFor({ state: "detached" });
  await page.evaluate(async () => {
    await document.fonts.ready;
    for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
  });
}

/** Opens every page and returns its violations by name. */
async function violationsOf(watched: WatchedPage, label: string): Promise<Record<string, unknown>> {
  const violations: Record<string, unknown> = {};
  for (const [name, route] of Object.entries(routes)) {
    await watched.open(route);
    await settled(watched);
    const { violations: found } = await new AxeBuilder({ page: watched.page }).analyze();
    if (found.length > 0) {
      violations[name] = found.map(({ id, nodes }) => [id, nodes.map((node) => node.html)]);
    }
    if (SCREENSHOTS) {
      mkdirSync(SCREENSHOTS, { recursive: true });
      const path = join(SCREENSHOTS, `${name}-${label}.png`);
      await watched.page.screenshot({ path, fullPage: true });
    }
  }
  return violations;
}

describe.each(SCHEMES)("in %s", (colorScheme) => {
  describe.each(LANGUAGES)("and $language", ({ locale, language, models }) => {
    it("no page has an accessibility violation or logs an error", async () => {
      const watched = await newPage(browser, { colorScheme, locale });
      expect(await violationsOf(watched, `${colorScheme}-${language}`)).toEqual({});
      expect(watched.problems).toEqual([]);
    }, 240_000);

    it("the page follows the browser's wishes", async () => {
      const { page, open } = await newPage(browser, { colorScheme, locale });
      await open("/models");
      expect(await page.getByRole("heading", { level: 1 }).innerText()).toBe(models);
      const html = page.locator("html");
      expect(await html.getAttribute("lang")).toBe(language);
      expect(await html.getAttribute("data-mantine-color-scheme")).toBe(colorScheme);
    });
  });
});

describe("on a telephone", () => {
  it("no page has an accessibility violation or logs an error", async () => {
    const watched = await newPage(browser, { viewport: { width: 390, height: 844 } });
    expect(await violationsOf(watched, "narrow")).toEqual({});
    expect(watched.problems).toEqual([]);
  }, 240_000);

  it("tables scroll sideways, and sentences in them keep a readable width", async () => {
    const viewport = { width: 390, height: 844 };
    const watched = await newPage(browser, { viewport, locale: "zh-CN" });
    for (const [name, route] of Object.entries(routes)) {
      await watched.page.goto("about:blank"); // else the tables of the page before are still there
      await watched.open(route);
      await settled(watched);
      const faults = await watched.page.locator("table").evaluateAll((tables) =>
        tables.flatMap((table) => {
          const region = table.parentElement!;
          const isCut = table.scrollWidth > region.clientWidth && region.tabIndex !== 0;
          const cells = [...table.querySelectorAll('[data-wrap="text"]')];
          const isNarrow = cells.some(({ clientWidth }) => clientWidth < 200);
          const scrolls = getComputedStyle(region).overflowX === "auto";
          return isCut || isNarrow || !scrolls ? [table.getAttribute("aria-label")] : [];
        }),
      );
      expect([name, faults]).toEqual([name, []]);
    }
  });

  it("no page is wider than the screen, and the navigation opens", async () => {
    const { page, open } = await newPage(browser, { viewport: { width: 390, height: 844 } });
    for (const route of Object.values(routes)) {
      await open(route);
      await page.waitForLoadState("networkidle");
      expect([route, await page.evaluate(() => document.documentElement.scrollWidth)]).toEqual([
        route,
        390,
      ]);
    }
    await page.getByRole("button", { name: "Open navigation" }).click();
    await page.getByRole("link", { name: "Models" }).click();
    await page.getByRole("heading", { level: 1, name: "Models" }).waitFor();
  });
});

describe("the switches", () => {
  it("change language and colours, and both stay after a reload", async () => {
    const { page, problems, open } = await newPage(browser, { colorScheme: "light" });
    await open("/models");
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await background();
    await page.getByText("中文", { exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "模型" }).waitFor();
    await page.getByTitle("深色").click();
    await page.waitForFunction(
      () => document.documentElement.dataset.mantineColorScheme === "dark",
    );
    const dark = await background();
    expect(dark).not.toBe(light);
    await page.reload();
    await page.getByRole("heading", { level: 1, name: "模型" }).waitFor();
    expect(await background()).toBe(dark);
    expect(problems).toEqual([]);
  });

  it("leave the page usable by keyboard: the first stop skips the navigation", async () => {
    const { page, open } = await newPage(browser);
    await open("/models");
    await page.keyboard.press("Tab");
    const focused = () => page.evaluate(() => document.activeElement?.textContent);
    expect(await focused()).toBe("Skip to content");
    await page.keyboard.press("Enter");
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("MAIN");
  });
});
