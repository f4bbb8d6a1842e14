import { useFormat } from "@/i18n/format";
import { fieldLabel, fieldValue, flattenFields } from "./field-text";
import classes from "./FieldList.module.css";

/** The values of a report whose fields this page does not know beforehand. */
export function FieldList({ fields }: { fields: Record<string, unknown> }) {
  const format = useFormat();
  return (
    <dl className={classes.list}>
      {flattenFields(fields).map((field) => (
        <div key={field.name} className={classes.field}>
          <dt>{fieldLabel(field.name)}</dt>
          <dd>{fieldValue(field, format)}</dd>
        </div>
      ))}
    </dl>
  );
}
