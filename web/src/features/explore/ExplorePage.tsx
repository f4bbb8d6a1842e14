import { Stack } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { ModelSummary } from "@/api/types";
import { EmptyState } from "@/components/EmptyState";
import { IconCompass } from "@/components/icons";
import { PageHeader } from "@/components/PageHeader";
import { QueryView } from "@/components/QueryView";
import { chooseModel, withEmbeddings } from "@/api/choose-model";
import { Controls } from "./Controls";
import { Examples } from "./Examples";
import { Results } from "./Results";
import { DEFAULT_RESULT_COUNT } from "./search";

const route = getRouteApi("/explore");

/** The nearest neighbours of a node; everything that is chosen lives in the address. */
export function ExplorePage() {
  const { t } = useTranslation("explore");
  const models = api.useQuery("get", "/api/v1/models");
  return (
    <>
      <PageHeader title={t("title")} subtitle={t("subtitle")} />
      <QueryView query={models} skeleton={[62, 420]}>
        {(all) => {
          const list = withEmbeddings(all);
          return list.length === 0 ? (
            <EmptyState
              icon={<IconCompass />}
              title={t("noModels.title")}
              text={t("noModels.text")}
              command="graphbox demo"
            />
          ) : (
            <Explorer models={list} />
          );
        }}
      </QueryView>
    </>
  );
}

function Explorer({ models }: { models: ModelSummary[] }) {
  const {
    model: name,
    version,
    type,
    id,
    k = DEFAULT_RESULT_COUNT,
    linked = true,
  } = route.useSearch();
  const model = name ?? chooseModel(models);
  return (
    <Stack gap="md">
      <Controls models={models} model={model} />
      {id === undefined ? (
        <Examples model={model} version={version} />
      ) : (
        <Results model={model} version={version} type={type} id={id} k={k} linked={linked} />
      )}
    </Stack>
  );
}
