import { Button, Group, Stack, Table, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { CanaryState, ModelSummary, ShadowState } from "@/api/types";
import { Facts } from "@/components/Facts";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { ProblemAlert } from "@/components/ProblemAlert";
import { Prose } from "@/components/Prose";
import { useFormat } from "@/i18n/format";
import { useRefreshModels } from "./use-refresh-models";

/** The versions that get requests besides the active one, and how the shadow differs. */
export function TrafficPanel({ model }: { model: ModelSummary }) {
  const { t } = useTranslation("models");
  if (model.canary === null && model.shadow === null) return null;
  return (
    <Panel title={t("traffic.title")}>
      <Stack gap="lg">
        {model.canary && <Canary model={model} canary={model.canary} />}
        {model.shadow && <Shadow model={model} shadow={model.shadow} />}
      </Stack>
    </Panel>
  );
}

function Canary({ model, canary }: { model: ModelSummary; canary: CanaryState }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const active = model.versions.find(({ active }) => active)?.version;
  return (
    <Stack gap="xs" align="flex-start">
      <Facts
        facts={[
          [t("traffic.canaryVersion"), t("versionTitle", { version: canary.version })],
          [t("traffic.share"), format.percent(canary.percent / 100)],
          [
            t("traffic.others"),
            active === undefined ? "–" : t("versionTitle", { version: active }),
          ],
        ]}
      />
      {!canary.available && (
        <Text size="sm" c="red" role="alert">
          {t("traffic.canaryUnavailable", {
            number: format.integer(canary.unavailable_requests),
          })}
        </Text>
      )}
      <EndButton name={model.name} share="canary" />
    </Stack>
  );
}

function Shadow({ model, shadow }: { model: ModelSummary; shadow: ShadowState }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const time = (value: number | null) => (value === null ? "–" : format.milliseconds(value));
  return (
    <Stack gap="xs" align="flex-start">
      <Facts
        facts={[
          [t("traffic.shadowVersion"), t("versionTitle", { version: shadow.version })],
          [t("traffic.repeated"), format.percent(shadow.percent / 100)],
          [t("traffic.compared"), format.integer(shadow.calls)],
          [t("traffic.failed"), format.integer(shadow.failed)],
          [t("traffic.dropped"), format.integer(shadow.dropped)],
          [
            t("traffic.time"),
            t("compare.pair", { version: time(shadow.shadow_ms), active: time(shadow.active_ms) }),
          ],
        ]}
      />
      {!shadow.available && (
        <Text size="sm" c="red" role="alert">
          {t("traffic.shadowUnavailable")}
        </Text>
      )}
      {shadow.error !== null && (
        <Text size="sm" c="red">
          {t("traffic.lastFailure")} <Prose text={shadow.error} />
        </Text>
      )}
      {shadow.outputs.length > 0 && <Differences shadow={shadow} />}
      <EndButton name={model.name} share="shadow" />
    </Stack>
  );
}

/** How the outputs of a shadow differ from the answers. */
function Differences({ shadow }: { shadow: ShadowState }) {
  const { t } = useTranslation("models");
  const format = useFormat();
  const percent = (value: number | null) => (value === null ? "–" : format.percent(value));
  const number = (value: number | null) => (value === null ? "–" : format.number(value));
  return (
    <PlainTable label={t("traffic.differences")}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t("traffic.output")}</Table.Th>
          <Table.Th ta="right">{t("traffic.rows")}</Table.Th>
          <Table.Th ta="right">
            {t("traffic.different", { tolerance: format.number(shadow.tolerance) })}
          </Table.Th>
          <Table.Th ta="right">{t("traffic.mean")}</Table.Th>
          <Table.Th ta="right">{t("traffic.largest")}</Table.Th>
          <Table.Th ta="right">{t("traffic.overlap")}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {shadow.outputs.map((output) => (
          <Table.Tr key={output.name}>
            <Table.Td>{output.name}</Table.Td>
            <Table.Td ta="right">{format.integer(output.rows)}</Table.Td>
            <Table.Td ta="right">{percent(output.different_share)}</Table.Td>
            <Table.Td ta="right">{number(output.mean_difference)}</Table.Td>
            <Table.Td ta="right">{number(output.largest_difference)}</Table.Td>
            <Table.Td ta="right">{percent(output.overlap)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </PlainTable>
  );
}

function EndButton({ name, share }: { name: string; share: "canary" | "shadow" }) {
  const { t } = useTranslation("models");
  const onSuccess = useRefreshModels();
  const overview = api.useQuery("get", "/api/v1/overview");
  const canary = api.useMutation("delete", "/api/v1/models/{name}/canary", { onSuccess });
  const shadow = api.useMutation("delete", "/api/v1/models/{name}/shadow", { onSuccess });
  const ending = share === "canary" ? canary : shadow;
  if (!overview.data?.can_promote) return null;
  return (
    <>
      <Group>
        <Button
          size="xs"
          variant="default"
          loading={ending.isPending}
          onClick={() => ending.mutate({ params: { path: { name } } })}
        >
          {t(`traffic.end.${share}`)}
        </Button>
      </Group>
      {ending.error && <ProblemAlert error={ending.error} />}
    </>
  );
}
