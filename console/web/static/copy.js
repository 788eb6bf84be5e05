// Buttons that copy: <button class="copy" data-copy="text">. They are there only where the browser lets a page copy.
async function put(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = Object.assign(document.createElement("textarea"), { value: text });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function copies(root) {
  for (const button of root.querySelectorAll("button[data-copy]:not([data-ready])")) {
    button.dataset.ready = "";
    button.hidden = false;
    button.addEventListener("click", async () => {
      await put(button.dataset.copy);
      button.dataset.done = "";
      setTimeout(() => delete button.dataset.done, 1200);
    });
  }
}
