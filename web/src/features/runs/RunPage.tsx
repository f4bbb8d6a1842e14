import { Code, Stack, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import type { RunDetail } from "@/api/types";
import { Facts } from "@/components/Facts";
import { PageHeader } from "@/components/PageHeader";
import { QueryView } from "@/components/QueryView";
import { Snippet } from "@/components/Snippet";
import { StateBadge } from "@/components/StateBadge";
import { TextLink } from "@/components/TextLink";
import { TimeText } from "@/components/TimeText";
import { useFormat } from "@/i18n/format";
import { LiveBadge } from "./LiveBadge";
import { RunErrorAlert } from "./RunErrorAlert";
import { ResultsTab } from "./ResultsTab";
import { RUN_TABS, type RunTab } from "./search";
import { StagesPanel } from "./StagesPanel";
import { TrainingTab } from "./TrainingTab";
import { metricsQuery, runQuery, useRunStream } from "./use-run-stream";

const route = getRouteApi("/runs/$runId");
const REFRESH_MS = 5_000;

const isLasting = (run: RunDetail | undefined) =>
  run?.state === "running" || run?.state === "created";

/** One run: its stages, training, results and configuration, live while it runs. */
export function RunPage() {
  const { t } = useTranslation("runs");
  const { runId } = route.useParams();
  const run = useQuery({
    ...runQuery(runId),
    refetchInterval: ({ state }) => (isLasting(state.data) ? REFRESH_MS : false),
  });
  const metrics = useQuery({ ...metricsQuery(runId), refetchOnWindowFocus: false });
  const stream = useRunStream(runId, isLasting(run.data) && metrics.isSuccess);
  return (
    <>
      <PageHeader
        back={
          <TextLink to="/runs" size="sm">
            {t("back")}
          </TextLink>
        }
        title={run.data?.name ?? runId}
        subtitle={<Code>{runId}</Code>}
        marks={
          run.data && (
            <>
              <StateBadge state={run.data.state} />
              <LiveBadge state={stream} />
            </>
          )
        }
        actions={run.data && <RunFacts run={run.data} />}
      />
      <QueryView query={run} skeleton={[170, 40, 300]}>
        {(data) => (
          <Stack gap="md">
            {data.error !== null && <RunErrorAlert run={data} error={data.error} />}
            <StagesPanel stages={data.stages} />
            <RunTabs run={data}>
              {{
                training: (
                  <QueryView query={metrics} skeleton={[260]}>
                    {(points) => <TrainingTab metrics={points} />}
                  </QueryView>
                ),
                results: <ResultsTab report={data.report} />,
                config: <Snippet code={data.config} label={t("config.title")} maxHeight={720} />,
              }}
            </RunTabs>
          </Stack>
        )}
      </QueryView>
    </>
  );
}

function RunFacts({ run }: { run: RunDetail }) {
  const { t } = useTranslation("runs");
  const format = useFormat();
  return (
    <Facts
      facts={[
        [t("facts.created"), <TimeText key="created" at={run.created_at} />],
        [t("facts.duration"), format.seconds(run.seconds)],
        [t("facts.size"), format.bytes(run.size_bytes)],
      ]}
    />
  );
}

interface RunTabsProps {
  run: RunDetail;
  children: Record<RunTab, React.ReactNode>;
}

function RunTabs({ run, children }: RunTabsProps) {
  const { t } = useTranslation("runs");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const shown = search.tab ?? (run.state === "finished" ? "results" : "training");
  return (
    <Tabs
      value={shown}
      keepMounted={false}
      onChange={(tab) =>
        void navigate({ search: (old) => ({ ...old, tab: tab as RunTab }), replace: true })
      }
    >
      <Tabs.List mb="md">
        {RUN_TABS.map((tab) => (
          <Tabs.Tab key={tab} value={tab}>
            {t(`tab.${tab}`)}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      {RUN_TABS.map((tab) => (
        <Tabs.Panel key={tab} value={tab}>
          {children[tab]}
        </Tabs.Panel>
      ))}
    </Tabs>
  );
}
