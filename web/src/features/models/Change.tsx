import { useFormat } from "@/i18n/format";
import classes from "./Change.module.css";

/** Changes smaller than this are noise, neither good nor bad. */
const NOTABLE = 0.005;

interface ChangeProps {
  from: number;
  to: number;
  lowerIsBetter?: boolean;
}

/** A relative change, toned by whether it is for the better; the sign says the same. */
export function Change({ from, to, lowerIsBetter = false }: ChangeProps) {
  const format = useFormat();
  if (from === 0) return null;
  const change = (to - from) / Math.abs(from);
  const better = lowerIsBetter ? change < 0 : change > 0;
  const tone = Math.abs(change) < NOTABLE ? "same" : better ? "better" : "worse";
  return (
    <span className={classes.change} data-tone={tone}>
      {format.signedPercent(change)}
    </span>
  );
}
