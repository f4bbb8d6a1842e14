import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launchBrowser, newPage } from "./browser.ts";
import { PrefixProxy } from "./proxy.ts";
import { packageWithLinks } from "./workspace.ts";

let browser: Browser;
let proxy: PrefixProxy;
beforeAll(async () => {
  browser = await launchBrowser();
  proxy = await PrefixProxy.start("/user/someone/proxy/8710/");
});
afterAll(async () => {
  proxy.close();
  await browser.close();
});

describe("below a path prefix", () => {
  it.each(["/", "/runs", "/models", "/graphs", "/targets"])("%s works", async (route) => {
    const { page, problems, open } = await newPage(browser, {}, proxy.address);
    await open(route);
    await page.waitForLoadState("networkidle");
    expect(await page.getByRole("alert").count()).toBe(0);
    expect(problems).toEqual([]);
  });

  it.each(["runs", "models/", "runs/absent?tab=config"])(
    "the path %s without # leads to the page",
    async (path) => {
      const { page } = await newPage(browser, {}, proxy.address);
      await page.goto(proxy.address + path);
      await page.getByRole("heading", { level: 1 }).waitFor();
      expect(page.url()).toBe(`${proxy.address}#/${path.replace(/\/$/, "")}`);
    },
  );

  it("the search and the endpoint's example use addresses below it", async () => {
    const { model, id, answer } = await packageWithLinks();
    const { page, problems, open } = await newPage(browser, {}, proxy.address);
    await open(`/explore?model=${model}&type=package&id=${id}`);
    await page.getByRole("link", { name: String(answer.neighbors[0]!.id), exact: true }).waitFor();
    await open(`/models/${model}`);
    const example = page.getByRole("region", { name: "Request", exact: true });
    await example.waitFor();
    expect(await example.innerText()).toContain(`${proxy.address}v2/models/`);
    expect(problems).toEqual([]);
  });
});
