import { Code } from "@mantine/core";
import type { SortingState } from "@tanstack/react-table";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { RunSummary } from "@/api/types";
import { type DataColumn, DataTable } from "@/components/DataTable";
import { StateBadge } from "@/components/StateBadge";
import { TextLink } from "@/components/TextLink";
import { TimeText } from "@/components/TimeText";
import { useStageName } from "@/components/use-stage-name";
import { useFormat } from "@/i18n/format";

interface RunsTableProps {
  runs: RunSummary[];
  sorting: SortingState;
  onSortingChange: (sorting: SortingState) => void;
}

/** The runs, one a row. */
export function RunsTable({ runs, sorting, onSortingChange }: RunsTableProps) {
  const { t } = useTranslation("runs");
  return (
    <DataTable
      label={t("title")}
      columns={useColumns()}
      rows={runs}
      rowId={(run) => run.id}
      sorting={sorting}
      onSortingChange={onSortingChange}
    />
  );
}

function useColumns(): DataColumn<RunSummary>[] {
  const { t } = useTranslation("runs");
  const format = useFormat();
  const stageName = useStageName();
  return useMemo(
    () => [
      {
        id: "name",
        header: t("columns.name"),
        accessorFn: (run) => run.name,
        cell: ({ row: { original: run } }) => (
          <TextLink to="/runs/$runId" params={{ runId: run.id }} search={{}} fw={550}>
            {run.name}
          </TextLink>
        ),
      },
      {
        id: "state",
        header: t("columns.state"),
        accessorFn: (run) => run.state,
        cell: ({ row: { original: run } }) => <StateBadge state={run.state} />,
      },
      {
        id: "stage",
        header: t("columns.stage"),
        accessorFn: (run) => run.stage ?? "",
        cell: ({ row: { original: run } }) => (run.stage === null ? "–" : stageName(run.stage)),
      },
      {
        id: "created",
        header: t("columns.created"),
        accessorFn: (run) => run.created_at,
        cell: ({ row: { original: run } }) => <TimeText at={run.created_at} />,
      },
      {
        id: "seconds",
        header: t("columns.duration"),
        meta: { align: "right" },
        accessorFn: (run) => run.seconds,
        cell: ({ row: { original: run } }) => format.seconds(run.seconds),
      },
      {
        id: "size",
        header: t("columns.size"),
        meta: { align: "right" },
        accessorFn: (run) => run.size_bytes,
        cell: ({ row: { original: run } }) => format.bytes(run.size_bytes),
      },
      {
        id: "id",
        header: t("columns.id"),
        accessorFn: (run) => run.id,
        cell: ({ row: { original: run } }) => <Code>{run.id}</Code>,
      },
    ],
    [t, format, stageName],
  );
}
