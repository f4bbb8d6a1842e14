import { SegmentedControl, useMantineColorScheme, VisuallyHidden } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { IconDeviceDesktop, IconMoon, IconSun } from "@/components/icons";
import classes from "./SchemeSwitch.module.css";

const SCHEMES = [
  { name: "light", Icon: IconSun },
  { name: "auto", Icon: IconDeviceDesktop },
  { name: "dark", Icon: IconMoon },
] as const;

/** Switches between light, dark, and what the system asks for. */
export function SchemeSwitch() {
  const { t } = useTranslation();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <SegmentedControl
      size="xs"
      aria-label={t("scheme.label")}
      data={SCHEMES.map(({ name, Icon }) => ({
        value: name,
        label: (
          <span className={classes.option} title={t(`scheme.${name}`)}>
            <Icon size={15} aria-hidden="true" />
            <VisuallyHidden>{t(`scheme.${name}`)}</VisuallyHidden>
          </span>
        ),
      }))}
      value={colorScheme}
      onChange={(scheme) => setColorScheme(scheme)}
    />
  );
}
