import { Text } from "@mantine/core";
import type { ReactNode } from "react";

/** A short value with a quiet remark below it. */
export function Figure({ value, children }: { value: ReactNode; children?: ReactNode }) {
  return (
    <>
      <Text span inherit display="block">
        {value}
      </Text>
      {children !== undefined && (
        <Text span size="xs" c="dimmed" fw={400} display="block">
          {children}
        </Text>
      )}
    </>
  );
}
