import { Stack, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";
import { CommandLine } from "./CommandLine";
import classes from "./EmptyState.module.css";

interface EmptyStateProps {
  title: string;
  text: string;
  command?: string;
  icon?: ReactNode;
  children?: ReactNode;
}

/** Nothing is here yet: one sentence, and the command that changes it. */
export function EmptyState({ title, text, command, icon, children }: EmptyStateProps) {
  return (
    <Stack className={classes.empty} align="center" gap="sm">
      {icon !== undefined && <div className={classes.icon}>{icon}</div>}
      <Title order={2} fz="lg">
        {title}
      </Title>
      <Text c="dimmed" maw="34rem" ta="center">
        {text}
      </Text>
      {command !== undefined && <CommandLine command={command} />}
      {children}
    </Stack>
  );
}
