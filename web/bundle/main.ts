import { ClickModel } from "./click.ts";
import { ClickView } from "./click-view.ts";
import type { Description } from "./description.ts";
import { element } from "./elements.ts";
import { Encoder } from "./encoder.ts";
import { BundleFiles, readDescription } from "./files.ts";
import { Problem } from "./problem.ts";
import { Program } from "./program.ts";
import { QueryView } from "./query-view.ts";
import { TensorsView } from "./tensors-view.ts";
import { type Language, preferredLanguage, type Text, text } from "./texts.ts";
import { KnowledgeGraph } from "./triples.ts";
import { TriplesView } from "./triples-view.ts";

interface View {
  show: (parent: HTMLElement) => void;
  follow?: () => void;
}

let language: Language = preferredLanguage();
const inLanguage: Text = (key, values) => text(language, key, values);

const part = (id: string) => document.getElementById(id)!;
const content = part("content");
const alert = part("problem");

/** Shows an error; null hides the last one. */
function report(error: unknown): void {
  alert.hidden = error === null;
  if (error === null) return;
  const reason = error instanceof Error ? error.message : "?";
  const problem = error instanceof Problem ? error : new Problem("failed", { reason });
  alert.textContent = inLanguage(problem.key, problem.values);
}

/** Loads a model; returns what makes its view, in the language of the moment. */
async function load(files: BundleFiles, description: Description): Promise<() => View> {
  const { form, onnx, example } = description;
  switch (form.form) {
    case "tensors": {
      const program = await Program.open(await files.bytes(onnx!.path));
      return () => new TensorsView(program, description, inLanguage, report);
    }
    case "fields": {
      const model = await ClickModel.load(files, description, form);
      return () => new ClickView(model, example, inLanguage, report);
    }
    case "triples": {
      const model = await KnowledgeGraph.load(files, description, form);
      return () => new TriplesView(model, example, inLanguage, report);
    }
    default: {
      const model = await Encoder.load(files, description, form);
      return () => new QueryView(model, inLanguage, report);
    }
  }
}

async function start(): Promise<void> {
  const base = new URL("./", window.location.href.replace(/[?#].*$/, "")).href;
  const description = await readDescription(base);
  const bar = element("progress", { value: 0 });
  const files = new BundleFiles(base, description, (bytes) => (bar.value += bytes));
  bar.max = files.totalBytes;
  const size = (files.totalBytes / 1e6).toFixed(1);
  content.replaceChildren(element("p", { role: "status" }, inLanguage("loading", { size })), bar);
  document.title = `${description.name} · graphbox`;
  part("title").textContent = description.name;

  const makeView = await load(files, description);
  let view = makeView();
  const show = () => {
    report(null);
    document.documentElement.lang = language;
    part("summary").textContent = inLanguage("summary", { version: description.version });
    part("language").textContent = inLanguage("language");
    view = makeView();
    view.show(content);
  };
  part("language").addEventListener("click", () => {
    language = language === "en" ? "zh-CN" : "en";
    show();
  });
  window.addEventListener("hashchange", () => view.follow?.());
  show();
}

start().catch((error: unknown) => {
  content.replaceChildren();
  report(error);
});
