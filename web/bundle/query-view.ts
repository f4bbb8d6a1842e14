import { element, number, table } from "./elements.ts";
import type { Encoder } from "./encoder.ts";
import { Problem } from "./problem.ts";
import type { Text } from "./texts.ts";

const NEAREST = 10;

const addressOf = (nodeType: string, id: string) =>
  `#${new URLSearchParams({ type: nodeType, id }).toString()}`;

/** A form for an id, and its nearest; the address of the page names what is asked for. */
export class QueryView {
  private readonly id = element("input", { name: "id", required: true, autocomplete: "off" });
  private readonly nodeType = element("select", { name: "type" });
  private asked = 0;
  private readonly answer = element("section", { ariaLive: "polite" });

  constructor(
    private readonly model: Encoder,
    private readonly text: Text,
    private readonly report: (error: unknown) => void,
  ) {}

  /** Fills `parent`, and answers what the page's address asks for. */
  show(parent: HTMLElement): void {
    const { text, id, nodeType } = this;
    const types = this.model.queryTypes;
    nodeType.append(...types.map((name) => element("option", { value: name }, name)));
    const known = element("datalist", { id: "known-ids" });
    id.setAttribute("list", known.id);
    id.addEventListener("input", () => {
      const found = this.model.idsOf(nodeType.value).withPrefix(id.value);
      known.replaceChildren(...found.map((value) => element("option", { value })));
    });
    const form = element(
      "form",
      {},
      ...(types.length > 1 ? [element("label", {}, text("node_type"), nodeType)] : []),
      element("label", { className: "wide" }, text("id"), id),
      element("button", { type: "submit" }, text("find")),
      known,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const address = addressOf(nodeType.value, id.value);
      if (address === window.location.hash) this.follow();
      else window.location.hash = address;
    });
    parent.replaceChildren(form, this.answer);
    this.follow();
  }

  /** Answers what the page's address asks for, if anything. */
  follow(): void {
    const asked = new URLSearchParams(window.location.hash.slice(1));
    const id = asked.get("id");
    if (id === null) return;
    const wanted = asked.get("type");
    const types = this.model.queryTypes;
    const nodeType = wanted !== null && types.includes(wanted) ? wanted : types[0]!;
    this.nodeType.value = nodeType;
    this.id.value = id;
    this.answer.replaceChildren();
    this.report(null);
    const number = ++this.asked;
    this.find(nodeType, id)
      .then((parts) => {
        // An answer may come after the next one was asked for.
        if (number === this.asked) this.answer.replaceChildren(...parts);
      })
      .catch(this.report);
  }

  /** The headings and tables that answer a query. */
  private async find(nodeType: string, id: string): Promise<Node[]> {
    const { model, text } = this;
    const node = model.idsOf(nodeType).find(id);
    if (node === null) throw new Problem("unknown_id", { type: nodeType, id });
    const began = performance.now();
    const { neighbors, probabilities } = await model.answer(nodeType, node, id, NEAREST);
    const ms = (performance.now() - began).toFixed(1);
    const parts: Node[] = [];
    if (neighbors) {
      const type = model.targetType(nodeType)!;
      const rows = neighbors.map(({ index, score }, rank) => [
        String(rank + 1),
        this.nameOf(type, index),
        number(score),
      ]);
      parts.push(
        element("h2", {}, text("nearest", { id, type })),
        table([text("rank"), text("id"), text("score")], rows),
        element(
          "p",
          { className: "note" },
          text("computed", { ms, rows: model.candidates(nodeType) }),
        ),
      );
    }
    if (probabilities) {
      const rows = model.classes
        .map((name, i) => [name, probabilities[i]!] as const)
        .sort((a, b) => b[1] - a[1])
        .slice(0, NEAREST)
        .map(([name, probability]) => [name, number(probability)]);
      parts.push(
        element("h2", {}, text("classes", { id })),
        table([text("class"), text("probability")], rows),
      );
    }
    return parts;
  }

  private nameOf(nodeType: string, index: number): Node | string {
    const id = this.model.idsOf(nodeType).text(index);
    if (!this.model.queryTypes.includes(nodeType)) return id;
    return element("a", { href: addressOf(nodeType, id) }, id);
  }
}
