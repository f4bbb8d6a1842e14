import type { Description, ExampleInput } from "./description.ts";
import { element } from "./elements.ts";
import type { Program } from "./program.ts";
import { feedsOf, readInputs, valuesOf } from "./tensors.ts";
import type { Text } from "./texts.ts";

const MOST_SHOWN = 100;

/** The inputs of an ONNX model as JSON, and what it computes from them. */
export class TensorsView {
  private readonly answer = element("section", { ariaLive: "polite" });
  private readonly inputs = element("textarea", { name: "inputs", spellcheck: false });

  constructor(
    private readonly program: Program,
    private readonly description: Description,
    private readonly text: Text,
    private readonly report: (error: unknown) => void,
  ) {
    this.inputs.value = written(description.example);
  }

  /** Fills `parent`, and runs the example. */
  show(parent: HTMLElement): void {
    const form = element(
      "form",
      {},
      element("label", { className: "wide" }, this.text("inputs"), this.inputs),
      element("button", { type: "submit" }, this.text("run")),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.run().catch(this.report);
    });
    parent.replaceChildren(form, this.answer);
    this.run().catch(this.report);
  }

  private async run(): Promise<void> {
    this.answer.replaceChildren();
    this.report(null);
    const { inputs, outputs } = this.description.onnx!;
    const feeds = feedsOf(this.program, inputs, readInputs(this.inputs.value));
    // The first call allocates what later ones use again.
    await this.program.run(feeds);
    const began = performance.now();
    const found = await this.program.run(feeds);
    const ms = (performance.now() - began).toFixed(1);
    this.answer.replaceChildren(
      element("p", { className: "note" }, this.text("ran", { ms })),
      ...outputs.flatMap(({ name, datatype }) => {
        const output = found[name]!;
        const values = valuesOf(output);
        const more = values.length > MOST_SHOWN ? ", …" : "";
        return [
          element("h2", {}, `${name}: ${datatype} [${output.dims.join(", ")}]`),
          element("pre", {}, values.slice(0, MOST_SHOWN).join(", ") + more),
        ];
      }),
    );
  }
}

/** JSON with one line for each input. */
const written = (inputs: ExampleInput[]) =>
  `[\n${inputs.map((input) => `  ${JSON.stringify(input)}`).join(",\n")}\n]`;
