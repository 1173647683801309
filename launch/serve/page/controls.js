// Controls: keys, buttons, forms; starts the page.

function showKey(open) {
  const form = at("key-form");
  if (form.hidden === !open) return;
  form.hidden = !open;
  at("key-show").setAttribute("aria-expanded", String(open));
  if (open && !chat.running) at("key").focus();
}

at("key-show").addEventListener("click", () => showKey(at("key-form").hidden));
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(at("key").value.trim());
  at("key").value = "";
  showKey(false);
  look();
});
at("key-forget").addEventListener("click", () => {
  keepKey("");
  at("key").value = "";
});
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const prompt = at("prompt").value.trim();
  if (!prompt || chat.running) return;
  at("prompt").value = "";
  begin(prompt);
});
at("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("ask").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && chat.running) chat.running.abort();
});
at("stop").addEventListener("click", () => chat.running && chat.running.abort());
at("retry").addEventListener("click", retry);
at("clear").addEventListener("click", clear);
buttons();
watch();
