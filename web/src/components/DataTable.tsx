import { Table, UnstyledButton } from "@mantine/core";
import {
  type Column,
  type ColumnDef,
  createSortedRowModel,
  rowSortingFeature,
  sortFn_text,
  type SortingState,
  tableFeatures,
  useTable,
} from "@tanstack/react-table";
import { useTranslation } from "react-i18next";
import classes from "./DataTable.module.css";
import { IconChevronDown, IconChevronUp, IconSelector } from "./icons";
import { ScrollRegion } from "./ScrollRegion";

const features = tableFeatures({
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns: { text: sortFn_text },
});

export type DataColumn<Row extends object> = ColumnDef<typeof features, Row> & {
  id: string;
  header: string;
  meta?: { align?: "right"; width?: number | string };
};

interface DataTableProps<Row extends object> {
  /** Names the table for screen readers. */
  label: string;
  columns: DataColumn<Row>[];
  rows: Row[];
  rowId: (row: Row) => string;
  sorting: SortingState;
  onSortingChange: (sorting: SortingState) => void;
}

const ARIA_SORT = { asc: "ascending", desc: "descending", none: "none" } as const;

/** A table whose columns sort by a click or key press on their heads. */
export function DataTable<Row extends object>(props: DataTableProps<Row>) {
  const { label, columns, rows, rowId, sorting, onSortingChange } = props;
  const table = useTable({
    features,
    columns,
    data: rows,
    getRowId: rowId,
    state: { sorting },
    onSortingChange: (update) =>
      onSortingChange(typeof update === "function" ? update(sorting) : update),
  });
  return (
    <ScrollRegion>
      <Table aria-label={label} highlightOnHover className={classes.table}>
        <Table.Thead>
          {table.getHeaderGroups().map((group) => (
            <Table.Tr key={group.id}>
              {group.headers.map((header) => {
                const column = columns.find(({ id }) => id === header.column.id);
                return (
                  <Table.Th
                    key={header.id}
                    ta={column?.meta?.align ?? "left"}
                    w={column?.meta?.width}
                    aria-sort={ARIA_SORT[header.column.getIsSorted() || "none"]}
                  >
                    {header.column.getCanSort() ? (
                      <SortButton column={header.column} name={column?.header ?? ""} />
                    ) : (
                      column?.header
                    )}
                  </Table.Th>
                );
              })}
            </Table.Tr>
          ))}
        </Table.Thead>
        <Table.Tbody>
          {table.getRowModel().rows.map((row) => (
            <Table.Tr key={row.id}>
              {row.getAllCells().map((cell) => (
                <Table.Td
                  key={cell.id}
                  ta={columns.find(({ id }) => id === cell.column.id)?.meta?.align ?? "left"}
                >
                  <table.FlexRender cell={cell} />
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </ScrollRegion>
  );
}

interface SortButtonProps<Row extends object> {
  column: Column<typeof features, Row>;
  name: string;
}

function SortButton<Row extends object>({ column, name }: SortButtonProps<Row>) {
  const { t } = useTranslation();
  const sorted = column.getIsSorted();
  const next = column.getNextSortingOrder();
  const action = next
    ? t(next === "asc" ? "table.sortAscending" : "table.sortDescending", { column: name })
    : t("table.noSort", { column: name });
  const Icon = { asc: IconChevronUp, desc: IconChevronDown, none: IconSelector }[sorted || "none"];
  return (
    <UnstyledButton
      className={classes.sort}
      onClick={column.getToggleSortingHandler()}
      title={action}
    >
      {name}
      <Icon size={13} aria-hidden="true" data-sorted={sorted !== false || undefined} />
    </UnstyledButton>
  );
}
