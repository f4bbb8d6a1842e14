import { Stack, Text } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { Neighbor } from "@/api/types";
import { Panel } from "@/components/Panel";
import { LinkBadge } from "./LinkBadge";
import classes from "./SidePanel.module.css";

/** Beside the results: how many are links of the graph, and what the marks mean. */
export function SidePanel({ neighbors, linked }: { neighbors: Neighbor[]; linked: boolean }) {
  const { t } = useTranslation("explore");
  return (
    <>
      {linked && <Agreement neighbors={neighbors} />}
      <Panel title={linked ? t("legend.title") : t("result.score")}>
        <Stack gap="sm">
          {linked && <LegendEntry heldOut={false} />}
          {linked && <LegendEntry heldOut={true} />}
          <Text size="xs" c="dimmed">
            {t("score.text")}
          </Text>
        </Stack>
      </Panel>
    </>
  );
}

function Agreement({ neighbors }: { neighbors: Neighbor[] }) {
  const { t } = useTranslation("explore");
  const linked = neighbors.filter(({ links }) => links.length > 0);
  const heldOut = linked.filter(({ links }) => links.some((link) => link.held_out)).length;
  const share = (count: number) => `${(100 * count) / Math.max(neighbors.length, 1)}%`;
  return (
    <Panel title={t("agreement.title")}>
      <div className={classes.bar} aria-hidden="true">
        <span className={classes.known} style={{ width: share(linked.length - heldOut) }} />
        <span className={classes.heldOut} style={{ width: share(heldOut) }} />
      </div>
      {linked.length === 0 ? (
        <Text size="sm">{t("agreement.noneLinked")}</Text>
      ) : (
        <Text size="sm">
          {t("agreement.summary", { linked: linked.length, count: neighbors.length })}
          {heldOut > 0 && ` ${t("agreement.heldOut", { count: heldOut })}`}
        </Text>
      )}
    </Panel>
  );
}

function LegendEntry({ heldOut }: { heldOut: boolean }) {
  const { t } = useTranslation("explore");
  return (
    <div>
      <LinkBadge link={{ relation: t("legend.relation"), direction: "out", held_out: heldOut }} />
      <Text size="xs" c="dimmed" mt={3}>
        {heldOut ? t("legend.heldOutText") : t("legend.knownText")}
      </Text>
    </div>
  );
}
