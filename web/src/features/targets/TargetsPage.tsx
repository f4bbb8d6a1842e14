import { Badge, Code, Stack, Table, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { DeploymentTarget } from "@/api/types";
import { CommandLine } from "@/components/CommandLine";
import { EmptyState } from "@/components/EmptyState";
import { FieldList } from "@/components/FieldList";
import { IconCircleCheck, IconCircleX, IconCpu } from "@/components/icons";
import { PageHeader } from "@/components/PageHeader";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { Prose } from "@/components/Prose";
import { QueryView } from "@/components/QueryView";

/** The devices of this machine that models can run on, and why others cannot be used. */
export function TargetsPage() {
  const { t } = useTranslation("targets");
  const targets = api.useQuery("get", "/api/v1/targets");
  return (
    <>
      <PageHeader title={t("title")} subtitle={t("subtitle")} />
      <QueryView query={targets} skeleton={[200]}>
        {(list) =>
          list.length === 0 ? (
            <EmptyState
              icon={<IconCpu />}
              title={t("empty.title")}
              text={t("empty.text")}
              command="graphbox targets list"
            />
          ) : (
            <Stack gap="md">
              <Panel label={t("title")} flush>
                <TargetTable targets={list} />
              </Panel>
              <Panel title={t("test")}>
                <CommandLine command={`graphbox targets test ${list[0]?.adapter ?? ""}`} />
              </Panel>
            </Stack>
          )
        }
      </QueryView>
    </>
  );
}

function TargetTable({ targets }: { targets: DeploymentTarget[] }) {
  const { t } = useTranslation("targets");
  const availableFirst = targets.toSorted((a, b) => Number(b.available) - Number(a.available));
  return (
    <PlainTable label={t("title")}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t("columns.adapter")}</Table.Th>
          <Table.Th>{t("columns.device")}</Table.Th>
          <Table.Th>{t("columns.state")}</Table.Th>
          <Table.Th>{t("columns.reason")}</Table.Th>
          <Table.Th>{t("columns.details")}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {availableFirst.map((target) => (
          <Table.Tr key={`${target.adapter} ${target.device}`}>
            <Table.Td>
              <Code>{target.adapter}</Code>
              <Text size="xs" c="dimmed">
                {target.distribution}
              </Text>
            </Table.Td>
            <Table.Td>
              {target.device ?? "–"}
              {target.description !== null && (
                <Text size="xs" c="dimmed">
                  {target.description}
                </Text>
              )}
            </Table.Td>
            <Table.Td>
              <Availability available={target.available} />
            </Table.Td>
            <Table.Td data-wrap="text">
              <Prose text={target.reason ?? (target.available ? t("ready") : "")} />
            </Table.Td>
            <Table.Td>
              <FieldList fields={target.details} />
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </PlainTable>
  );
}

function Availability({ available }: { available: boolean }) {
  const { t } = useTranslation("targets");
  return available ? (
    <Badge color="teal" leftSection={<IconCircleCheck size={14} />}>
      {t("available")}
    </Badge>
  ) : (
    <Badge color="gray" leftSection={<IconCircleX size={14} />}>
      {t("missing")}
    </Badge>
  );
}
