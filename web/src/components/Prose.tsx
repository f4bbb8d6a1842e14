import { Code } from "@mantine/core";

/** A message of the server, in which names and commands stand between backticks. */
export function Prose({ text }: { text: string }) {
  return text
    .split("`")
    .map((part, index) => (index % 2 === 1 ? <Code key={index}>{part}</Code> : part));
}
