// Runs before the first paint, so that a dark page does not flash light. Kept outside index.html
// because the content security policy forbids inline scripts. The key is the one Mantine writes.
(function () {
  var stored = null;
  try {
    stored = window.localStorage.getItem("mantine-color-scheme-value");
  } catch {
    // Storage may be blocked; the system's preference is used then.
  }
  var dark =
    stored === "dark" ||
    (stored !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();
