import { useTranslation } from "react-i18next";
import { PageHeader } from "@/components/PageHeader";
import { TextLink } from "@/components/TextLink";

/** Shown for an address that is no page. */
export function NotFoundPage() {
  const { t } = useTranslation();
  return (
    <>
      <PageHeader title={t("notFound.title")} subtitle={t("notFound.text")} />
      <TextLink to="/">{t("notFound.home")}</TextLink>
    </>
  );
}
