#!/usr/bin/env python3
"""What large models gain from drafting without a second model: the papers' own M and alpha in simulated time.

    bench/self_speculation_accounting.py --out bench/results/self-speculation-accounting.tsv
        [--picture FILE.svg] [--paceline PROGRAM] [--papers SWIFT,CLaSp,AdaSPEED] [-n 30000]

The actors and the drafts are the real ones (`paceline simulate`); the text is an oracle's, whose drafts are right and
whose probabilities tell right from wrong as often as it takes to reproduce M (tokens per verification) and alpha
(accepted tokens per draft step) of a row (launch/simulate/oracle_backend.hpp). The time of a pass is that of
projections.py on the card of the paper: weights read at 0.75 of its bandwidth. Columns:

    paper       the speed-up that the paper measured, over its own plain decoding
    formula     SWIFT's equation 6, M alpha / ((M - 1) c + alpha), with c of the draft step in the cost table:
                the layers that it runs, and the head
    simulated   tokens per simulated second over simulated plain decoding

One long text, since two texts of an oracle that have met stay together. A row that differs by more than 10 % needs a note
that says why; without one the script fails. AdaSPEED compares stop rules with a constant length and gives neither M nor
alpha: its rows are computed for three rates of right drafts.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import projections
import self_speculation_papers as papers

ROOT = pathlib.Path(__file__).resolve().parent.parent
SURE_MIN = 0.8        # between the oracle's 0.95 and 0.4
DIFFERENCE_MAX = 0.10
COLUMNS = ["paper", "method", "model", "task", "over", "M", "alpha", "c", "paper_gain", "formula", "M_simulated",
           "alpha_simulated", "simulated", "difference", "note"]


def chain(right, reliable, gamma):
    """(accepted, drafted) tokens of a chain that ends after an unsure candidate or after gamma."""
    sure = right * reliable + (1 - right) * (1 - reliable)
    goes_on = right * reliable
    return right * series(goes_on, gamma), series(sure, gamma)


def series(x, count):
    """1 + x + x^2 + ..., `count` terms."""
    return count if x >= 1 else (1 - x ** count) / (1 - x)


def bisected(wanted, low, high, value):
    """Where the growing function `value` is `wanted`."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) < wanted else (low, middle)
    return (low + high) / 2


def oracle_of(row):
    """(rate of right drafts, reliability) that give the row's M and alpha."""
    accepted = row.m - 1
    if not row.stops:
        return bisected(accepted, 0, 1, lambda right: chain(right, 1, row.gamma)[0]), None
    drafted = accepted / row.alpha

    def reliable_for(right):
        return bisected(accepted, 0, 1, lambda reliable: chain(right, reliable, row.gamma)[0])

    def miss(right):
        found = chain(right, reliable_for(right), row.gamma)
        return math.hypot(found[0] - accepted, found[1] - drafted)

    right = min((i / 200 for i in range(1, 201)), key=miss)
    right = min((min(right + i / 20000, 1) for i in range(-100, 101)), key=miss)
    return right, reliable_for(right)


def step_share(row):
    """c: the time of a draft step over that of a plain pass, by the bytes that both read."""
    shape = projections.shape_of(row.shape)
    layer, head = projections.weights_of(shape)
    layers = int(shape["layers"])
    return ((layers - row.skipped / 2) * layer + head) / (layers * layer + head)


def config_of(row):
    layers = int(projections.shape_of(row.shape)["layers"])
    keys = {"gamma": row.gamma, "auto_off": "false"}
    if row.source == "exit":
        keys |= {"source": '"exit"', "exit": layers - row.skipped // 2}
    else:
        keys |= {"source": '"skip"', "skip_ratio": row.skipped / (2 * (layers - 2))}
    if row.stops:
        keys["confidence_min"] = SURE_MIN
    if row.optimise:
        keys |= {"choose": '"programme"', "interval": 8, "optimise_share": 0.05}
    return config_text(keys)


def config_text(keys):
    own = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return ('[pipeline]\nname = "accounting"\n\n[[stage]]\nname = "target"\nrole = "segment"\n\n'
            f'[self_draft]\n{own}\n[schedule]\nmode = "at-once"\n')


class Simulator:
    def __init__(self, options, folder):
        self.options = options
        self.folder = pathlib.Path(folder)
        self.shapes = projections.Projector(options, folder)

    def runs(self, shape, config, costs, right, reliable, *more):
        """The JSON records of the runs."""
        (self.folder / "config.toml").write_text(config)
        (self.folder / "costs.tsv").write_text(costs)
        out = self.folder / "run.json"
        command = [self.options.paceline, "simulate", "--random", self.shapes.shape_file(shape), "--dtype", "bf16",
                   "--config", self.folder / "config.toml", "--costs", self.folder / "costs.tsv", "--hop-us", 0,
                   "--acceptance", f"{right:.6f}", "--baseline", "--first", 1, "-n", self.options.n, "-c", 65536,
                   "--json", out, *more]
        if reliable is not None:
            command += ["--draft-reliability", f"{reliable:.6f}"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
        return json.loads(out.read_text())


def figures_of(run):
    """M and alpha as simulated."""
    figures = run["figures"]
    return figures["mean_acceptance_length"], figures["accepted_tokens"] / figures["draft_rows"]


def record_of(row, simulator):
    right, reliable = oracle_of(row)
    costs = projections.cost_table(row.shape, [row.shape], row.card, "pcie")
    run = simulator.runs(row.shape, config_of(row), costs, right, reliable)[0]
    m, alpha = figures_of(run)
    c = step_share(row)
    formula = row.m * row.alpha / ((row.m - 1) * c + row.alpha)
    gain = run["times_plain"]
    return {"paper": row.paper, "method": row.method, "model": row.model, "task": row.task, "over": "plain",
            "M": row.m, "alpha": row.alpha, "c": c, "paper_gain": row.speedup, "formula": formula,
            "M_simulated": m, "alpha_simulated": alpha, "simulated": gain, "difference": gain / row.speedup - 1,
            "note": row.note}


# ---- AdaSPEED: stop rules over a constant length

RULES = {"Draft & Verify": ({"confidence_min": 0.8}, None),
         "product": ({"reach_min": 0.8}, None),
         "probe": ({"reach_min": 0.8}, papers.ADASPEED_PROBE_RELIABILITY)}


def even_costs(shape, layers):
    """Every layer takes the same time and a head none, as where the host's launches of kernels are the limit: the
    paper's 1B model of 16 layers is twice as fast as its 7B model of 32."""
    lines = ["stage\tfingerprint\tlayers\trows\tcontext\tthreads\tneighbours\tseconds",
             f"layers\t{shape}:bf16\t{layers}\t1\t0\t0\t0\t{layers * 1e-3:.6f}",
             f"head\t{shape}:bf16\t0\t1\t0\t0\t0\t0"]
    return "\n".join(lines) + "\n"


def adaspeed_records(simulator, rights):
    for model, shape, layers, gains in papers.ADASPEED:
        keys = {"source": '"exit"', "exit": papers.ADASPEED_EXIT, "auto_off": "false"}
        costs = even_costs(shape, layers)
        for right in rights:
            lengths = simulator.runs(shape, config_text(keys), costs, right, None, "--sweep",
                                     "self_draft.gamma=1,2,3,4,6,8,12")
            by_length = {int(run["settings"]["self_draft.gamma"]): run["times_plain"] for run in lengths}
            best = max(by_length, key=by_length.get)
            for rule, paper_gain in gains.items():
                stop, reliable = RULES[rule]
                run = simulator.runs(shape, config_text({**keys, "gamma": 12, **stop}), costs, right, reliable)[0]
                m, alpha = figures_of(run)
                for length in sorted({6, best}):
                    gain = run["times_plain"] / by_length[length]
                    said = f"drafts right in {right:g}, {run['times_plain']:.2f} over plain; D is not stated"
                    yield {"paper": "AdaSPEED", "method": rule, "model": model, "task": "CNN/DM",
                           "over": f"constant D = {length}" + (", the best" if length == best else ""),
                           "c": papers.ADASPEED_EXIT / layers, "paper_gain": paper_gain, "M_simulated": m,
                           "alpha_simulated": alpha, "simulated": gain, "difference": gain / paper_gain - 1,
                           "note": said}


# ---- Output

def text_of(record):
    def cell(column):
        value = record.get(column)
        if value is None or value == "":
            return "-"
        if column == "difference":
            return f"{100 * value:+.1f} %"
        return f"{value:.3g}" if isinstance(value, float) and column in ("M", "alpha") else (
            f"{value:.2f}" if isinstance(value, float) else str(value))

    return "\t".join(cell(column) for column in COLUMNS)


def write(options, records):
    def said(*command):
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    lines = ["# what: speed-ups of drafting without a second model, as papers report them and in simulated time with "
             "their M and alpha; nothing here was measured",
             f"# command: bench/self_speculation_accounting.py --out FILE -n {options.n}",
             f"# commit: {said('git', 'rev-parse', '--short', 'HEAD') or 'unknown'}", f"# date: {said('date', '+%F')}",
             "# machine: simulated cards of the papers, 0.75 of their bandwidth; AdaSPEED: every layer takes the same "
             "time, heads none",
             "# columns: over: what gains are relative to; c: a draft step over a plain pass; formula: SWIFT's equation "
             "6 with this c; difference: simulated over paper_gain, minus one",
             "\t".join(COLUMNS)]
    lines += [text_of(record) for record in records]
    pathlib.Path(options.out).write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw(path, records):
    import chart  # needs Matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.8))
    axes = figure.add_subplot()
    ends = [0.7, 1.8]
    axes.fill_between(ends, [0.9 * x for x in ends], [1.1 * x for x in ends], color="#eeeeee", label="10 %")
    axes.plot(ends, ends, color="#aaaaaa", linewidth=1)
    of_plain = [record for record in records if record["over"] == "plain"]
    groups = list(dict.fromkeys((record["paper"], record["model"]) for record in of_plain))
    for number, group in enumerate(groups):
        points = [(record["paper_gain"], record["simulated"]) for record in of_plain
                  if (record["paper"], record["model"]) == group]
        axes.scatter(*zip(*points), s=22, color=chart.COLOURS[number % len(chart.COLOURS)],
                     marker="os^D"[number // len(chart.COLOURS)], label=", ".join(group))
    axes.set(title="Speed-up over plain decoding", xlabel="paper", ylabel="simulated", xlim=ends, ylim=ends)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    pathlib.Path(path).write_text(chart.svg_of(figure), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--picture", help="an SVG of simulated over reported speed-ups (needs Matplotlib)")
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline")
    parser.add_argument("--papers", type=lambda text: text.split(","), default=["SWIFT", "CLaSp", "AdaSPEED"])
    parser.add_argument("--rows-max", type=int, help="only so many rows of each paper")
    parser.add_argument("--right", type=lambda text: [float(word) for word in text.split(",")], default=[0.6, 0.7, 0.8],
                        help="AdaSPEED: rates of right drafts")
    parser.add_argument("-n", type=int, default=30000, help="tokens of the text")
    options = parser.parse_args()
    known = {"SWIFT", "CLaSp", "AdaSPEED"}
    for name in options.papers:
        if name not in known:
            parser.error(f"--papers: '{name}' is none of {', '.join(sorted(known))}")
    records = []

    def add(record):
        records.append(record)
        print(text_of(record), file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        simulator = Simulator(options, folder)
        for name in options.papers:
            rows = [row for row in papers.PAPERS if row.paper == name][:options.rows_max]
            for row in rows:
                add(record_of(row, simulator))
        if "AdaSPEED" in options.papers:
            for record in adaspeed_records(simulator, options.right):
                add(record)
    write(options, records)
    if options.picture:
        draw(options.picture, records)
    unexplained = [record for record in records if abs(record["difference"]) > DIFFERENCE_MAX and not record["note"]]
    for record in unexplained:
        print(f"more than {100 * DIFFERENCE_MAX:.0f} % from the paper, and no note says why: {text_of(record)}",
              file=sys.stderr)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
