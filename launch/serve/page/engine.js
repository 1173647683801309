// Engine: what /health, /metrics and /props say, once a second, as figures, a time line and bars.

// Names in GET /metrics.
const METRICS = {
  running: "paceline_requests_running",
  waiting: "paceline_requests_waiting",
  generated: "paceline_generated_tokens_total",
  cached: "paceline_cached_tokens_total",
  replays: "paceline_replays_total",
  preemptions: "paceline_preemptions_total",
  stageUp: "paceline_stage_up",
  busy: "paceline_stage_busy_seconds_total",
  restarts: "paceline_stage_restarts_total",
  pages: "paceline_kv_pages",
  pagesUsed: "paceline_kv_pages_used",
  drafts: "paceline_spec_num_drafts_total",
  drafted: "paceline_spec_num_draft_tokens_total",
  accepted: "paceline_spec_num_accepted_tokens_total",
  acceptedAt: "paceline_spec_num_accepted_tokens_per_pos_total",
};
const POLL_MS = 1000;
const SAMPLES = 60;

const engine = { samples: [], stages: [], counts: {}, last: null };

// {name: [{labels, value}]} of Prometheus' text format.
function readMetrics(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const parts = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!parts) continue;
    const labels = {};
    for (const [, name, value] of (parts[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    (found[parts[1]] ||= []).push({ labels, value: Number(parts[3]) });
  }
  return found;
}

function valueOf(metrics, name) {
  const found = metrics[name];
  return found ? found.reduce((sum, each) => sum + each.value, 0) : undefined;
}

function showState(name, text) {
  const state = at("state");
  if (state.textContent !== text) state.textContent = text;
  state.className = "state " + name;
}

function showMetrics(metrics, rate) {
  const of = (name) => valueOf(metrics, name);
  const drafts = of(METRICS.drafts);
  const rows = [
    ["tokens/s", rate === undefined ? undefined : number(rate, 1)],
    ["running", of(METRICS.running)], ["waiting", of(METRICS.waiting)],
    ["tokens a pass", drafts ? number(1 + of(METRICS.accepted) / drafts, 2) : undefined],
    ["tokens made", of(METRICS.generated)], ["cached", of(METRICS.cached)],
    ["replays", of(METRICS.replays)], ["preemptions", of(METRICS.preemptions)],
    ["restarts", of(METRICS.restarts)],
    ["KV pages", of(METRICS.pages) === undefined ? undefined
      : number(of(METRICS.pagesUsed)) + " / " + number(of(METRICS.pages))],
  ];
  at("figures").replaceChildren(...rows.filter((row) => row[1] !== undefined).map(([name, value]) => {
    const box = element("div");
    box.append(element("dt", "", name), element("dd", "", typeof value === "number" ? number(value) : value));
    return box;
  }));
}

function showPositions(metrics) {
  const drafts = valueOf(metrics, METRICS.drafts) || 0;
  const counts = (metrics[METRICS.acceptedAt] || []).filter((each) => each.value > 0);
  at("positions").replaceChildren(...counts.slice(0, 16).map((each) => {
    const part = drafts ? each.value / drafts : 0;
    const row = element("li");
    const bar = shape("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    bar.append(shape("rect", { x: 0, y: 0, width: 100 * part, height: 10 }));
    row.append(element("span", "", String(Number(each.labels.position) + 1)), bar,
      element("span", "", number(100 * part) + " %"));
    return row;
  }));
  const drafted = valueOf(metrics, METRICS.drafted);
  at("acceptance").textContent = drafted
    ? number(valueOf(metrics, METRICS.accepted)) + " of " + number(drafted) + " candidates accepted, by "
      + number(drafts) + " passes with candidates; answers that are over"
    : "No candidate was verified yet.";
}

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}

// A row for each process, the darker the busier, and the rate of tokens below.
function showTimeline() {
  const width = 330, left = 92, row = 16, rateHeight = 36;
  const names = engine.stages.map((stage) => stage.labels.process);
  const height = names.length * row + rateHeight + 4;
  const svg = at("timeline");
  const step = (width - left - 4) / SAMPLES;
  const x = (index) => left + (SAMPLES - engine.samples.length + index) * step;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  names.forEach((name, line) => {
    const label = shape("text", { x: 4, y: line * row + 12 });
    label.textContent = name.length > 15 ? name.slice(0, 14) + "\u2026" : name;
    svg.append(label);
    engine.samples.forEach((sample, index) => {
      const stage = sample.stages[name];
      if (!stage) return;
      const bar = shape("rect", { class: stage.up ? "up" : "down", x: x(index), y: line * row + 3,
        width: step + 0.2, height: row - 5 });
      if (stage.up) bar.setAttribute("fill-opacity", 0.2 + 0.8 * stage.busy);
      svg.append(bar);
    });
  });
  const top = names.length * row + 4;
  const most = Math.max(1, ...engine.samples.map((sample) => sample.rate || 0));
  const points = engine.samples.map((sample, index) =>
    `${x(index) + step / 2},${top + (rateHeight - 6) * (1 - (sample.rate || 0) / most)}`);
  const label = shape("text", { x: 4, y: top + 12 });
  label.textContent = "max " + number(most) + " t/s";
  svg.append(label, shape("polyline", { class: "rate", points: points.join(" ") }));
}

function showStages(metrics) {
  engine.stages = metrics[METRICS.stageUp] || [];
  const lost = engine.stages.filter((stage) => !stage.value).map((stage) => stage.labels.process);
  at("stages").textContent = engine.stages.length + (engine.stages.length === 1 ? " process" : " processes")
    + (lost.length ? "; restarting: " + lost.join(", ") : "; all running");
}

// By process: whether it ran all the time since the last look, and what part of the time it was busy. One that
// was replaced in between is back before anyone sees it gone: the counter of restarts tells.
function stagesOf(metrics, seconds) {
  const risen = (name, process) => {
    const value = (metrics[name] || []).find((each) => each.labels.process === process)?.value || 0;
    const before = engine.counts[name + process];
    engine.counts[name + process] = value;
    return before === undefined ? 0 : Math.max(0, value - before);
  };
  return Object.fromEntries(engine.stages.map(({ labels: { process }, value }) => [process, {
    up: risen(METRICS.restarts, process) === 0 && value > 0,
    busy: seconds > 0 ? Math.min(1, risen(METRICS.busy, process) / seconds) : 0,
  }]));
}

function take(text) {
  const metrics = readMetrics(text);
  const now = performance.now();
  const made = valueOf(metrics, METRICS.generated);
  const before = engine.last;
  engine.last = { now, made };
  const rate = before && made >= before.made ? (made - before.made) / ((now - before.now) / 1000) : undefined;
  showStages(metrics);
  engine.samples.push({ stages: stagesOf(metrics, before ? (now - before.now) / 1000 : 0), rate });
  if (engine.samples.length > SAMPLES) engine.samples.shift();
  showMetrics(metrics, rate);
  showPositions(metrics);
  showTimeline();
}

async function showModel() {
  const response = await ask("props");
  if (!response.ok) return;
  const props = await response.json();
  at("model").textContent = `${props.model_alias}, method ${props.method}, context ${number(props.n_ctx)}`;
  at("why").textContent = props.method_reason ? "Why this method: " + props.method_reason : "";
  document.title = "Paceline: " + props.model_alias;
  engine.known = true;
  engine.changes = props.method_changes;
}

async function look() {
  try {
    const health = await (await ask("health", { signal: AbortSignal.timeout(5000) })).json();
    const lost = health.lost_stages ? ": " + health.lost_stages : "";
    const wait = health.waiting_for ? "; waiting for " + health.waiting_for : "";
    showState(health.status, health.status + lost + (health.error ? ": " + health.error : "") + wait);
    const known = engine.known && engine.changes === health.method_changes;
    if (!known && health.status !== "loading") await showModel();
    const response = await ask("metrics", { signal: AbortSignal.timeout(5000) });
    if (response.ok) take(await response.text());
    else if (response.status === 401) {
      showKey(true);
      at("stages").textContent = "The server wants an API key.";
    }
  } catch {
    showState("unreachable", "no connection");
    engine.last = null;
    engine.known = false;
  }
}

async function watch() {
  while (true) {
    if (!document.hidden) await look();
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}
