import { Badge, Group, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { requestLatency } from "@/api/request-latency";
import type { ModelSummary, ModelVersion } from "@/api/types";
import { CommandLine } from "@/components/CommandLine";
import { Panel } from "@/components/Panel";
import { QueryView } from "@/components/QueryView";
import { TextLink } from "@/components/TextLink";
import { useFormat } from "@/i18n/format";
import classes from "./HomeList.module.css";

/** The versions that answer requests now. */
export function ServedModels() {
  const { t } = useTranslation("home");
  const models = api.useQuery("get", "/api/v1/models");
  return (
    <Panel title={t("served.title")} flush>
      <QueryView query={models} skeleton={[48, 48]}>
        {(list) => {
          const served = servedVersions(list);
          if (served.length > 0) {
            return (
              <ul className={classes.list}>
                {served.map(({ name, version }) => (
                  <ServedRow key={name} name={name} version={version} />
                ))}
              </ul>
            );
          }
          return (
            <div className={classes.empty}>
              <Text c="dimmed" mb="xs">
                {t("served.none")}
              </Text>
              <CommandLine command="graphbox run graphbox.yaml" />
            </div>
          );
        }}
      </QueryView>
    </Panel>
  );
}

function servedVersions(models: ModelSummary[]) {
  return models.flatMap(({ name, versions }) =>
    versions.filter((version) => version.served).map((version) => ({ name, version })),
  );
}

function ServedRow({ name, version }: { name: string; version: ModelVersion }) {
  const { t } = useTranslation("home");
  const format = useFormat();
  const latency = requestLatency(version);
  return (
    <li className={classes.row}>
      <span className={classes.main}>
        <TextLink to="/models/$name" params={{ name }} search={{}} fw={550}>
          {name}
        </TextLink>
        <span className={classes.note}>
          {[
            t("served.version", { version: version.version }),
            format.bytes(version.size_bytes),
            latency && `p50 ${format.milliseconds(latency.p50_ms)}`,
          ]
            .filter(Boolean)
            .join(" · ")}
        </span>
      </span>
      <Group gap="sm" wrap="nowrap">
        <Badge color="gray">{version.precision}</Badge>
        <TextLink to="/explore" search={{ model: name }} size="sm" className={classes.link}>
          {t("served.explore")}
        </TextLink>
      </Group>
    </li>
  );
}
