import "i18next";
import type { english } from "./resources-en";

declare module "i18next" {
  interface CustomTypeOptions {
    defaultNS: "frame";
    resources: typeof english;
  }
}
