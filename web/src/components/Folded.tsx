import { Collapse, UnstyledButton } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { ReactNode } from "react";

/** Content that is hidden until its title is clicked. */
export function Folded({ title, children }: { title: string; children: ReactNode }) {
  const [open, { toggle }] = useDisclosure(false);
  return (
    <div>
      <UnstyledButton fz="xs" c="dimmed" td="underline" onClick={toggle} aria-expanded={open}>
        {title}
      </UnstyledButton>
      <Collapse expanded={open}>{children}</Collapse>
    </div>
  );
}
