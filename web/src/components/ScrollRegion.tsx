import { type ReactNode, useLayoutEffect, useRef, useState } from "react";
import classes from "./ScrollRegion.module.css";

/** A region that scrolls sideways where its content is too wide, by keyboard too. */
export function ScrollRegion({ children }: { children: ReactNode }) {
  const element = useRef<HTMLDivElement>(null);
  const [scrolls, setScrolls] = useState(false);
  // Measured before the first paint: no frame shows a region that scrolls but cannot take the focus.
  useLayoutEffect(() => {
    const region = element.current;
    if (!region) return;
    const measure = () => setScrolls(region.scrollWidth > region.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(region);
    for (const child of region.children) observer.observe(child);
    return () => observer.disconnect();
  }, [children]);
  return (
    <div
      ref={element}
      className={classes.region}
      // A region that scrolls has to take the focus, as nothing in it may.
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
      tabIndex={scrolls ? 0 : undefined}
    >
      {children}
    </div>
  );
}
