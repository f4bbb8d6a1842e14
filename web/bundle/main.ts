import { element } from "./elements.ts";
import { Encoder } from "./encoder.ts";
import { BundleFiles, readDescription } from "./files.ts";
import { Problem } from "./problem.ts";
import { Program } from "./program.ts";
import { QueryView } from "./query-view.ts";
import { TensorsView } from "./tensors-view.ts";
import { type Language, preferredLanguage, text, type TextKey } from "./texts.ts";

interface View {
  show: (parent: HTMLElement) => void;
  follow?: () => void;
}

let language: Language = preferredLanguage();
const inLanguage = (key: TextKey, values?: Record<string, string | number>) =>
  text(language, key, values);

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

  const { form, onnx } = description;
  let makeView: () => View;
  if (form.form === "tensors") {
    const program = await Program.open(await files.bytes(onnx!.path));
    makeView = () => new TensorsView(program, description, inLanguage, report);
  } else {
    const model = await Encoder.load(files, description, form);
    makeView = () => new QueryView(model, inLanguage, report);
  }

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
