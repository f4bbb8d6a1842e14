import { type TableProps, Title } from "@mantine/core";
import { PlainTable } from "./PlainTable";
import classes from "./SubTable.module.css";

interface SubTableProps extends TableProps {
  title: string;
  /** Names the table; unique on its page. */
  label: string;
}

/** A further table of a panel, under a heading of its own. */
export function SubTable({ title, label, ...props }: SubTableProps) {
  return (
    <div className={classes.block}>
      <Title order={3} className={classes.title}>
        {title}
      </Title>
      <PlainTable label={label} {...props} />
    </div>
  );
}
