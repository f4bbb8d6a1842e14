import { Table, type TableProps } from "@mantine/core";
import classes from "./DataTable.module.css";
import { ScrollRegion } from "./ScrollRegion";

/** A table in the looks of the page, without sorting; it scrolls sideways where it is too wide. */
export function PlainTable({ label, ...props }: TableProps & { label: string }) {
  return (
    <ScrollRegion>
      <Table aria-label={label} className={classes.table} {...props} />
    </ScrollRegion>
  );
}
