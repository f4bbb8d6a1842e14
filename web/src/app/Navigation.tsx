import { Box, Text } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import {
  IconBox,
  IconCompass,
  IconCpu,
  IconHome,
  IconPlayerPlay,
  IconSitemap,
} from "@/components/icons";
import classes from "./Navigation.module.css";

const ITEMS = [
  { to: "/", name: "home", Icon: IconHome },
  { to: "/explore", name: "explore", Icon: IconCompass },
  { to: "/runs", name: "runs", Icon: IconPlayerPlay },
  { to: "/models", name: "models", Icon: IconBox },
  { to: "/graphs", name: "graphs", Icon: IconSitemap },
  { to: "/targets", name: "targets", Icon: IconCpu },
] as const;

/** The links to the pages, with the workspace and the version below. */
export function Navigation() {
  const { t } = useTranslation();
  const overview = api.useQuery("get", "/api/v1/overview").data;
  return (
    <>
      <ul className={classes.list}>
        {ITEMS.map(({ to, name, Icon }) => (
          <li key={to}>
            <Link
              to={to}
              className={classes.item}
              activeOptions={{ exact: to === "/", includeSearch: false }}
            >
              <Icon size={18} stroke={1.7} aria-hidden="true" />
              {t(`navigation.${name}`)}
              {name === "runs" && overview !== undefined && overview.running > 0 && (
                <span className={classes.count}>
                  {overview.running} {t("state.running")}
                </span>
              )}
            </Link>
          </li>
        ))}
      </ul>
      {overview !== undefined && (
        <Box className={classes.foot}>
          {overview.workspace_name !== null && (
            <Text size="xs" fw={550} truncate="end" title={overview.workspace_name}>
              {overview.workspace_name}
            </Text>
          )}
          <Text size="xs" c="dimmed">
            graphbox {overview.version}
          </Text>
        </Box>
      )}
    </>
  );
}
