import { Tooltip } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { TrueLink } from "@/api/types";
import { IconArrowLeft, IconArrowRight, IconEyeOff } from "@/components/icons";
import classes from "./LinkBadge.module.css";

/** A link of the graph between the searched node and a result, by name and direction. */
export function LinkBadge({ link }: { link: TrueLink }) {
  const { t } = useTranslation("explore");
  const { relation, direction, held_out } = link;
  const meaning = [
    t(`direction.${direction}`, { relation }),
    held_out ? t("link.heldOut") : t("link.known"),
  ].join(" ");
  const Arrow = direction === "out" ? IconArrowRight : IconArrowLeft;
  return (
    <Tooltip label={meaning}>
      <span className={classes.badge} data-held-out={held_out || undefined} data-link={relation}>
        <Arrow size={12} aria-hidden="true" />
        {relation}
        {held_out && (
          <span className={classes.mark}>
            <IconEyeOff size={12} aria-hidden="true" /> {t("link.heldOutShort")}
          </span>
        )}
      </span>
    </Tooltip>
  );
}
