import { Box, Group, Text, Title } from "@mantine/core";
import { type ReactNode, useEffect } from "react";

interface PageHeaderProps {
  title: string;
  subtitle?: ReactNode;
  /** Above the title: the way back. */
  back?: ReactNode;
  /** Beside the title: badges. */
  marks?: ReactNode;
  actions?: ReactNode;
}

/** The head of a page; also names the browser's tab. */
export function PageHeader({ title, subtitle, back, marks, actions }: PageHeaderProps) {
  useEffect(() => {
    document.title = `${title} · graphbox`;
  }, [title]);
  return (
    <Group justify="space-between" align="flex-end" mb="lg" gap="sm">
      <Box>
        {back}
        <Group gap="sm" align="center">
          <Title order={1} fz="1.375rem" lh={1.25}>
            {title}
          </Title>
          {marks}
        </Group>
        {subtitle !== undefined && (
          <Text c="dimmed" size="sm" mt={2}>
            {subtitle}
          </Text>
        )}
      </Box>
      {actions}
    </Group>
  );
}
