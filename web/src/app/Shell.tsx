import { AppShell, Burger, Group, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { Connection } from "./Connection";
import { LanguageSwitch } from "./LanguageSwitch";
import { Logo } from "./Logo";
import { Navigation } from "./Navigation";
import { SchemeSwitch } from "./SchemeSwitch";
import classes from "./Shell.module.css";
import { useSearchKey } from "./use-search-key";

/** The frame of every page: header, navigation, content. */
export function Shell() {
  const { t } = useTranslation();
  const [opened, { toggle, close }] = useDisclosure(false);
  const main = useRef<HTMLElement>(null);
  const path = useRouterState({ select: ({ location }) => location.pathname });
  const searchWanted = useRouterState({
    select: ({ location }) => location.state.focusSearch === true,
  });
  const shownPath = useRef(path);
  useSearchKey();

  // A new page starts at its content, for keyboards and screen readers as after a full page load.
  useEffect(() => {
    if (shownPath.current === path) return;
    shownPath.current = path;
    if (!searchWanted) main.current?.focus({ preventScroll: true });
  }, [path, searchWanted]);

  return (
    <AppShell
      header={{ height: 52 }}
      navbar={{ width: 208, breakpoint: "sm", collapsed: { mobile: !opened } }}
      padding={0}
    >
      <a
        className={classes.skip}
        href="#content"
        onClick={(event) => {
          event.preventDefault(); // The address behind the # is the route.
          main.current?.focus();
        }}
      >
        {t("navigation.skip")}
      </a>
      <AppShell.Header className={classes.header}>
        <Group h="100%" px="md" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger
              opened={opened}
              onClick={toggle}
              hiddenFrom="sm"
              size="sm"
              aria-label={opened ? t("navigation.close") : t("navigation.open")}
            />
            <Logo />
            <Text fw={650} fz="lg" className={classes.name}>
              graphbox
            </Text>
          </Group>
          <Group gap="xs" wrap="nowrap">
            <Connection />
            <LanguageSwitch />
            <SchemeSwitch />
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar
        className={classes.navigation}
        data-opened={opened}
        aria-label={t("navigation.label")}
        onClick={close}
      >
        <Navigation />
      </AppShell.Navbar>
      <AppShell.Main id="content" ref={main} tabIndex={-1} className={classes.main}>
        <div className={classes.content}>
          <Outlet />
        </div>
      </AppShell.Main>
    </AppShell>
  );
}
