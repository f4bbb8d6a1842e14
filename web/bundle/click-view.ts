import type { ClickModel, Prediction } from "./click.ts";
import type { ExampleInput, FieldSpec } from "./description.ts";
import { element, table } from "./elements.ts";
import type { Text } from "./texts.ts";

const DIGITS = 4;

/** A form with the columns of a row, and its probabilities; the address of the page names the values. */
export class ClickView {
  private readonly inputs = new Map<string, HTMLInputElement | HTMLSelectElement>();
  private readonly answer = element("section", { ariaLive: "polite" });
  private asked = 0;

  constructor(
    private readonly model: ClickModel,
    private readonly example: ExampleInput[],
    private readonly text: Text,
    private readonly report: (error: unknown) => void,
  ) {}

  /** Fills `parent`, and answers the row of the page's address, or else the example. */
  show(parent: HTMLElement): void {
    const form = element(
      "form",
      {},
      element("div", { className: "columns" }, ...this.model.form.fields.map(this.column)),
      element("button", { type: "submit" }, this.text("predict")),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const values = [...this.inputs].map(([name, input]) => [name, input.value]);
      const address = `#${new URLSearchParams(values).toString()}`;
      if (address === window.location.hash) this.follow();
      else window.location.hash = address;
    });
    parent.replaceChildren(form, this.answer);
    this.follow();
  }

  /** Answers the row of the page's address, or else the example. */
  follow(): void {
    const address = window.location.hash.slice(1);
    const given = new URLSearchParams(address);
    for (const [name, input] of this.inputs) {
      input.value = address !== "" ? (given.get(name) ?? "") : this.exampleOf(name);
      // A choice has no empty value.
      if (input instanceof HTMLSelectElement && input.selectedIndex < 0) input.selectedIndex = 0;
    }
    this.answer.replaceChildren();
    this.report(null);
    const number = ++this.asked;
    const row = Object.fromEntries([...this.inputs].map(([name, input]) => [name, input.value]));
    const began = performance.now();
    this.model
      .predict(row)
      .then((found) => {
        // An answer may come after the next one was asked for.
        if (number === this.asked) this.showAnswer(found, performance.now() - began);
      })
      .catch(this.report);
  }

  private readonly column = (field: FieldSpec): HTMLElement => {
    const input =
      field.kind === "boolean"
        ? element(
            "select",
            {},
            ...["false", "true"].map((value) => element("option", { value }, value)),
          )
        : element("input", { autocomplete: "off", spellcheck: false });
    input.name = field.name;
    this.inputs.set(field.name, input);
    const hint = this.text(`kind_${field.kind}`, { dim: field.dim ?? 0 });
    return element("label", {}, field.name, input, element("small", {}, hint));
  };

  private exampleOf(name: string): string {
    const data = this.example.find((input) => input.name === name)?.data ?? [];
    return data.map(String).join(", ");
  }

  private showAnswer({ probabilities, unseen }: Prediction, ms: number): void {
    const values = probabilities.map((each) =>
      element("data", { value: String(each) }, each.toPrecision(DIGITS)),
    );
    const { labels } = this.model.form;
    this.answer.replaceChildren(
      element("h2", {}, this.text("predicted")),
      labels === undefined
        ? element("p", { className: "result" }, values[0]!)
        : table(
            [this.text("label"), this.text("probability")],
            labels.map((label, i) => [label, values[i]!]),
          ),
      ...(unseen.length > 0
        ? [element("p", {}, this.text("unseen", { columns: unseen.join(", ") }))]
        : []),
      element("p", { className: "note" }, this.text("ran", { ms: ms.toFixed(1) })),
    );
  }
}
