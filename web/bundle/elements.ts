type Properties<T extends keyof HTMLElementTagNameMap> = Partial<
  Omit<HTMLElementTagNameMap[T], "children">
>;

/** Makes an element; strings become text, never markup. */
export function element<T extends keyof HTMLElementTagNameMap>(
  tag: T,
  properties: Properties<T> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[T] {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** A table; cells after the first two columns or marked as numbers are aligned to the right. */
export function table(head: string[], rows: (Node | string)[][]): HTMLTableElement {
  const className = (column: number) => (column === head.length - 1 ? "number" : "");
  const cells = (tag: "th" | "td", values: (Node | string)[]) =>
    element(
      "tr",
      {},
      ...values.map((value, i) => element(tag, { className: className(i) }, value)),
    );
  return element(
    "table",
    {},
    element("thead", {}, cells("th", head)),
    element("tbody", {}, ...rows.map((row) => cells("td", row))),
  );
}

/** A number to read, with its exact value for programs. */
export const number = (value: number): HTMLElement =>
  element("data", { value: String(value) }, value.toFixed(4));
