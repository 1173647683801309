"use strict";
// The page of `paceline serve`: how the server is asked. The four scripts are one: server.js, chat.js,
// engine.js, controls.js. Texts of the model and of the server are only ever set as textContent.

const KEY_NAME = "paceline-key";

const at = (id) => document.getElementById(id);

function key() {
  try { return sessionStorage.getItem(KEY_NAME) || ""; } catch { return memory.key; }
}
const memory = { key: "" };
function keepKey(value) {
  memory.key = value;
  try {
    if (value) sessionStorage.setItem(KEY_NAME, value); else sessionStorage.removeItem(KEY_NAME);
  } catch { /* a browser without storage: the key lives as long as the page */ }
}

function ask(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (key()) headers.Authorization = "Bearer " + key();
  return fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
}

async function failureOf(response) {
  if (response.status === 401) showKey(true);
  try {
    const error = (await response.json()).error;
    return response.status + ": " + error.message;
  } catch {
    return "the server answered " + response.status;
  }
}

// The JSON of each event of a stream; comments are skipped.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data.length && data[0] !== "[DONE]") yield JSON.parse(data.join("\n"));
    }
  }
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function number(value, digits = 0) {
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
