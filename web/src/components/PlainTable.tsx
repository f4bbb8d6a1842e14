import { Table, type TableProps } from "@mantine/core";
import classes from "./DataTable.module.css";

/** A table in the looks of the page, without sorting. */
export function PlainTable({ label, ...props }: TableProps & { label: string }) {
  return <Table aria-label={label} className={classes.table} {...props} />;
}
