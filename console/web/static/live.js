// Live by server-sent events: the server says that something changed, the page is fetched anew, and each element with
// data-live and an id is replaced where it differs. Nothing that somebody is writing in, or has open, is lost.
const busy = (part) => part.contains(document.activeElement) && document.activeElement.closest("input, textarea, select, form")
  || [...part.querySelectorAll("textarea, input:not([type=hidden])")].some((field) => field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue);

function swap(old, young) {
  if (old.dataset.same === young.outerHTML || busy(old)) return false;
  const open = new Set([...old.querySelectorAll("details[open][id]")].map((one) => one.id));
  const known = new Set([...old.querySelectorAll("[data-row]")].map((row) => row.dataset.row));
  const at = document.activeElement?.id;
  const scrolled = [...old.querySelectorAll(".scroll, .drawing")].map((one) => [one.scrollLeft, one.scrollTop]);
  young.dataset.same = young.outerHTML;
  young.querySelectorAll("details[id]").forEach((one) => { if (open.has(one.id)) one.open = true; });
  if (known.size) young.querySelectorAll("[data-row]").forEach((row) => { if (!known.has(row.dataset.row)) row.classList.add("fresh"); });
  old.replaceWith(young);
  young.querySelectorAll(".scroll, .drawing").forEach((one, n) => { if (scrolled[n]) [one.scrollLeft, one.scrollTop] = scrolled[n]; });
  if (at && !document.activeElement?.id) document.getElementById(at)?.focus({ preventScroll: true });
  return true;
}

export function live(fresh) {
  const topic = document.body.dataset.live;
  if (!topic || !window.EventSource) return;
  const dot = document.querySelector(".livedot");
  const say = (state, words) => { if (dot) dot.hidden = false, dot.dataset.state = state, dot.textContent = words; };
  document.querySelectorAll("[data-live][id]").forEach((part) => { part.dataset.same = part.outerHTML; });
  let running = false, again = false, last = 0;

  async function look() {
    if (running || document.hidden) { again = true; return; }
    running = true;
    // At most one look in two seconds, however much happens.
    await new Promise((done) => setTimeout(done, Math.max(0, last + 2000 - Date.now())));
    last = Date.now(), again = false;
    try {
      const answer = await fetch(location.href, { headers: { "X-Live": "1" }, credentials: "same-origin", cache: "no-store" });
      if (answer.redirected && new URL(answer.url).pathname !== location.pathname) { location.reload(); return; }
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live][id]")) {
        const young = page.getElementById(old.id);
        if (young && swap(old, document.adoptNode(young))) fresh(document.getElementById(old.id));
      }
      say("live", "live");
    } catch { say("lost", "not up to date"); again = true; }
    running = false;
    if (again && !document.hidden) look();
  }

  const source = new EventSource(document.body.dataset.liveFrom + encodeURIComponent(topic));
  // What moves may have moved between the page's making and now: it is looked at once more.
  source.addEventListener("open", () => { say("live", "live"); if (document.querySelector("[data-moving]")) look(); });
  source.addEventListener("changed", look);
  source.addEventListener("error", () => say("lost", source.readyState === EventSource.CLOSED ? "not live" : "connecting…"));
  document.addEventListener("visibilitychange", () => { if (!document.hidden && again) look(); });
  window.addEventListener("pagehide", () => source.close());
}
