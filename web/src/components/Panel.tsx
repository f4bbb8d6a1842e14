import { Card, Group, Text, Title } from "@mantine/core";
import { type ReactNode, useId } from "react";
import classes from "./Panel.module.css";

interface PanelProps {
  /** Left out where the page's heading says the same; then `label` names the region. */
  title?: ReactNode;
  /** Names the region where the title alone is not unique on its page. */
  label?: string;
  note?: ReactNode;
  actions?: ReactNode;
  /** Whether the content touches the panel's edges, as tables do. */
  flush?: boolean;
  children: ReactNode;
}

/** A titled surface. */
export function Panel({ title, label, note, actions, flush = false, children }: PanelProps) {
  const headingId = useId();
  return (
    <Card
      component="section"
      {...(label === undefined ? { "aria-labelledby": headingId } : { "aria-label": label })}
      className={classes.panel}
      p={0}
    >
      {title !== undefined && (
        <Group className={classes.head} justify="space-between" gap="xs" wrap="nowrap">
          <div>
            <Title order={2} id={headingId} className={classes.title}>
              {title}
            </Title>
            {note !== undefined && (
              <Text size="xs" c="dimmed">
                {note}
              </Text>
            )}
          </div>
          {actions}
        </Group>
      )}
      {flush ? (
        <div className={classes.flush}>{children}</div>
      ) : (
        <div className={classes.content}>{children}</div>
      )}
    </Card>
  );
}
