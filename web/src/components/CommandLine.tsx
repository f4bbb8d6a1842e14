import { Code } from "@mantine/core";
import classes from "./CommandLine.module.css";
import { CopyButton } from "./CopyButton";

/** A command to run in a terminal, with a button that copies it. */
export function CommandLine({ command }: { command: string }) {
  return (
    <div className={classes.line}>
      <Code className={classes.code}>{command}</Code>
      <CopyButton text={command} />
    </div>
  );
}
