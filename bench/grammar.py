#!/usr/bin/env python3
"""What drafts gain from the grammar of an answer: `[draft] grammar` "masked+forced", "masked" and "off" in one run.

    bench/grammar.py [--methods prompt-lookup,prompt-lookup+draft] [--schema FILE] [--rounds 5] [-n 128] [--first 8]
                     [--draft-model MODEL] [--temp 0] [--controller off|on] [--out TABLE.tsv]
                     [--humaneval FILE] [--mt-bench FILE] [--gsm8k FILE]

Each prompt is answered by a JSON schema with each setting, in alternation; the answers must be equal, since a setting
changes proposals alone. Printed for each method and setting, over all prompts of a round, as median and range over the
rounds, with the ratio of the rates per round:

    acceptance  tokens that a verification commits, the target's own included, of all but the prompt's
    forwards    verifications of the target for each token of the answers
    rate        tokens/s after the first token
    over off    the rate over that of "off" in the same round

The method has a stage with role = "draft". With --controller off, the default, speculation is not limited to what pays:
acceptance is then that of the drafts. Nothing else may run on the machine.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import prompt_sets
from cache_folder import DEMO_MODEL
from methods import ROOT
from serving import spread
from serving_peers import data_row
from structured import SCHEMA

SETTINGS = ("masked+forced", "masked", "off")
FIGURES = ("acceptance", "forwards", "rate", "over off")


class Bench:
    """One command line, and the files that its runs share."""

    def __init__(self, options, folder):
        self.options = options
        self.folder = pathlib.Path(folder)
        self.schema = options.schema or self.folder / "schema.json"
        if not options.schema:
            self.schema.write_text(json.dumps(SCHEMA))

    def configuration(self, method, setting):
        file = self.folder / f"{method}-{setting}.toml"
        file.write_text(f'extends = "{method}"\n[draft]\ngrammar = "{setting}"\n'
                        f'[schedule]\ncontroller = "{self.options.controller}"\n')
        return file

    def answer(self, method, setting, prompt):
        """(text, statistics) of one answer."""
        options, stats = self.options, self.folder / "stats.json"
        command = [options.paceline, "run", "-m", options.model, "--config", self.configuration(method, setting), "-q",
                   "-n", options.n, "--json-schema", self.schema, "--stats", stats, "-p", prompt + " Answer as JSON."]
        command += ["--temp", options.temp, "--seed", 1] if options.temp else ["--temp", 0]
        command += ["--draft-model", options.draft_model] if options.draft_model else []
        done = subprocess.run(list(map(str, command)), capture_output=True)
        if done.returncode:
            sys.exit(f"bench/grammar.py: {' '.join(map(str, command))}: exit {done.returncode}: "
                     f"{done.stderr.decode(errors='replace').strip()}")
        return done.stdout, json.loads(stats.read_text())

    def round(self, method, prompts, turn):
        """{setting: {figure: value}} over all prompts."""
        sums = {setting: dict.fromkeys(("tokens", "batches", "seconds"), 0) for setting in SETTINGS}
        for number, prompt in enumerate(prompts):
            shift = (turn + number) % len(SETTINGS)
            texts = {}
            for setting in SETTINGS[shift:] + SETTINGS[:shift]:
                texts[setting], stats = self.answer(method, setting, prompt)
                # The prompt's verdict brings the first token.
                sums[setting]["tokens"] += stats["generated_tokens"] - 1
                sums[setting]["batches"] += stats["batches"] - 1
                sums[setting]["seconds"] += stats["decode_seconds"]
            if len(set(texts.values())) > 1:
                sys.exit(f"bench/grammar.py: {method}: the answers to {prompt!r} differ: {texts}")
        found = {}
        for setting, each in sums.items():
            if min(each.values()) <= 0:
                sys.exit(f"bench/grammar.py: {method}, {setting}: the answers are too short, see -n and --first")
            found[setting] = {"acceptance": each["tokens"] / each["batches"], "forwards": each["batches"] / each["tokens"],
                              "rate": each["tokens"] / each["seconds"]}
        for each in found.values():
            each["over off"] = each["rate"] / found["off"]["rate"]
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline")
    parser.add_argument("--model", default=DEMO_MODEL)
    parser.add_argument("--draft-model", help="for methods with a model as draft")
    parser.add_argument("--methods", default="prompt-lookup,prompt-lookup+draft")
    parser.add_argument("--schema", type=pathlib.Path, help="a JSON schema; default: five members")
    parser.add_argument("--controller", choices=["off", "on"], default="off")
    parser.add_argument("--temp", type=float, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    options.first = options.first or 8
    lines = [f"# command: bench/grammar.py {' '.join(sys.argv[1:])}", "method\tgrammar\tfigure\tmedian\tleast\tmost"]
    files, folder = prompt_sets.chosen(options)
    with folder, tempfile.TemporaryDirectory() as own:
        bench = Bench(options, own)
        prompts = [prompt_sets.text_of(line) for file in files.values() for line in prompt_sets.lines_of(file)]
        for method in options.methods.split(","):
            rounds = [bench.round(method, prompts, turn) for turn in range(options.rounds)]
            for setting in SETTINGS:
                for figure in FIGURES:
                    values = [each[setting][figure] for each in rounds]
                    lines.append(data_row(method, setting, figure, values=values))
                    print(f"{method:20} {setting:14} {figure:11} {spread(values)}", flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
