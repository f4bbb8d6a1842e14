import { Anchor, type AnchorProps } from "@mantine/core";
import { createLink } from "@tanstack/react-router";
import type { AnchorHTMLAttributes, Ref } from "react";

type LinkAttributes = Omit<AnchorHTMLAttributes<HTMLAnchorElement>, keyof AnchorProps>;

interface TextLinkProps extends AnchorProps, LinkAttributes {
  ref?: Ref<HTMLAnchorElement>;
}

function AnchorWithReference(props: TextLinkProps) {
  return <Anchor {...props} />;
}

/** A link to a page of ours. */
export const TextLink = createLink(AnchorWithReference);
