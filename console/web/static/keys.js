// Keys: / looks for something, j and k go through a list, Enter opens the row, g then a letter goes to a page, ? lists them.
const typing = (event) => event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
const rows = () => [...document.querySelectorAll("tr[data-row]")];

function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("at"));
  const next = all[Math.min(all.length - 1, Math.max(0, at + by))];
  all.forEach((row) => row.classList.toggle("at", row === next));
  (next.querySelector("a") || next).focus();
  next.scrollIntoView({ block: "nearest" });
}

export function keys() {
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (typing(event)) event.target.blur();
      for (const open of document.querySelectorAll("details.more[open]")) open.open = false;
      return;
    }
    if (typing(event)) return;
    if (Date.now() - going < 1200) {
      going = 0;
      const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
      if (link) link.click();
      return;
    }
    const act = {
      "/": () => document.querySelector("#find")?.focus(),
      j: () => move(1), k: () => move(-1),
      g: () => { going = Date.now(); },
      "?": () => document.querySelector("#keys")?.showModal(),
    }[event.key];
    if (act) event.preventDefault(), act();
  });
}
