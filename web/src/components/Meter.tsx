import classes from "./Meter.module.css";

interface MeterProps {
  /** From 0 to 1. */
  share: number;
  tone?: "accent" | "quiet";
}

/** A thin bar beside a number that says the same; hidden from screen readers for that reason. */
export function Meter({ share, tone = "accent" }: MeterProps) {
  const percent = Math.max(0, Math.min(1, share)) * 100;
  return (
    <span className={classes.track} aria-hidden="true">
      <span className={classes.fill} data-tone={tone} style={{ width: `${percent}%` }} />
    </span>
  );
}
