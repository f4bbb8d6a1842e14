import { NativeSelect, Stack } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { CompressionSummary, ModelSummary } from "@/api/types";
import { EmptyState } from "@/components/EmptyState";
import { QueryView } from "@/components/QueryView";
import { useFormat } from "@/i18n/format";
import { searchCommand } from "./compression";

const route = getRouteApi("/models/$name");
const REFRESH_MS = 10_000;
const RUNNING_REFRESH_MS = 2_000;

const CompressionReport = lazy(() =>
  import("./CompressionReport").then((module) => ({ default: module.CompressionReport })),
);

const refreshInterval = (running: boolean | undefined) =>
  running ? RUNNING_REFRESH_MS : REFRESH_MS;

interface CompressionTabProps {
  model: ModelSummary;
  /** Id of the search to show; without one the newest is shown. */
  wanted: string | undefined;
}

/** The searches for compressed versions of a model, and one of them in full. */
export function CompressionTab({ model, wanted }: CompressionTabProps) {
  const { t } = useTranslation("models");
  const searches = api.useQuery(
    "get",
    "/api/v1/models/{name}/compressions",
    { params: { path: { name: model.name } } },
    {
      refetchInterval: ({ state }) => refreshInterval(state.data?.some(({ running }) => running)),
    },
  );
  return (
    <QueryView query={searches} skeleton={[320]}>
      {(found) => {
        const shown = wanted ?? found[0]?.id;
        if (shown === undefined) {
          const hasVersions = model.versions.some(({ promotable }) => promotable);
          return (
            <EmptyState
              title={t("compression.empty.title")}
              text={t(hasVersions ? "compression.empty.text" : "compression.empty.folder")}
              {...(hasVersions && { command: searchCommand(model.name) })}
            />
          );
        }
        return (
          <Stack gap="md">
            {found.length > 1 && <SearchChoice searches={found} shown={shown} />}
            <SearchView model={model} id={shown} />
          </Stack>
        );
      }}
    </QueryView>
  );
}

/** Chooses one of several searches. */
function SearchChoice({ searches, shown }: { searches: CompressionSummary[]; shown: string }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const navigate = route.useNavigate();
  const listed = searches.some(({ id }) => id === shown);
  return (
    <NativeSelect
      label={t("compression.search")}
      value={shown}
      maw="34rem"
      onChange={({ currentTarget }) => {
        const { value } = currentTarget;
        void navigate({ search: (old) => ({ ...old, search: value }), replace: true });
      }}
      data={[
        ...searches.map(({ id, version, updated_at, state, trials }) => ({
          value: id,
          label: t("compression.choice", {
            version,
            time: format.dateTime(updated_at),
            state: t(`compression.state.${state}`),
            number: format.integer(trials),
          }),
        })),
        ...(listed ? [] : [{ value: shown, label: shown }]),
      ]}
    />
  );
}

function SearchView({ model, id }: { model: ModelSummary; id: string }) {
  const report = api.useQuery(
    "get",
    "/api/v1/models/{name}/compressions/{search_id}",
    { params: { path: { name: model.name, search_id: id } } },
    { refetchInterval: ({ state }) => refreshInterval(state.data?.running) },
  );
  return (
    <QueryView query={report} skeleton={[180, 360]}>
      {(found) => (
        <Suspense fallback={null}>
          <CompressionReport key={id} model={model} report={found} />
        </Suspense>
      )}
    </QueryView>
  );
}
