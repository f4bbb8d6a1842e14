import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import type { Overview } from "@/api/types";
import { useFormat } from "@/i18n/format";
import classes from "./CountStrip.module.css";

/** How much of everything the workspace holds, each number a link to its page. */
export function CountStrip({ overview }: { overview: Overview }) {
  const { t } = useTranslation("home");
  const format = useFormat();
  const counts = [
    { to: "/graphs", label: t("counts.graphs"), count: overview.graphs },
    { to: "/runs", label: t("counts.runs"), count: overview.runs },
    { to: "/models", label: t("counts.models"), count: overview.models },
    { to: "/runs", label: t("counts.running"), count: overview.running },
  ] as const;
  return (
    <ul className={classes.strip}>
      {counts.map(({ to, label, count }) => (
        <li key={label}>
          <Link to={to} className={classes.count}>
            <span className={classes.number}>{format.integer(count)}</span>
            <span className={classes.label}>{label}</span>
          </Link>
        </li>
      ))}
    </ul>
  );
}
