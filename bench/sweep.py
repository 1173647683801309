#!/usr/bin/env python3
"""Every method on four equal devices that are not there, in simulated time on real text.

    bench/sweep.py --costs costs.tsv --out FOLDER [--humaneval ...] [--mt-bench ...] [--gsm8k ...]
                   [--first 4] [-n 96] [--sections methods,exit-layer,k,budget,gamma]

Costs are this machine's own (`paceline simulate --measure-costs costs.tsv --short-lists 0,4096`),
one device per process, messages between devices are free. Sections:

    methods     each method at each cost of a pass of the draft, in passes of the target: with the
                same draft and with its own best one, greedy and at temperature 0.8
    exit-layer  FOLD and the hybrid over the layer of the exit
    k           over the number of alternatives per row
    budget      over the number of alternative nodes per root
    gamma       turn-taking and lockstep methods over their tokens per turn

Written into FOLDER: a table per section (Markdown), a picture per section and set (SVG), and all
runs (JSON). What loses stands there too. Text is compared with plain decoding once per set.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import chart
import prompt_sets

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "paceline"

DRAFTED = ["speculative", "speculative-adaptive", "speculative-tree", "pearl-lockstep", "pearl",
           "fold-turns", "fold-lockstep", "fold", "hybrid"]
UNDRAFTED = ["autoregressive", "autoregressive-segments", "prompt-lookup", "adadecode",
             "adadecode-parallel", "heads"]
EXITS = ["fold-lockstep", "fold", "hybrid"]


class Simulator:
    def __init__(self, options):
        self.options = options
        self.runs = []

    def draft_words(self):
        """A model that drafts: prompt lookup would not feel what a pass costs."""
        options = self.options
        words = ["--set", f"draft.short_list={options.short_list}"]
        if options.draft_model:
            return words + ["--set", "draft.source=model", "--set",
                            f"draft.model={options.draft_model}"]
        return words + ["--set", "draft.source=first-layers", "--set",
                        f"draft.layers={options.draft_layers}"]

    def sweep(self, method, name, file, sweeps, sampling, check=False):
        """[(settings, tokens/s, run)] of all combinations; empty with the reason on stderr."""
        options = self.options
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [options.paceline, "simulate", "-m", options.model, "--method", method,
                       "--costs", options.costs, "--hop-us", "0", "--prompts", file, "-n",
                       options.n, "--json", out.name, *sampling]
            if method in DRAFTED:
                command += self.draft_words()
            for sweep in sweeps:
                command += ["--sweep", sweep]
            if check:
                command.append("--check")
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            text = pathlib.Path(out.name).read_text()
        if not text or done.returncode not in (0, 1):
            print(f"{method} on {name}: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return []
        if done.returncode == 1:
            print(f"{method} on {name}: AN ANSWER DIFFERS from plain decoding", file=sys.stderr)
        runs = json.loads(text)
        for run in runs:
            self.runs.append({"set": name, "sampling": sampling, **run})
        return [(run["settings"], run["tokens_per_second"], run) for run in runs]


def costs_of(options):
    return "draft-cost=" + options.draft_costs


def methods_section(simulator, sets, options, out):
    for title, sampling in (("greedy", []),
                            ("temperature 0.8", ["--temp", "0.8", "--top-p", "0.95", "--seed", "1"])):
        for name, file in sets.items():
            table, lines = [], {}
            plain = simulator.sweep("autoregressive", name, file, [], sampling, check=True)
            base = plain[0][1] if plain else 0.0
            for method in DRAFTED + UNDRAFTED:
                sweeps = [costs_of(options)] if method in DRAFTED else []
                made = simulator.sweep(method, name, file, sweeps, sampling, check=not sampling)
                if not made:
                    table.append((method, {}, 0.0, "did not run"))
                    continue
                best = max(made, key=lambda one: one[1])
                by_cost = {one[0].get("draft-cost", ""): one[1] for one in made}
                table.append((method, by_cost, best[1], best[0].get("draft-cost", "-")))
                if method in DRAFTED:
                    lines[method] = [(float(cost), rate) for cost, rate in by_cost.items()]
            costs = options.draft_costs.split(",")
            out.write(f"\n## {name}, {title}\n\nTokens per simulated second; in brackets times one "
                      "device that decodes plainly.\n\n| method | "
                      + " | ".join(f"draft {cost}" for cost in costs)
                      + " | best | with draft |\n|---|" + "---:|" * (len(costs) + 2) + "\n")
            for method, by_cost, best, where in sorted(table, key=lambda row: -row[2]):
                cells = [f"{by_cost[cost]:.1f}" if cost in by_cost else "-" for cost in costs]
                ratio = best / base if base else 0.0
                out.write(f"| {method} | " + " | ".join(cells)
                          + f" | {best:.1f} ({ratio:.2f}) | {where} |\n")
            picture(options, f"methods-{name}-{title.split()[0]}",
                    f"{name}, {title}: four equal devices", "cost of a draft's pass", lines)


def one_key_section(key, methods, values, label):
    """A section that changes one setting at the middle draft cost."""

    def section(simulator, sets, options, out):
        cost = options.draft_cost
        for name, file in sets.items():
            lines = {}
            out.write(f"\n## {name}: {label}, draft cost {cost}\n\n")
            for method in methods:
                made = simulator.sweep(method, name, file,
                                       [f"draft-cost={cost}", f"{key}={values(options)}"], [])
                if made:
                    lines[method] = [(float(one[0][key]), one[1]) for one in made]
            heads = values(options).split(",")
            out.write("| method | " + " | ".join(heads) + " |\n|---|" + "---:|" * len(heads) + "\n")
            for method, points in lines.items():
                out.write(f"| {method} | " + " | ".join(f"{y:.1f}" for _, y in points) + " |\n")
            picture(options, f"{key.replace('.', '-')}-{name}", f"{name}: {label}", label, lines)

    return section


def picture(options, file, title, x_title, lines):
    svg = chart.line_chart(title, x_title, "tokens per simulated second", lines)
    if svg:
        (options.out / f"{file}.svg").write_text(svg)


SECTIONS = {
    "methods": methods_section,
    "exit-layer": one_key_section("exit-layer", EXITS, lambda o: o.exit_layers,
                                  "layer of the exit"),
    "k": one_key_section("draft.exit_alternatives", EXITS, lambda o: o.alternatives,
                         "k, alternatives per row"),
    "budget": one_key_section("draft.branch_budget", EXITS[1:], lambda o: o.budgets,
                              "branch budget"),
    "gamma": one_key_section("draft.gamma", ["speculative", "pearl-lockstep", "fold-lockstep"],
                             lambda o: o.gammas, "gamma"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--model", default=str(CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--draft-model", help="a model that drafts, instead of first layers")
    parser.add_argument("--draft-layers", default="6", help="of the target that draft")
    parser.add_argument("--short-list", default="4096",
                        help="tokens that the draft's head knows; the costs must have it; 0: all")
    parser.add_argument("--costs", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("-n", type=int, default=96)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--draft-costs", default="0.02,0.05,0.1,0.2,0.4")
    parser.add_argument("--draft-cost", default="0.1", help="where something else is swept")
    parser.add_argument("--exit-layers", default="5,10,15,20,25")
    parser.add_argument("--alternatives", default="1,2,4,6")
    parser.add_argument("--budgets", default="4,8,16,32,64")
    parser.add_argument("--gammas", default="2,4,6,8,12")
    options = parser.parse_args()
    unknown = set(options.sections.split(",")) - set(SECTIONS)
    if unknown:
        sys.exit(f"--sections: {', '.join(unknown)} unknown; there are {', '.join(SECTIONS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    sets, folder = prompt_sets.chosen(options)
    simulator = Simulator(options)
    with folder, open(options.out / "sweep.md", "w", encoding="utf-8") as out:
        out.write(f"# Simulated: {options.first or 'all'} prompts of each set, {options.n} tokens, "
                  "free messages\n")
        for section in options.sections.split(","):
            SECTIONS[section](simulator, sets, options, out)
            out.flush()
    (options.out / "sweep.json").write_text(json.dumps(simulator.runs, indent=1))
    print((options.out / "sweep.md").read_text())


if __name__ == "__main__":
    main()
