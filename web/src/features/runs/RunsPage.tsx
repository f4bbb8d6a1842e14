import { Button, Group, Text, TextInput } from "@mantine/core";
import type { SortingState } from "@tanstack/react-table";
import { getRouteApi } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { RunSummary } from "@/api/types";
import { EmptyState } from "@/components/EmptyState";
import { IconPlayerPlay, IconSearch } from "@/components/icons";
import { PageHeader } from "@/components/PageHeader";
import { Panel } from "@/components/Panel";
import { QueryView } from "@/components/QueryView";
import { SearchKeyHint } from "@/components/SearchKeyHint";
import { RunsTable } from "./RunsTable";
import type { RunsSearch } from "./search";

const route = getRouteApi("/runs");
const REFRESH_MS = 5_000;
const NEWEST_FIRST = "-created";

/** All runs; the filter and the sorting live in the address. */
export function RunsPage() {
  const { t } = useTranslation("runs");
  const runs = api.useQuery("get", "/api/v1/runs", undefined, { refetchInterval: REFRESH_MS });
  return (
    <>
      <PageHeader title={t("title")} subtitle={t("subtitle")} />
      <QueryView query={runs} skeleton={[40, 320]}>
        {(list) =>
          list.length === 0 ? (
            <EmptyState
              icon={<IconPlayerPlay />}
              title={t("empty.title")}
              text={t("empty.text")}
              command="graphbox run graphbox.yaml"
            />
          ) : (
            <FilteredRuns runs={list} />
          )
        }
      </QueryView>
    </>
  );
}

function FilteredRuns({ runs }: { runs: RunSummary[] }) {
  const { t } = useTranslation("runs");
  const { q = "", sort = NEWEST_FIRST } = route.useSearch();
  const navigate = route.useNavigate();
  const change = (search: Partial<RunsSearch>) =>
    void navigate({ search: (old) => dropEmpty({ ...old, ...search }), replace: true });
  const words = q.toLowerCase().split(/\s+/);
  const shown = runs.filter(({ name, id, state }) => {
    const text = `${name} ${id} ${state}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return (
    <>
      <TextInput
        data-search
        mb="md"
        maw={380}
        value={q}
        onChange={(event) => change({ q: event.currentTarget.value })}
        aria-label={t("filter")}
        placeholder={t("filter")}
        leftSection={<IconSearch size={16} />}
        rightSection={<SearchKeyHint />}
      />
      {shown.length === 0 ? (
        <Group>
          <Text c="dimmed">{t("noMatch", { query: q })}</Text>
          <Button variant="default" size="xs" onClick={() => change({ q: "" })}>
            {t("clear")}
          </Button>
        </Group>
      ) : (
        <Panel label={t("title")} flush>
          <RunsTable
            runs={shown}
            sorting={readSorting(sort)}
            onSortingChange={(sorting) => change({ sort: writeSorting(sorting) })}
          />
        </Panel>
      )}
    </>
  );
}

function readSorting(sort: string): SortingState {
  return [{ id: sort.replace(/^-/, ""), desc: sort.startsWith("-") }];
}

function writeSorting([first]: SortingState): string {
  return first ? `${first.desc ? "-" : ""}${first.id}` : "";
}

function dropEmpty(search: RunsSearch): RunsSearch {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== ""));
}
