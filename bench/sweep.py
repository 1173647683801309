#!/usr/bin/env python3
"""Every method on equal devices that are not there, in simulated time on real text.

    bench/sweep.py --costs costs.tsv --out FOLDER [--humaneval ...] [--mt-bench ...] [--gsm8k ...]
                   [--first 4] [-n 96] [--drafts lookup,small,deep] [--sections methods,k,budget]

Costs are this machine's own (`paceline simulate --measure-costs costs.tsv`, which measures trained
drafts and heads too), one device per process, messages between devices are free.

Drafts (--drafts, comma-separated; each is a column of the tables):

    lookup           prompt lookup
    small, deep      the drafts that were trained for the target; what a pass costs was measured
    lookup+small, lookup+deep
    layers@X         the target's first layers (--draft-layers), and a pass of them is said to cost
                     X of a pass of the target: where there are no trained parts, or to see how fast
                     a draft must be

Sections:

    methods     each method with each draft, greedy and at temperature 0.8; sequential and PEARL
                over one device for the target and over two, as many as FOLD has
    exit-layer  FOLD and the hybrid over the layer of the exit
    k           over the number of alternatives per row
    budget      over the number of alternative nodes per root
    gamma       sequential and lockstep methods over their tokens per round
    draft-cost  over what a pass of the draft costs, in passes of the target
    segments    over two to six target devices, with as many batches in flight and with one

The sections after `methods` use --draft. Written into FOLDER as they come: sweep.md with a table
per section; at the end of each section all runs (sweep.json). bench/charts.py draws simulated-sweeps.tsv.
A cell that is slower than one device that decodes plainly is marked (-), one that is slower than
taking turns with the same draft and as many devices (=). Greedy text is compared with plain
decoding.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import prompt_sets
import sweep_configs
from cache_folder import DEMO_MODEL

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Row: method, target devices (0: as its configuration says), batches in flight.
DRAFTED = {
    "speculative": ("speculative", 0, 0),
    "speculative, two segments": ("speculative", 2, 1),
    "speculative-adaptive": ("speculative-adaptive", 0, 0),
    "speculative-tree": ("speculative-tree", 0, 0),
    "pearl-lockstep": ("pearl-lockstep", 0, 0),
    "pearl-lockstep, two segments": ("pearl-lockstep", 2, 1),
    "pearl": ("pearl", 0, 0),
    "pearl, two segments": ("pearl", 2, 1),
    "pearl, two segments, two batches": ("pearl", 2, 2),
    "fold-sequential": ("fold-sequential", 0, 0),
    "fold-lockstep": ("fold-lockstep", 0, 0),
    "fold": ("fold", 0, 0),
    "fold, two batches": ("fold", 2, 2),
    "hybrid": ("hybrid", 0, 0),
}
UNDRAFTED = ["autoregressive-segments", "adadecode", "adadecode-parallel", "heads"]
TWO_DEVICES = ("two segments", "fold", "hybrid")  # rows whose target has two
EXITS = ["fold-lockstep", "fold", "hybrid"]
SAMPLINGS = {"greedy": [],
             "temperature 0.8": ["--temp", "0.8", "--top-p", "0.95", "--seed", "1"]}
RATIOS = [("fold", "pearl"), ("fold", "pearl, two segments"),
          ("fold, two batches", "pearl, two segments, two batches"),
          ("fold-lockstep", "pearl-lockstep, two segments"),
          ("hybrid", "speculative"), ("hybrid", "speculative, two segments")]


def draft_words(draft, options):
    """Settings that put a draft of --drafts into a configuration."""
    if "@" in draft:
        cost = draft.split("@")[1]
        words = ["draft.source=first-layers", f"draft.layers={options.draft_layers}",
                 f"draft.short_list={options.short_list}", f"draft-cost={cost}"]
    elif draft == "lookup":
        words = ["draft.source=prompt-lookup"]
    else:
        source, size = ("prompt-lookup+trained", draft.split("+")[1]) if "+" in draft \
            else ("trained", draft)
        words = [f"draft.source={source}", f"draft.size={size}"]
    return [word for setting in words for word in ("--set", setting)]


class Simulator:
    def __init__(self, options, configs):
        self.options = options
        self.configs = configs
        self.runs = []

    def run(self, row, name, file, draft=None, sweeps=(), sampling=(), settings=()):
        """[(settings, tokens/s)] of all combinations; empty with the reason on stderr. `row` is
        one of DRAFTED, (method, segments, batches) or a method."""
        method, segments, batches = row if isinstance(row, tuple) else DRAFTED.get(row, (row, 0, 0))
        options = self.options
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [options.paceline, "simulate", "-m", options.model, "--costs", options.costs,
                       "--hop-us", "0", "--prompts", file, "-n", options.n, "--json", out.name,
                       *sampling]
            if segments:
                command += ["--config", self.configs.file(method, segments, batches)]
            else:
                command += ["--method", method]
            if options.parts:
                command += ["--parts", options.parts]
            if draft:
                command += draft_words(draft, options)
            for setting in settings:
                command += ["--set", setting]
            for sweep in sweeps:
                command += ["--sweep", sweep]
            if not sampling:
                command.append("--check")
            print(f"{name}: {row} {draft or ''} {' '.join(sweeps)}", file=sys.stderr, flush=True)
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            text = pathlib.Path(out.name).read_text()
        if not text or done.returncode not in (0, 1):
            print(f"    did not run: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return []
        if done.returncode == 1:
            print("    AN ANSWER DIFFERS from plain decoding", file=sys.stderr)
        runs = json.loads(text)
        for run in runs:
            self.runs.append({"set": name, "row": row, "draft": draft, "sampling": list(sampling),
                              "differs": done.returncode == 1, **run})
        return [(run["settings"], run["tokens_per_second"]) for run in runs]

    def one(self, *arguments, **keys):
        made = self.run(*arguments, **keys)
        return made[0][1] if made else 0.0


class Report:
    """Writes sweep.md, flushed after each table, so that it can be read while the sweep runs."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")

    def write(self, text):
        self.file.write(text)
        self.file.flush()

    def table(self, head, rows):
        self.write(f"| {' | '.join(head)} |\n|---|" + "---:|" * (len(head) - 1) + "\n"
                   + "".join(f"| {' | '.join(row)} |\n" for row in rows))


def turns_beside(row, draft, rates):
    """The rate of taking turns with the same draft and as many devices."""
    two = row.startswith(TWO_DEVICES[1:]) or TWO_DEVICES[0] in row
    return rates.get(("speculative, two segments" if two else "speculative", draft), 0.0)


def cell(row, draft, rates, plain):
    rate = rates.get((row, draft), 0.0)
    if not rate:
        return "-"
    marks = " (-)" if rate < plain else ""
    if draft and rate < turns_beside(row, draft, rates):
        marks += " (=)"
    return f"{rate:.1f}{marks}"


def best_of(row, drafts, rates):
    """(rate, draft) of the fastest."""
    return max((rates.get((row, draft), 0.0), draft or "") for draft in drafts)


def ratio_cell(above, below):
    if not above or not below:
        return "-"
    return f"{above / below:.2f}{' loses' if above / below < 0.995 else ''}"


def ratio_rows(drafts, rates):
    """FOLD against PEARL and the like: with each draft, and each with its own best one."""
    for above, below in RATIOS:
        cells = [ratio_cell(rates.get((above, d), 0.0), rates.get((below, d), 0.0))
                 for d in drafts]
        cells.append(ratio_cell(best_of(above, drafts, rates)[0], best_of(below, drafts, rates)[0]))
        yield [f"{above} / {below}", *cells]


def methods_section(simulator, sets, options, report):
    drafts = options.drafts.split(",")
    for title, sampling in SAMPLINGS.items():
        for name, file in sets.items():
            plain = simulator.one("autoregressive", name, file, sampling=sampling)
            rates = {}
            for row in DRAFTED:
                for draft in drafts:
                    rates[row, draft] = simulator.one(row, name, file, draft, sampling=sampling)
            for row in UNDRAFTED:
                rates[row, None] = simulator.one(row, name, file, sampling=sampling)
            report.write(f"\n## {name}, {title}\n\nTokens per simulated second; one device that "
                         f"decodes plainly: {plain:.1f}. Best: times that.\n\n")
            order = sorted([*DRAFTED, *UNDRAFTED],
                           key=lambda row: -best_of(row, [*drafts, None], rates)[0])
            lines = []
            for row in order:
                best, draft = best_of(row, [*drafts, None], rates)
                lines.append([row, *(cell(row, d, rates, plain) for d in drafts),
                              cell(row, None, rates, plain),
                              f"{best / plain:.2f} {draft}" if best and plain else "did not run"])
            report.table(["method", *drafts, "no draft", "best"], lines)
            report.write("\n")
            report.table(["ratio", *drafts, "each with its best"], ratio_rows(drafts, rates))


def exit_top(value):
    """An exit sends `top` candidates a row, 4 by default: the draft cannot grow more of them."""
    return f"exit.top={value}"


def one_key_section(key, methods, values, label, above=None, also=None):
    """A section that changes one setting, with --draft. `above`: values that a method cannot do
    with, up to this one. `also`: a setting that goes with each value."""

    def section(simulator, sets, options, report):
        for name, file in sets.items():
            report.write(f"\n## {name}: {label}, draft {options.draft}\n\n")
            lines = {}
            for method in methods:
                possible = [v for v in values(options).split(",")
                            if float(v) > (above or {}).get(method, -1)]
                runs = [(possible, ())] if not also else [([v], (also(v),)) for v in possible]
                made = [one for some, more in runs
                        for one in simulator.run(method, name, file, options.draft, settings=more,
                                                 sweeps=[f"{key}={','.join(some)}"])]
                if made:
                    lines[method] = [(float(one[0][key]), one[1]) for one in made]
            columns = values(options).split(",")
            report.table(["method", *columns],
                         [[method, *(f"{found[float(v)]:.1f}" if float(v) in found else "-"
                                     for v in columns)]
                          for method, found in ((m, dict(p)) for m, p in lines.items())])

    return section


def segments_section(simulator, sets, options, report):
    counts = [int(count) for count in options.segments.split(",")]
    for name, file in sets.items():
        lines = {}
        for method, draft in (("pearl", options.draft), ("fold", options.draft),
                              ("hybrid", options.draft), ("adadecode-parallel", None)):
            for batches in ("one batch", "as many batches"):
                points = []
                for count in counts:
                    in_flight = 1 if batches == "one batch" else count
                    if method == "adadecode-parallel":
                        rate = simulator.run(method, name, file,
                                             sweeps=[f"schedule.batches_in_flight={in_flight}"]) \
                            if count == 2 else []
                        rate = rate[0][1] if rate else 0.0
                    else:
                        rate = simulator.one((method, count, in_flight), name, file, draft)
                    if rate:
                        points.append((count, rate))
                if points:
                    lines[f"{method}, {batches}"] = points
        report.write(f"\n## {name}: target devices, draft {options.draft}\n\n")
        rows = []
        for label, points in lines.items():
            found = dict(points)
            rows.append([label, *(f"{found[c]:.1f}" if c in found else "-" for c in counts)])
        report.table(["method", *map(str, counts)], rows)


SECTIONS = {
    "methods": methods_section,
    "exit-layer": one_key_section("exit-layer", EXITS, lambda o: o.exit_layers,
                                  "layer of the exit"),
    "k": one_key_section("draft.exit_alternatives", EXITS, lambda o: o.alternatives,
                         "k, alternatives per row", also=exit_top),
    "budget": one_key_section("draft.branch_budget", EXITS[1:], lambda o: o.budgets,
                              "branch budget"),
    "gamma": one_key_section("draft.gamma", ["speculative", "pearl-lockstep", "fold-lockstep"],
                             lambda o: o.gammas, "gamma",
                             above={"fold-lockstep": 4}),  # its gamma_early
    "draft-cost": one_key_section("draft-cost", ["speculative", "pearl", "fold", "hybrid"],
                                  lambda o: o.draft_costs, "cost of a pass of the draft"),
    "segments": segments_section,
}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--parts", help="folder of trained parts (default: as paceline run)")
    parser.add_argument("--drafts", default="lookup,small,deep")
    parser.add_argument("--draft", default="small", help="of the sections that sweep other things")
    parser.add_argument("--draft-layers", default="6", help="of the target, for layers@X")
    parser.add_argument("--short-list", default="4096",
                        help="tokens that the head of layers@X knows; the costs must have it; 0: all")
    parser.add_argument("--costs", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("-n", type=int, default=96)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--exit-layers", default="5,10,15,20,23,26")
    parser.add_argument("--alternatives", default="1,2,4,6")
    parser.add_argument("--budgets", default="4,8,16,32,64")
    parser.add_argument("--gammas", default="2,4,6,8,12")
    parser.add_argument("--draft-costs", default="0.03,0.06,0.1,0.2,0.3",
                        help="of the target's pass, for the section of that name")
    parser.add_argument("--segments", default="2,3,4,5,6")
    options = parser.parse_args()
    unknown = set(options.sections.split(",")) - set(SECTIONS)
    if unknown:
        sys.exit(f"--sections: {', '.join(unknown)} unknown; there are {', '.join(SECTIONS)}")
    kinds = {"lookup", "small", "deep", "lookup+small", "lookup+deep"}
    for draft in [*options.drafts.split(","), options.draft]:
        if draft not in kinds and not draft.startswith("layers@"):
            sys.exit(f"--drafts: {draft} unknown; there are {', '.join(sorted(kinds))}, layers@X")
    return options


def main():
    options = parsed()
    options.out.mkdir(parents=True, exist_ok=True)
    sets, folder = prompt_sets.chosen(options)
    with folder, tempfile.TemporaryDirectory(prefix="paceline-sweep-") as configs:
        simulator = Simulator(options, sweep_configs.Folder(configs, options.paceline))
        report = Report(options.out / "sweep.md")
        report.write(f"# Simulated: {options.first or 'all'} prompts of each set, {options.n} "
                     "tokens, free messages\n")
        for section in options.sections.split(","):
            SECTIONS[section](simulator, sets, options, report)
            (options.out / "sweep.json").write_text(json.dumps(simulator.runs, indent=1))
    print((options.out / "sweep.md").read_text())


if __name__ == "__main__":
    main()
