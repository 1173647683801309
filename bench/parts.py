#!/usr/bin/env python3
"""What trained parts are worth: what drafts get right and cost, how often exits agree.

    bench/parts.py --humaneval HumanEval.jsonl.gz --mt-bench mt_bench_question.jsonl
                   --gsm8k gsm8k-heldout.jsonl --mbpp mbpp-heldout.jsonl
                   [--parts FOLDER] [--first 8] [-n 128] [--temp 0.8] [--check] [--json FILE]

Prints Markdown, every set greedily and at --temp:

parts    bytes of each file, and the time of a pass of each draft on one otherwise idle core
         disturbs: of one row, which is a draft token of a chain, and of four, which is a step of a
         tree
drafts   both sizes, as chains of 8 guesses, as such chains that begin with what stood in the text
         before, and as trees of 16 rows with the root: tokens that a batch commits, the target's own
         included (the prompt's batch and its token are not counted), and for each place of a chain
         the share of the batches that accepted it. `paceline simulate` runs the real models and the
         real actors; only its clock is virtual, and no time is taken from it. Chains are always of
         full length: no draft stops because it is not sure
exits    top-1 and top-4 of each T head and adapter, on the target's residuals, for the token that
         the target said: at --temp the one that was drawn. Beside them a logit lens, the target's
         own norm and head on the same short list (bench/parts_exits.py, in the environment of
         model/training/setup)

A text that repeats itself (a run of 20 tokens that was there before) flatters every drafter, so
figures stand there twice: of all prompts, and of those that do not loop. A draft that was wrong in
eight batches in a row rests for a while, and a batch of the root alone counts for "tokens a batch", not
for the places. As many runs go on at a time as there are cores.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile

import prompt_sets
from cache_folder import DEMO_MODEL, TRAINING_VENV
from methods import ROOT

FILES = {"small": "draft-small", "deep": "draft-deep", "heads": "heads", "adapter": "adapter"}
EXITS = ("exit", "ahead", "adapter")  # keys of a part's metadata, with a number after a point
GAMMA = 8
TREE_ROWS = 16
FULL = [f"draft.gamma={GAMMA}", "draft.confidence_min=0", "draft.reach_min=0",
        "schedule.controller=off", "schedule.reach_min=0"]
# shape: (method, settings)
SHAPES = {
    f"chain of {GAMMA}": ("speculative", FULL),
    f"chain of {GAMMA}, text before first": ("prompt-lookup+draft", FULL),
    f"tree of {TREE_ROWS} rows": ("speculative-tree", [
        *FULL, "draft.own_alternatives=3", "draft.branch_budget=24",
        f"schedule.rows_max={TREE_ROWS}"]),
}


def call(command):
    """Its standard output; ends this program with the reason if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def metadata_of(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    tokens = header["tokens"]["shape"][0] if "tokens" in header else "-"  # parts with a head alone have a short list
    return header["__metadata__"] | {"tokens": str(tokens)}


def exits_in(card):
    """[("exit", 15), ("ahead", 1), ...]"""
    words = [key.split(".") for key in card]
    return sorted((word[0], int(word[1])) for word in words if word[0] in EXITS)


def parts_folder(options):
    """--parts, or where the program would look for them first."""
    if options.parts:
        return options.parts
    named = os.environ.get("PACELINE_PRETRAINED")
    folders = [pathlib.Path(named)] if named else []
    folders += sorted((ROOT / "model" / "pretrained").glob("*"))
    for folder in folders:
        files = [folder / f"{name}.safetensors" for name in FILES.values()]
        if any(f.is_file() and metadata_of(f)["paceline.target"] == options.target["fingerprint"]
               for f in files):
            return folder
    sys.exit(f"no trained parts for {options.model} in {', '.join(map(str, folders)) or 'any'}: "
             "name their folder with --parts")


def pass_times(options, costs):
    """Measures the costs that `simulate` needs, and returns {(draft's file, rows): seconds}."""
    call([options.paceline, "simulate", "-m", options.model, "--parts", options.parts,
          "--measure-costs", costs, "--rows", "1,4,16", "--contexts", "256", "--depths",
          options.target["layers"],
          "--measure-threads", "1", "--neighbours", "0", "--samples", "9"])
    seconds = {}
    for line in costs.read_text().splitlines():
        if line.startswith(("layers\tdraft-", "head\tdraft-")):
            words = line.split("\t")
            key = words[1].split(":")[0], int(words[3])
            seconds[key] = seconds.get(key, 0.0) + float(words[7])
    return seconds


class Tally:
    """What batches did to some prompts."""

    def __init__(self, report=None):
        self.prompts = report["prompts"] if report else []
        self.differing = sum(not prompt.get("equal", True) for prompt in self.prompts)
        figures = report["figures"] if report else {}
        self.drafts = figures.get("drafts", 0)
        rates = figures.get("acceptance_rate_by_position", [])
        self.accepted = [rate * self.drafts for rate in rates] + [0.0] * (GAMMA - len(rates))

    def __add__(self, other):
        both = Tally()
        both.prompts = self.prompts + other.prompts
        both.differing = self.differing + other.differing
        both.drafts = self.drafts + other.drafts
        both.accepted = [a + b for a, b in zip(self.accepted, other.accepted)]
        return both

    def length(self):
        """Tokens a batch, after the prompt's."""
        batches = sum(prompt["batches"] - 1 for prompt in self.prompts)
        return sum(prompt["tokens"] - 1 for prompt in self.prompts) / batches if batches else 0.0

    def places(self):
        return " ".join(f"{a / self.drafts:.2f}" for a in self.accepted[:GAMMA]) \
            if self.drafts else "-"


class Case:
    """A set of prompts with one sampling."""

    def __init__(self, options, name, file, sampling, folder):
        self.options, self.name, self.file, self.folder = options, name, file, folder
        self.sampling = sampling
        self.lines = file.read_text(encoding="utf-8").splitlines()
        self.loops = None  # for each prompt; the first run says it, as all have the same text
        self.rows = []

    def label(self):
        return "greedy" if not self.sampling else f"temperature {self.options.temp:g}"

    def run(self):
        for size in self.options.drafts:
            for shape, (method, settings) in SHAPES.items():
                words = ["--method", method]
                for setting in [*settings, f"draft.size={size}"]:
                    words += ["--set", setting]
                print(f"{self.name}, {self.label()}, {size} draft, {shape}", file=sys.stderr)
                self.rows.append((size, shape, *self.measured(words)))
        if self.options.exits:
            call([*self.command("generate"), "--prompts", self.file, "-o", self.answers(),
                  "--hidden", ",".join(map(str, self.options.exits)), "--top", "1"])
        return self

    def answers(self):
        return self.folder / f"answers-{self.name}-{self.label().replace(' ', '-')}"

    def measured(self, words):
        """Tallies of all prompts, and of those that do not loop."""
        if self.loops is None:
            whole = self.simulated(words, self.lines)
            self.loops = [prompt["loops"] for prompt in whole.prompts]
            bare = self.simulated(words, self.chosen(False)) if any(self.loops) else whole
            return whole, bare
        bare = self.simulated(words, self.chosen(False))
        return bare + self.simulated(words, self.chosen(True)), bare

    def chosen(self, loops):
        return [line for line, looped in zip(self.lines, self.loops) if looped == loops]

    def simulated(self, words, lines):
        if not lines:
            return Tally()
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            prompts, report = pathlib.Path(folder) / "prompts.jsonl", pathlib.Path(folder) / "json"
            prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
            check = ["--check"] if self.options.check else []
            command = [*self.command("simulate"), "--parts", self.options.parts, "--costs",
                       self.folder / "costs.tsv", "--prompts", prompts, "--json", report, *words]
            done = subprocess.run([str(word) for word in command + check], capture_output=True,
                                  text=True)
            # Exit code 1 with a report: an answer that differs, which the table shows.
            if done.returncode not in (0, 1) or not report.is_file() or not report.stat().st_size:
                sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
            return Tally(json.loads(report.read_text())[0])

    def command(self, what):
        options = self.options
        return [options.paceline, what, "-m", options.model, "-n", options.n, "-t", "1",
                *self.sampling]


def parts_table(folder, times):
    lines = ["| part | bytes | layers | short list | a pass, ms | of 4 rows, ms |",
             "|---|---:|---|---:|---:|---:|"]
    for name in FILES.values():
        path = folder / f"{name}.safetensors"
        if not path.is_file():
            continue
        card = metadata_of(path)
        exits = ", ".join(f"{kind} {number}" for kind, number in exits_in(card))
        passes = [f"{1000 * times[name, rows]:.2f}" if (name, rows) in times else ""
                  for rows in (1, 4)]
        lines.append(f"| {name} | {path.stat().st_size} | {card.get('layers') or exits} | "
                     f"{card['tokens']} | {' | '.join(passes)} |")
    return "\n".join(lines)


def drafts_table(cases, checked):
    lines = ["| set | sampling | draft | shape | tokens a batch | no loops | loops | "
             "accepted by place | no loops |" + (" equal |" if checked else ""),
             "|---|---|---|---|---:|---:|---:|---|---|" + ("---|" if checked else "")]
    for case in cases:
        for size, shape, whole, bare in case.rows:
            loops = f"{sum(p['loops'] for p in whole.prompts)}/{len(whole.prompts)}"
            bare_length = f"{bare.length():.2f}" if bare.prompts else "-"
            equal = f" {'yes' if not whole.differing else f'NO ({whole.differing})'} |"
            lines.append(f"| {case.name} | {case.label()} | {size} | {shape} | "
                         f"{whole.length():.2f} | {bare_length} | {loops} | {whole.places()} | "
                         f"{bare.places()} |" + (equal if checked else ""))
    return "\n".join(lines)


def exits_table(cases, found):
    lines = ["| set | sampling | exit | top-1 | no loops | top-4 | no loops | sure | right if sure "
             "| logit lens top-1 | top-4 |", "|---|---|---|" + "---:|" * 8]
    for case, rows in zip(cases, found):
        for name, row in rows.items():
            every, bare, lens = row["all"], row["no loops"], row["lens"]
            cells = [(every, "top1"), (bare, "top1"), (every, "top4"), (bare, "top4"),
                     (every, "confident"), (every, "right_if_confident"), (lens, "top1"),
                     (lens, "top4")]
            shown = [f"{figures[key]:.3f}" if figures["positions"] else "-"
                     for figures, key in cells]
            lines.append(f"| {case.name} | {case.label()} | {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def run_all(cases):
    """A case at a time on each core: what a thread starts stays on the thread's core."""
    cores = queue.SimpleQueue()
    for core in os.sched_getaffinity(0):
        cores.put(core)
    with concurrent.futures.ThreadPoolExecutor(
            cores.qsize(), initializer=lambda: os.sched_setaffinity(0, {cores.get()})) as pool:
        return list(pool.map(Case.run, cases))


def exit_figures(options, cases):
    """For each case {exit: its figures}; None without the environment."""
    python = TRAINING_VENV / "bin" / "python"
    if not options.exits or not python.exists():
        return None
    return json.loads(call([python, ROOT / "bench" / "parts_exits.py", options.model, options.parts,
                            *(case.answers() for case in cases)]))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.set_defaults(own=False)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--parts", type=pathlib.Path,
                        help="their folder (default: the one that the program finds)")
    parser.add_argument("-n", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--temp", type=float, default=0.8, help="beside greedy; 0: greedy alone")
    parser.add_argument("--top-p", type=float, default=0.95, help="with --temp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true",
                        help="compare every answer with plain decoding, too")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    options = parser.parse_args()
    options.target = json.loads(call([options.paceline, "inspect", options.model, "-o", "json"]))
    options.parts = parts_folder(options)
    there = {kind: options.parts / f"{name}.safetensors" for kind, name in FILES.items()}
    there = {kind: path for kind, path in there.items() if path.is_file()}
    options.drafts = [kind for kind in ("small", "deep") if kind in there]
    cards = [metadata_of(there[kind]) for kind in ("heads", "adapter") if kind in there]
    options.exits = sorted({options.target["layers"] if kind == "ahead" else number
                            for card in cards for kind, number in exits_in(card)})
    return options


def main():
    options = read_options()
    samplings = [[]] if options.temp == 0 else [[], [
        "--temp", options.temp, "--top-p", options.top_p, "--seed", options.seed]]
    sets, prompts = prompt_sets.chosen(options)
    if not sets:
        sys.exit("nothing to measure: name the files of --humaneval, --mt-bench, --gsm8k, --mbpp")
    with prompts, tempfile.TemporaryDirectory(prefix="paceline-parts-") as work:
        folder = pathlib.Path(work)
        times = pass_times(options, folder / "costs.tsv")
        cases = [Case(options, name, file, sampling, folder)
                 for name, file in sets.items() for sampling in samplings]
        cases = run_all(cases)
        exits = exit_figures(options, cases)
    print(call([options.paceline, "--version"]))
    print(f"{options.parts}, {options.n} tokens\n\n{parts_table(options.parts, times)}")
    if options.drafts:
        print(f"\n{drafts_table(cases, options.check)}")
    if exits:
        print(f"\n{exits_table(cases, exits)}")
    elif options.exits:
        print(f"\nno figures of exits: there is no environment at {TRAINING_VENV}; model/training/setup "
              "makes it")
    if options.json:
        options.json.write_text(json.dumps([
            {"set": case.name, "sampling": case.label(), "exits": found, "drafts": [
                {"draft": size, "shape": shape, "tokens_a_batch": whole.length(),
                 "tokens_a_batch_no_loops": bare.length(), "accepted": whole.places(),
                 "accepted_no_loops": bare.places(), "differing": whole.differing}
                for size, shape, whole, bare in case.rows]}
            for case, found in zip(cases, exits or [None] * len(cases))], indent=1))


if __name__ == "__main__":
    main()
