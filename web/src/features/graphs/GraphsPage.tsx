import { Stack } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { EmptyState } from "@/components/EmptyState";
import { IconSitemap } from "@/components/icons";
import { PageHeader } from "@/components/PageHeader";
import { QueryView } from "@/components/QueryView";
import { GraphCard } from "./GraphCard";

/** The imported graphs with their counts per type. */
export function GraphsPage() {
  const { t } = useTranslation("graphs");
  const graphs = api.useQuery("get", "/api/v1/graphs");
  return (
    <>
      <PageHeader title={t("title")} subtitle={t("subtitle")} />
      <QueryView query={graphs} skeleton={[360]}>
        {(list) =>
          list.length === 0 ? (
            <EmptyState
              icon={<IconSitemap />}
              title={t("empty.title")}
              text={t("empty.text")}
              command="graphbox import graphbox.yaml"
            />
          ) : (
            <Stack gap="md">
              {list.map((graph) => (
                <GraphCard key={graph.name} graph={graph} />
              ))}
            </Stack>
          )
        }
      </QueryView>
    </>
  );
}
