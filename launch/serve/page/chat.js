// Chat: the conversation, its answers, and the comparison of the same answer without and with speculation.

const PROPOSERS = { draft: "of the draft", exit: "of the early exit", lookup: "found earlier in the text", heads: "of the heads",
  forced: "forced by the grammar" };
const chat = { messages: [], asked: [], running: null, last: null };

// One answer on the page: its text, its rate, its failure.
class AnswerView {
  constructor(parent, title) {
    this.box = parent.appendChild(element("div", "answer busy"));
    if (title) this.box.append(element("h3", "", title));
    this.body = this.box.appendChild(element("div", "text"));
    this.told = this.box.appendChild(element("p", "told"));
    this.text = "";
    this.tokens = 0;
    this.firstTokens = 0;
    this.accepted = new Map();  // tokens by their proposer
  }

  add(content, spans) {
    const now = performance.now();
    const before = this.tokens;
    for (const span of spans || [{ text: content, tokens: 1, accepted: false }]) {
      this.tokens += span.tokens;
      if (span.accepted) this.accepted.set(span.by, (this.accepted.get(span.by) || 0) + span.tokens);
      this.addSpan(span.text, span.accepted ? "accepted by-" + span.by : "");
    }
    this.text += content;
    if (this.firstAt === undefined) {
      this.firstAt = now;
      this.firstTokens = this.tokens;
    }
    if (this.tokens !== before) this.lastAt = now;
    this.tell();
  }

  addSpan(text, kind) {
    const last = this.body.lastChild;
    if (last && last.className === kind) last.firstChild.appendData(text);
    else if (text) this.body.append(element("span", kind, text));
  }

  // Tokens/s after the first event; 0 while there is none.
  rate() {
    const seconds = (this.lastAt - this.firstAt) / 1000;
    return seconds > 0 ? (this.tokens - this.firstTokens) / seconds : 0;
  }

  tell(end = "") {
    const shown = [element("b", "", number(this.rate(), 1) + " tokens/s"), ", " + number(this.tokens) + " tokens"];
    // The legend of the shades: how many of the tokens were candidates, and whose.
    for (const [name, count] of this.accepted) {
      shown.push(shown.length === 2 ? ", accepted candidates: " : " ",
        element("span", "accepted by-" + name, number(count) + " " + PROPOSERS[name]));
    }
    this.told.replaceChildren(...shown, end);
  }

  end(report, reason) {
    this.box.classList.remove("busy");
    const more = [];
    if (report) more.push(number(report.batches) + " passes of the target");
    if (report && report.cached_tokens) more.push(number(report.cached_tokens) + " tokens of the prompt cached");
    if (report && report.replays) more.push("continued after " + report.replays + " lost stages");
    if (reason === "length") more.push("cut at the limit");
    this.tell(more.length ? ", " + more.join(", ") : "");
  }

  fail(what) {
    this.box.classList.remove("busy");
    const failure = element("p", "failure", what);
    failure.setAttribute("role", "alert");
    this.box.append(failure);
  }
}

// Streams one answer into the view. The report of the server, or nothing if it failed or was stopped.
async function stream(view, body, signal) {
  let report = null;
  let reason = null;
  try {
    const response = await ask("v1/chat/completions", {
      method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    if (!response.ok) {
      view.fail(await failureOf(response));
      return null;
    }
    for await (const event of eventsOf(response)) {
      if (event.error) {
        view.fail(event.error.message);
        return null;
      }
      const choice = event.choices[0];
      const own = event.paceline || {};
      if (choice && choice.delta.content) {
        view.add(choice.delta.content, own.spans);
        follow(view.told);
      }
      if (choice && choice.finish_reason) reason = choice.finish_reason;
      if (own.method) report = own;
    }
  } catch (error) {
    if (signal.aborted) view.fail("Stopped.");
    else view.fail("The connection to the server was lost: " + error.message);
    return null;
  }
  if (!reason) {
    view.fail("The stream ended before its answer did.");
    return null;
  }
  view.end(report, reason);
  return report;
}

function settings() {
  const seed = at("seed").value;
  return {
    temperature: Number(at("temperature").value) || 0,
    max_tokens: Math.max(1, Math.floor(Number(at("tokens").value)) || 256),
    seed: seed === "" ? Math.floor(Math.random() * 2 ** 32) : Math.floor(Number(seed)),
    speculation: document.querySelector("input[name=speculation]:checked").value,
  };
}

function bodyOf(set, speculation, salt) {
  const body = {
    messages: chat.messages, stream: true, temperature: set.temperature, seed: set.seed,
    max_tokens: set.max_tokens, paceline: { speculation, spans: true },
  };
  if (salt) body.cache_salt = salt;
  return body;
}

// The same prompt twice, one after the other: beside each other they would share the machine. A salt keeps
// the second from finding the prompt of the first in the cache.
async function compare(pair, set, signal) {
  const plain = new AnswerView(pair, "without speculation");
  const salt = "page-" + Math.floor(Math.random() * 2 ** 48).toString(36);
  const first = await stream(plain, bodyOf(set, "off", salt + "-off"), signal);
  if (!first) return { view: plain, done: false };
  const fast = new AnswerView(pair, "with speculation");
  follow(fast.told, true);
  const second = await stream(fast, bodyOf(set, "on", salt + "-on"), signal);
  if (!second) return { view: fast, done: false };
  const verdict = element("p", "told verdict");
  const times = plain.rate() > 0 ? fast.rate() / plain.rate() : 0;
  verdict.append(element("b", "", number(times, 2) + " times"), " the speed: ",
    number(plain.rate(), 1) + " tokens/s without, " + number(fast.rate(), 1) + " with speculation; the text is ",
    element("b", "", plain.text === fast.text ? "the same" : "NOT the same"), ".");
  pair.after(verdict);
  follow(verdict);
  return { view: fast, done: true };
}

// Asks for the answer to the last of chat.messages.
async function answer() {
  const set = settings();
  const abort = new AbortController();
  chat.running = abort;
  buttons();
  const turn = chat.last.box;
  const pair = turn.appendChild(element("div", "pair"));
  follow(pair, true);
  let result;
  if (set.speculation === "compare") {
    result = await compare(pair, set, abort.signal);
  } else {
    const view = new AnswerView(pair, "");
    result = { view, done: Boolean(await stream(view, bodyOf(set, set.speculation), abort.signal)) };
  }
  chat.running = null;
  chat.last.text = result.view.text;
  at("announce").textContent = result.done ? result.view.text : "The answer failed or was stopped.";
  buttons();
  follow(result.view.box.lastChild);
}

function begin(prompt) {
  if (chat.last) chat.messages.push({ role: "assistant", content: chat.last.text || "" });
  chat.messages.push({ role: "user", content: prompt });
  const box = at("answers").appendChild(element("article", "turn"));
  box.append(element("p", "asked", prompt));
  chat.last = { box, text: "" };
  at("empty").hidden = true;
  answer();
}

function retry() {
  if (!chat.last || chat.running) return;
  const [asked] = chat.last.box.children;
  chat.last.box.replaceChildren(asked);
  answer();
}

function clear() {
  chat.messages = [];
  chat.last = null;
  at("empty").hidden = false;
  at("answers").querySelectorAll(".turn").forEach((turn) => turn.remove());
  buttons();
  at("prompt").focus();
}

function buttons() {
  const busy = Boolean(chat.running);
  at("send").disabled = busy;
  at("stop").disabled = !busy;
  at("retry").disabled = busy || !chat.last;
  at("clear").disabled = busy || !chat.last;
  at("answers").setAttribute("aria-busy", String(busy));
}

// Scrolls to the end of what grows, unless the reader looks at something else.
function follow(end, always = false) {
  const box = at("answers").getBoundingClientRect();
  const place = end.getBoundingClientRect().bottom;
  const near = place > box.top && place < box.bottom + 200;
  if (always || near) end.scrollIntoView({ block: "nearest" });
}
