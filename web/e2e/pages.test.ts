import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { makeFormat } from "../src/i18n/format.ts";
import { launchBrowser, newPage } from "./browser.ts";
import { finishedRun, listGraphs, listModels, newestCompression } from "./workspace.ts";

const format = makeFormat("en");
let browser: Browser;
beforeAll(async () => {
  browser = await launchBrowser();
});
afterAll(() => browser.close());

describe("a run's page", () => {
  it("shows its stages, and its results beside the baselines", async () => {
    const { run } = await finishedRun();
    const { page, problems, open } = await newPage(browser);
    await open(`/runs/${run.id}?tab=results`);
    await page.getByRole("table", { name: "Stages" }).waitFor();
    expect(await page.getByRole("table", { name: "Stages" }).locator("tbody tr").count()).toBe(
      run.stages.length,
    );
    for (const [task, models] of Object.entries(run.report.metrics)) {
      const table = page.getByRole("table", { name: `Task ${task}`, exact: true });
      for (const [model, metrics] of Object.entries(models)) {
        const row = await table.getByRole("row", { name: new RegExp(`^${model} `) }).innerText();
        const [value] = Object.values(metrics);
        expect(row).toContain(format.quality(value!));
      }
      for (const baseline of Object.keys(run.report.baselines[task] ?? {})) {
        await table.getByRole("row", { name: new RegExp(`^${baseline} `) }).waitFor();
      }
      expect(await table.getByText(/^(nodes|queries|positives)/).count()).toBe(0);
    }
    const tooWide = await page
      .getByRole("table")
      .evaluateAll((tables) =>
        tables
          .filter(({ parentElement }) => parentElement!.scrollWidth > parentElement!.clientWidth)
          .map((table) => table.getAttribute("aria-label")),
      );
    expect(tooWide).toEqual([]);
    expect(problems).toEqual([]);
  });

  it("draws a chart for each measured quantity, and has a table for each", async () => {
    const { run, metrics } = await finishedRun();
    const { page, problems, open } = await newPage(browser);
    await open(`/runs/${run.id}?tab=training`);
    const charts = page.getByRole("img", { name: /^Line chart of/ });
    await charts.first().waitFor();
    expect(await charts.count()).toBe(metrics.series.length);
    const painted = await charts
      .first()
      .locator("canvas")
      .evaluate((element) => {
        const canvas = element as HTMLCanvasElement;
        const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
        return data.some((value) => value > 0);
      });
    expect(painted).toBe(true);
    const [{ model, key, values }] = metrics.series as [(typeof metrics.series)[number]];
    await page.getByRole("button", { name: `Show as table: ${model} ${key}`, exact: true }).click();
    const table = page.getByRole("table", { name: `${model} ${key}`, exact: true });
    expect(await table.innerText()).toContain(format.number(values.at(-1)!));
    expect(problems).toEqual([]);
  });
});

describe("the models", () => {
  it("show sizes and latencies of every version", async () => {
    const models = await listModels();
    expect(models).not.toEqual([]);
    const { page, problems, open } = await newPage(browser);
    await open("/models");
    for (const { name, versions } of models) {
      const table = page.getByRole("table", { name: `Versions of ${name}`, exact: true });
      await table.waitFor();
      const text = await table.innerText();
      for (const { size_bytes, bench } of versions) {
        expect(text).toContain(format.bytes(size_bytes));
        const request = bench.find(({ operation }) => operation === "neighbors");
        if (request) expect(text).toContain(format.milliseconds(request.p50_ms));
      }
    }
    expect(problems).toEqual([]);
  });

  it("answer a request that is sent from their page", async () => {
    const served = (await listModels()).find(({ versions }) => versions.some((v) => v.served));
    const { page, problems, open } = await newPage(browser);
    await open(`/models/${served!.name}`);
    await page.getByRole("button", { name: "Send" }).click();
    const response = page.getByRole("region", { name: "Response" });
    await response.waitFor();
    expect(await response.innerText()).toContain('"outputs"');
    await page.getByText(/^200 in /).waitFor();
    expect(problems).toEqual([]);
  });
});

describe("the compression of a model", () => {
  it("shows the points of the newest search, or how to start one", async () => {
    for (const { name } of await listModels()) {
      const report = await newestCompression(name);
      const { page, problems, open } = await newPage(browser);
      await open(`/models/${name}`);
      await page.getByRole("tab", { name: "Compression" }).click();
      if (report === undefined) {
        await page.getByText(new RegExp(`^graphbox compress ${name} `)).waitFor();
      } else {
        const chart = page.getByRole("img", { name: /^Scatter chart of/ });
        await chart.waitFor();
        for (const point of report.points) {
          const table = page.getByRole("table", { name: "Models that none beats" });
          const row = table
            .getByRole("row")
            .filter({ hasText: `${point.version} ` })
            .filter({
              hasText: point.name,
            });
          expect(await row.first().innerText()).toContain(format.bytes(point.size_bytes));
        }
        const painted = await chart.locator("canvas").evaluate((element) => {
          const canvas = element as HTMLCanvasElement;
          const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
          return data.some((value) => value > 0);
        });
        expect(painted).toBe(true);
      }
      expect(problems).toEqual([]);
    }
  });
});

describe("the other pages", () => {
  it("show what is in the graph, by type", async () => {
    const [graph] = await listGraphs();
    const { page, problems, open } = await newPage(browser);
    await open("/graphs");
    for (const { name, nodes } of graph!.node_types) {
      const row = page.getByRole("row", { name: new RegExp(`^${name} ${format.integer(nodes)} `) });
      await row.waitFor();
    }
    expect(problems).toEqual([]);
  });

  it("show the targets with their availability", async () => {
    const { page, problems, open } = await newPage(browser);
    await open("/targets");
    await page.getByText("available", { exact: true }).first().waitFor();
    expect(problems).toEqual([]);
  });

  it("show what is there on the home page", async () => {
    const { run } = await finishedRun();
    const { page, problems, open } = await newPage(browser);
    await open("/");
    await page.getByRole("region", { name: "Recent runs" }).getByText(run.name).first().waitFor();
    expect(problems).toEqual([]);
  });
});
