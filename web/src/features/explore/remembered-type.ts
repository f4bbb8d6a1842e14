const key = (model: string) => `graphbox.node-type.${model}`;

/** Remembers the node type that was chosen for ids of several types. */
export function rememberType(model: string, type: string): void {
  try {
    window.localStorage.setItem(key(model), type);
  } catch {
    // Storage may be full or forbidden: the choice is asked for again.
  }
}

/** Returns the remembered node type of a model if it is one of `types`. */
export function rememberedType(model: string, types: string[]): string | undefined {
  try {
    const type = window.localStorage.getItem(key(model));
    return types.find((name) => name === type);
  } catch {
    return undefined;
  }
}
