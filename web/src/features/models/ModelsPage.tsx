import { Stack } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { EmptyState } from "@/components/EmptyState";
import { IconBox } from "@/components/icons";
import { PageHeader } from "@/components/PageHeader";
import { Panel } from "@/components/Panel";
import { QueryView } from "@/components/QueryView";
import { TextLink } from "@/components/TextLink";
import { VersionsTable } from "./VersionsTable";
import { refreshInterval } from "./versions";

/** All models with their versions. */
export function ModelsPage() {
  const { t } = useTranslation("models");
  const models = api.useQuery("get", "/api/v1/models", undefined, {
    refetchInterval: ({ state }) => refreshInterval(state.data),
  });
  return (
    <>
      <PageHeader title={t("title")} subtitle={t("subtitle")} />
      <QueryView query={models} skeleton={[220, 220]}>
        {(list) =>
          list.length === 0 ? (
            <EmptyState
              icon={<IconBox />}
              title={t("empty.title")}
              text={t("empty.text")}
              command="graphbox run graphbox.yaml"
            />
          ) : (
            <Stack gap="md">
              {list.map((model) => (
                <Panel
                  key={model.name}
                  title={
                    <TextLink to="/models/$name" params={{ name: model.name }} search={{}} inherit>
                      {model.name}
                    </TextLink>
                  }
                  actions={
                    <TextLink to="/explore" search={{ model: model.name }} size="sm">
                      {t("explore")}
                    </TextLink>
                  }
                  flush
                >
                  <VersionsTable model={model} />
                </Panel>
              ))}
            </Stack>
          )
        }
      </QueryView>
    </>
  );
}
