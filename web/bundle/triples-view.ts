import type { ExampleInput } from "./description.ts";
import { element, number, table } from "./elements.ts";
import { Problem } from "./problem.ts";
import type { Text } from "./texts.ts";
import type { KnowledgeGraph } from "./triples.ts";

const ANSWERS = 10;
const MOST_ANSWERS = 1000;

interface Asked {
  relation: string;
  toHeads: boolean;
  id: string;
  k: number;
  withKnown: boolean;
}

/** A form for an entity and a relation, and the likeliest answers; the address of the page names them. */
export class TriplesView {
  private readonly relation = element("select", { name: "relation" });
  private readonly end = element("select", { name: "asked" });
  private readonly id = element("input", { name: "id", required: true, autocomplete: "off" });
  private readonly idName = element("span");
  private readonly k = element("input", { name: "k", type: "number", required: true });
  private readonly withKnown = element("input", { name: "known", type: "checkbox" });
  private readonly answer = element("section", { ariaLive: "polite" });
  private asked = 0;

  constructor(
    private readonly model: KnowledgeGraph,
    private readonly example: ExampleInput[],
    private readonly text: Text,
    private readonly report: (error: unknown) => void,
  ) {}

  /** Fills `parent`, and answers what the page's address asks for. */
  show(parent: HTMLElement): void {
    const { text, relation, end, id, k } = this;
    relation.append(
      ...this.model.relations.map((name) => element("option", { value: name }, name)),
    );
    Object.assign(k, { min: "1", max: String(MOST_ANSWERS), value: String(ANSWERS) });
    const known = element("datalist", { id: "known-ids" });
    id.setAttribute("list", known.id);
    id.addEventListener("input", () => {
      const { asked } = this.model.typesOf(relation.value, end.value === "head");
      const found = this.model.idsOf(asked).withPrefix(id.value);
      known.replaceChildren(...found.map((value) => element("option", { value })));
    });
    for (const choice of [relation, end]) choice.addEventListener("change", () => this.nameTypes());
    const form = element(
      "form",
      {},
      element(
        "div",
        { className: "columns" },
        element("label", {}, text("relation"), relation),
        element("label", {}, text("asks_for"), end),
      ),
      element("label", { className: "wide" }, this.idName, id),
      element("label", { className: "short" }, text("answers"), k),
      element("button", { type: "submit" }, text("find")),
      element("label", { className: "choice" }, this.withKnown, text("with_known")),
      known,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const asked = { relation: relation.value, asked: end.value, id: id.value, k: k.value };
      const values = this.withKnown.checked ? { ...asked, known: "1" } : asked;
      const address = `#${new URLSearchParams(values).toString()}`;
      if (address === window.location.hash) this.follow();
      else window.location.hash = address;
    });
    parent.replaceChildren(form, this.answer);
    this.follow();
  }

  /** Answers what the page's address asks for, or else the example, if there is one. */
  follow(): void {
    const asked = this.read();
    this.relation.value = asked.relation;
    this.nameTypes();
    this.end.value = asked.toHeads ? "head" : "tail";
    this.nameTypes();
    this.id.value = asked.id;
    this.k.value = String(asked.k);
    this.withKnown.checked = asked.withKnown;
    this.answer.replaceChildren();
    this.report(null);
    if (asked.id === "") return;
    const turn = ++this.asked;
    this.find(asked)
      .then((parts) => {
        // An answer may come after the next one was asked for.
        if (turn === this.asked) this.answer.replaceChildren(...parts);
      })
      .catch(this.report);
  }

  private read(): Asked {
    const given = new URLSearchParams(window.location.hash.slice(1));
    const relations = this.model.relations;
    const relation = given.get("relation") ?? this.exampleOf("relation");
    const k = Math.trunc(Number(given.get("k")));
    return {
      relation: relations.includes(relation) ? relation : relations[0]!,
      toHeads: given.get("asked") === "head",
      id: given.get("id") ?? this.exampleOf("id"),
      k: k >= 1 && k <= MOST_ANSWERS ? k : ANSWERS,
      withKnown: given.has("known"),
    };
  }

  private exampleOf(name: string): string {
    const data = this.example.find((input) => input.name === name)?.data ?? [];
    return data.length > 0 ? String(data[0]) : "";
  }

  /** Names the node types of the chosen relation. */
  private nameTypes(): void {
    const chosen = this.end.value;
    const { asked: head, answer: tail } = this.model.typesOf(this.relation.value, false);
    this.end.replaceChildren(
      element("option", { value: "tail" }, this.text("tails", { type: tail })),
      element("option", { value: "head" }, this.text("heads", { type: head })),
    );
    this.end.value = chosen || "tail";
    this.idName.textContent = this.text("id_of", { type: chosen === "head" ? tail : head });
  }

  /** The heading and the table that answer a question. */
  private async find({ relation, toHeads, id, k, withKnown }: Asked): Promise<Node[]> {
    const { model, text } = this;
    const types = model.typesOf(relation, toHeads);
    const node = model.idsOf(types.asked).find(id);
    if (node === null) throw new Problem("unknown_id", { type: types.asked, id });
    const began = performance.now();
    const answers = await model.answer({ relation, node, toHeads, k, withKnown });
    const ms = (performance.now() - began).toFixed(1);
    const head = [text("rank"), text("id"), ...(withKnown ? [text("known")] : []), text("score")];
    const rows = answers.map(({ index, score, isKnown }, rank) => [
      String(rank + 1),
      model.idsOf(types.answer).text(index),
      ...(withKnown ? [isKnown ? text("is_known") : ""] : []),
      number(score),
    ]);
    const question = toHeads ? `? — ${relation} → ${id}` : `${id} — ${relation} → ?`;
    return [
      element("h2", {}, question),
      rows.length > 0 ? table(head, rows) : element("p", {}, text("no_answers")),
      element(
        "p",
        { className: "note" },
        text("computed", { ms, rows: model.candidates(types.answer) }),
      ),
    ];
  }
}
