#!/usr/bin/env python3
"""Drafts of several depths: what they get right against what they cost.

    bench/depths.py --draft two.safetensors --draft four.safetensors ...
                    --humaneval HumanEval.jsonl.gz --mt-bench mt_bench_question.jsonl
                    --gsm8k gsm8k-heldout.jsonl [--first 6] [-n 96]

For each part file: its layers, bytes, the time of a pass on one otherwise idle core (a
draft token of a chain), and how many tokens a batch commits with chains of 8 guesses, greedily, the
target's own included, without texts that loop. Real models and actors in simulated time, as
bench/parts.py has them: only the pass is timed. bench/charts.py draws draft-depths.tsv.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import parts
import prompt_sets
from cache_folder import DEMO_MODEL

SHAPE = f"chain of {parts.GAMMA}"


def options_of():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.set_defaults(own=False)
    parser.add_argument("--draft", type=pathlib.Path, action="append", required=True,
                        help="a draft's part file; repeatable")
    parser.add_argument("--paceline", default=parts.ROOT / "build/release/paceline",
                        type=pathlib.Path)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("-n", type=int, default=96, help="most tokens of an answer")
    options = parser.parse_args()
    options.check = False
    options.target = json.loads(parts.call([options.paceline, "inspect", options.model,
                                            "-o", "json"]))
    return options


def measure(options, draft, sets, work):
    """(seconds of a pass of one row, {set: tokens a batch}) of one draft."""
    folder = work / draft.stem
    folder.mkdir()
    options.parts = folder / "parts"
    options.parts.mkdir()
    shutil.copy(draft, options.parts / "draft-small.safetensors")
    times = parts.pass_times(options, folder / "costs.tsv")
    method, settings = parts.SHAPES[SHAPE]
    words = ["--method", method]
    for setting in settings:
        words += ["--set", setting]
    lengths = {}
    for name, file in sets.items():
        print(f"{draft.name}, {name}", file=sys.stderr)
        _, bare = parts.Case(options, name, file, [], folder).measured(words)
        lengths[name] = bare.length()
    return times["draft-small", 1], lengths


def main():
    options = options_of()
    sets, prompts = prompt_sets.chosen(options)
    if not sets:
        sys.exit("nothing to measure: name the files of --humaneval, --mt-bench, --gsm8k, --mbpp")
    found = []
    with prompts, tempfile.TemporaryDirectory(prefix="paceline-depths-") as work:
        for draft in options.draft:
            found.append((draft, *measure(options, draft, sets, pathlib.Path(work))))
    print(parts.call([options.paceline, "--version"]))
    print("| draft | layers | bytes | a pass, ms | " + " | ".join(sets) + " |\n"
          "|---|---:|---:|---:|" + "---:|" * len(sets))
    for draft, seconds, lengths in found:
        cells = " | ".join(f"{lengths[name]:.2f}" for name in sets)
        print(f"| {draft.stem} | {parts.metadata_of(draft)['layers']} | {draft.stat().st_size} | "
              f"{1000 * seconds:.3f} | {cells} |")


if __name__ == "__main__":
    main()
