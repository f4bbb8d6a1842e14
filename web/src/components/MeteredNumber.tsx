import { Meter } from "./Meter";
import classes from "./MeteredNumber.module.css";

/** A number in a table, with a bar that compares it with the others; on narrow screens without. */
export function MeteredNumber({ share, text }: { share: number; text: string }) {
  return (
    <span className={classes.cell}>
      <Meter share={share} />
      <span>{text}</span>
    </span>
  );
}
