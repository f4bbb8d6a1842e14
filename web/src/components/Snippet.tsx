import { Code, ScrollArea } from "@mantine/core";
import { CopyButton } from "./CopyButton";
import classes from "./Snippet.module.css";

interface SnippetProps {
  code: string;
  label: string;
  maxHeight?: number;
}

/** A block of code or configuration with a copy button. */
export function Snippet({ code, label, maxHeight = 520 }: SnippetProps) {
  return (
    <div className={classes.snippet}>
      <div className={classes.copy}>
        <CopyButton text={code} />
      </div>
      <ScrollArea.Autosize
        mah={maxHeight}
        type="auto"
        viewportProps={{ tabIndex: 0, role: "region", "aria-label": label }}
      >
        <Code block className={classes.code}>
          {code}
        </Code>
      </ScrollArea.Autosize>
    </div>
  );
}
