import { SimpleGrid, Stack, Tabs } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { Fragment, type ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { ModelSummary, ModelVersion } from "@/api/types";
import { PageHeader } from "@/components/PageHeader";
import { Panel } from "@/components/Panel";
import { ProblemAlert } from "@/components/ProblemAlert";
import { QueryView } from "@/components/QueryView";
import { TextLink } from "@/components/TextLink";
import { BenchPanel } from "./BenchPanel";
import { CompressionTab } from "./CompressionTab";
import { LineagePanel } from "./LineagePanel";
import { hasEmbeddings } from "@/api/choose-model";
import { NewNodePanel } from "./NewNodePanel";
import { Playground } from "./Playground";
import { QualityPanel } from "./QualityPanel";
import { MODEL_TABS, type ModelTab } from "./search";
import { TrafficPanel } from "./TrafficPanel";
import { VersionsTable } from "./VersionsTable";
import { VersionBadges, VersionState } from "./VersionState";
import { defaultVersion, refreshInterval } from "./versions";

const route = getRouteApi("/models/$name");

/** One model: its versions, and one of them in full. */
export function ModelPage() {
  const { t } = useTranslation("models");
  const { name } = route.useParams();
  const { version: wanted } = route.useSearch();
  const models = api.useQuery("get", "/api/v1/models", undefined, {
    refetchInterval: ({ state }) => refreshInterval(state.data),
  });
  const model = models.data?.find((entry) => entry.name === name);
  const version =
    model &&
    (wanted === undefined
      ? defaultVersion(model)
      : model.versions.find((entry) => entry.version === wanted));
  return (
    <>
      <PageHeader
        back={
          <TextLink to="/models" size="sm">
            {t("back")}
          </TextLink>
        }
        title={name}
        actions={
          version &&
          hasEmbeddings(version) && (
            <TextLink
              to="/explore"
              search={{ model: name, ...(wanted !== undefined && { version: wanted }) }}
            >
              {t("explore")}
            </TextLink>
          )
        }
      />
      <QueryView query={models} skeleton={[180, 320]}>
        {() =>
          model && version ? (
            <ModelView model={model} version={version} />
          ) : (
            <ProblemAlert
              error={{
                code: "not_found",
                message: t("missing", { name: wanted === undefined ? name : `${name}/${wanted}` }),
                where: null,
                hint: t("missingHint"),
                choices: [],
                request_id: "",
              }}
            />
          )
        }
      </QueryView>
    </>
  );
}

function ModelView({ model, version }: { model: ModelSummary; version: ModelVersion }) {
  const { t } = useTranslation("models");
  const { search } = route.useSearch();
  return (
    <Stack gap="md">
      <Panel title={t("versions", { name: model.name })} flush>
        <VersionsTable model={model} selected={version.version} />
      </Panel>
      <TrafficPanel model={model} />
      <ModelTabs>
        {{
          version: <VersionView model={model} version={version} />,
          compression: <CompressionTab model={model} wanted={search} />,
        }}
      </ModelTabs>
    </Stack>
  );
}

/** What is shown below the versions: one of them, or the searches for smaller ones. */
function ModelTabs({ children }: { children: Record<ModelTab, ReactNode> }) {
  const { t } = useTranslation("models");
  const { tab = "version" } = route.useSearch();
  const navigate = route.useNavigate();
  return (
    <Tabs
      value={tab}
      keepMounted={false}
      onChange={(chosen) =>
        void navigate({
          search: ({ tab: _, ...rest }) =>
            chosen === "version" ? rest : { ...rest, tab: chosen as ModelTab },
          replace: true,
        })
      }
    >
      <Tabs.List mb="md">
        {MODEL_TABS.map((name) => (
          <Tabs.Tab key={name} value={name}>
            {t(`tab.${name}`)}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      {MODEL_TABS.map((name) => (
        <Tabs.Panel key={name} value={name}>
          {children[name]}
        </Tabs.Panel>
      ))}
    </Tabs>
  );
}

/** One version in full. */
function VersionView({ model, version }: { model: ModelSummary; version: ModelVersion }) {
  const { t } = useTranslation("models");
  return (
    <Stack gap="md">
      <Panel
        title={
          <>
            {t("versionTitle", { version: version.version })}{" "}
            <VersionBadges model={model} version={version} />
          </>
        }
      >
        <LineagePanel model={model} version={version} />
        <VersionState key={version.version} model={model} version={version} />
      </Panel>
      <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md">
        <QualityPanel model={model} version={version} />
        <BenchPanel model={model} version={version} />
      </SimpleGrid>
      <Fragment key={`${model.name}/${version.version}`}>
        {hasEmbeddings(version) && <Playground name={model.name} version={version} />}
        {version.kind === "encoder" && <NewNodePanel name={model.name} version={version} />}
      </Fragment>
    </Stack>
  );
}
