// What every page has. Each module works on what is there and on what a live update brings; no page needs any of them.
import { times } from "./times.js";
import { copies } from "./copy.js";
import { keys } from "./keys.js";
import { forms } from "./forms.js";
import { live } from "./live.js";

function theme() {
  const button = document.querySelector("[data-theme-switch]");
  if (!button) return;
  button.hidden = false;
  const root = document.documentElement;
  const now = () => root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const say = () => button.setAttribute("aria-label", `Show in ${now() === "dark" ? "light" : "dark"} colours`);
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    try { localStorage.setItem("milepost-theme", root.dataset.theme); } catch { /* for this page only */ }
    say();
  });
  say();
}

function fresh(root) {
  times(root);
  copies(root);
  forms(root);
}

theme();
fresh(document);
keys();
live(fresh);
document.addEventListener("click", (event) => {
  const box = event.target.closest(".milepost g[data-name]");
  const row = box && document.getElementById(`step-${box.dataset.name}`);
  if (row) row.scrollIntoView({ block: "center" }), row.focus({ preventScroll: true });
  for (const open of document.querySelectorAll("details.more[open]")) if (!open.contains(event.target)) open.open = false;
});
