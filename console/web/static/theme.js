// Runs before the first paint, so that no page flashes in the wrong colours. The switch itself is in console.js.
(() => {
  try {
    const chosen = localStorage.getItem("milepost-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* a browser that stores nothing follows the system */ }
})();
