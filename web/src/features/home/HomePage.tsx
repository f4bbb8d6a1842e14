import { SimpleGrid, Stack } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Overview } from "@/api/types";
import { EmptyState } from "@/components/EmptyState";
import { IconSitemap } from "@/components/icons";
import { PageHeader } from "@/components/PageHeader";
import { QueryView } from "@/components/QueryView";
import { CountStrip } from "./CountStrip";
import { RecentRuns } from "./RecentRuns";
import { SearchCard } from "./SearchCard";
import { ServedModels } from "./ServedModels";

/** What runs, what is served, and where to begin. */
export function HomePage() {
  const { t } = useTranslation("home");
  const overview = api.useQuery("get", "/api/v1/overview");
  const workspace = overview.data?.workspace_name;
  const subtitle =
    overview.data && (workspace ? t("subtitle", { name: workspace }) : t("noWorkspace"));
  return (
    <>
      <PageHeader title={t("title")} {...(subtitle !== undefined && { subtitle })} />
      <QueryView query={overview} skeleton={[84, 150, 240]}>
        {(data) => (isEmpty(data) ? <Start /> : <Dashboard overview={data} />)}
      </QueryView>
    </>
  );
}

const isEmpty = ({ graphs, runs, models }: Overview) => graphs + runs + models === 0;

function Start() {
  const { t } = useTranslation("home");
  return (
    <EmptyState
      icon={<IconSitemap />}
      title={t("empty.title")}
      text={t("empty.text")}
      command="graphbox demo"
    />
  );
}

function Dashboard({ overview }: { overview: Overview }) {
  return (
    <Stack gap="md">
      <CountStrip overview={overview} />
      <SearchCard />
      <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md">
        <RecentRuns />
        <ServedModels />
      </SimpleGrid>
    </Stack>
  );
}
