// A form is sent once: its buttons rest until the answer is there. Filters with data-now are sent when a choice is made.
export function forms(root) {
  for (const form of root.querySelectorAll("form:not([data-ready])")) {
    form.dataset.ready = "";
    form.addEventListener("submit", () => {
      if (form.method === "get") return;
      setTimeout(() => form.querySelectorAll("button").forEach((button) => { button.disabled = true; }));
      form.setAttribute("aria-busy", "true");
    });
    if ("now" in form.dataset) {
      form.querySelectorAll("select, input[type=checkbox]").forEach((field) => field.addEventListener("change", () => form.requestSubmit()));
    }
    // Whole numbers of ticked rows, and one box for all of them.
    const all = form.querySelector("[data-all]");
    if (all) all.addEventListener("change", () => form.querySelectorAll("input[name=one]").forEach((box) => { box.checked = all.checked; }));
  }
}
// A page that the browser takes out of its memory, after Back, has its buttons again.
window.addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  document.querySelectorAll("form[aria-busy]").forEach((form) => {
    form.removeAttribute("aria-busy");
    form.querySelectorAll("button").forEach((button) => { button.disabled = false; });
  });
});
