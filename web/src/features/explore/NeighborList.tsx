import { Table } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { Neighbor } from "@/api/types";
import { MeteredNumber } from "@/components/MeteredNumber";
import { PlainTable } from "@/components/PlainTable";
import { TextLink } from "@/components/TextLink";
import { LinkBadge } from "./LinkBadge";
import classes from "./NeighborList.module.css";

/** The results, nearest first; each leads to its own neighbours. */
export function NeighborList({ neighbors }: { neighbors: Neighbor[] }) {
  const { t } = useTranslation("explore");
  const highest = Math.max(...neighbors.map(({ score }) => score), Number.MIN_VALUE);
  return (
    <PlainTable label={t("title")} highlightOnHover verticalSpacing={5}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th ta="right" w={56} className={classes.rank}>
            {t("result.rank")}
          </Table.Th>
          <Table.Th className={classes.id}>{t("result.id")}</Table.Th>
          <Table.Th w="24%">{t("result.score")}</Table.Th>
          <Table.Th w="28%">{t("result.links")}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {neighbors.map((neighbor, index) => (
          <Table.Tr key={`${neighbor.type} ${neighbor.id}`} data-neighbor={neighbor.id}>
            <Table.Td ta="right" c="dimmed" className={classes.rank}>
              {index + 1}
            </Table.Td>
            <Table.Td data-wrap>
              <TextLink
                to="/explore"
                search={(old) => ({ ...old, id: String(neighbor.id), type: neighbor.type })}
                fw={550}
              >
                {neighbor.id}
              </TextLink>
            </Table.Td>
            <Table.Td>
              <MeteredNumber share={neighbor.score / highest} text={neighbor.score.toFixed(3)} />
            </Table.Td>
            <Table.Td>
              <span className={classes.links}>
                {neighbor.links.map((link) => (
                  <LinkBadge
                    key={`${link.relation} ${link.direction} ${link.held_out}`}
                    link={link}
                  />
                ))}
              </span>
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </PlainTable>
  );
}
