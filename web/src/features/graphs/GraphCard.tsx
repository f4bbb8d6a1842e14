import { Table } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { GraphSummary } from "@/api/types";
import { Facts } from "@/components/Facts";
import { Meter } from "@/components/Meter";
import { Panel } from "@/components/Panel";
import { PlainTable } from "@/components/PlainTable";
import { TimeText } from "@/components/TimeText";
import { useFormat } from "@/i18n/format";
import classes from "./GraphCard.module.css";
import { SchemaPicture } from "./SchemaPicture";

const sum = (numbers: number[]) => numbers.reduce((total, number) => total + number, 0);

/** One graph: totals, a picture of its types, and the counts of each. */
export function GraphCard({ graph }: { graph: GraphSummary }) {
  const { t } = useTranslation("graphs");
  const format = useFormat();
  const nodes = sum(graph.node_types.map((type) => type.nodes));
  const edges = sum(graph.edge_types.map((type) => type.edges));
  return (
    <Panel title={graph.name} flush>
      <div className={classes.facts}>
        <Facts
          facts={[
            [t("nodes"), format.integer(nodes)],
            [t("edges"), format.integer(edges)],
            [t("size"), format.bytes(graph.size_bytes)],
            [t("imported"), <TimeText key="imported" at={graph.created_at} />],
          ]}
        />
      </div>
      <div className={classes.body}>
        <SchemaPicture graph={graph} />
        <div className={classes.tables}>
          <NodeTypes graph={graph} total={nodes} />
          <EdgeTypes graph={graph} total={edges} />
        </div>
      </div>
    </Panel>
  );
}

interface CountsProps {
  graph: GraphSummary;
  total: number;
}

function NodeTypes({ graph, total }: CountsProps) {
  const { t } = useTranslation("graphs");
  const format = useFormat();
  return (
    <PlainTable label={`${t("nodeTypes")}: ${graph.name}`}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t("nodeType")}</Table.Th>
          <Table.Th ta="right">{t("nodes")}</Table.Th>
          <Table.Th className={classes.share}>{t("share")}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {graph.node_types
          .toSorted((a, b) => b.nodes - a.nodes)
          .map(({ name, nodes }) => (
            <Table.Tr key={name}>
              <Table.Th scope="row" className={classes.type}>
                {name}
              </Table.Th>
              <Table.Td ta="right">{format.integer(nodes)}</Table.Td>
              <Table.Td>
                <ShareCell share={total > 0 ? nodes / total : 0} />
              </Table.Td>
            </Table.Tr>
          ))}
      </Table.Tbody>
    </PlainTable>
  );
}

function EdgeTypes({ graph, total }: CountsProps) {
  const { t } = useTranslation("graphs");
  const format = useFormat();
  const nodesOf = new Map(graph.node_types.map(({ name, nodes }) => [name, nodes]));
  return (
    <PlainTable label={`${t("edgeTypes")}: ${graph.name}`}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t("edgeType")}</Table.Th>
          <Table.Th ta="right">{t("edges")}</Table.Th>
          <Table.Th ta="right">{t("degree")}</Table.Th>
          <Table.Th className={classes.share}>{t("share")}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {graph.edge_types
          .toSorted((a, b) => b.edges - a.edges)
          .map(({ source, relation, target, edges }) => (
            <Table.Tr key={`${source} ${relation} ${target}`}>
              <Table.Th scope="row" className={classes.type}>
                <span className={classes.end}>{source}</span> {relation}{" "}
                <span className={classes.end}>{target}</span>
              </Table.Th>
              <Table.Td ta="right">{format.integer(edges)}</Table.Td>
              <Table.Td ta="right">{format.decimal(edges / (nodesOf.get(source) || 1))}</Table.Td>
              <Table.Td>
                <ShareCell share={total > 0 ? edges / total : 0} />
              </Table.Td>
            </Table.Tr>
          ))}
      </Table.Tbody>
    </PlainTable>
  );
}

function ShareCell({ share }: { share: number }) {
  const format = useFormat();
  return (
    <span className={classes.shareCell}>
      <Meter share={share} />
      <span>{format.percent(share)}</span>
    </span>
  );
}
