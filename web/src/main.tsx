import "./app/component-styles";
import "./app/global.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { restoreAddress } from "./api/sign-in";
import { App } from "./app/App";
import { setUpLanguages } from "./i18n/setup";

const root = document.getElementById("root");
if (!root) throw new Error("index.html has no element with the id root");

restoreAddress();
await setUpLanguages();
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
