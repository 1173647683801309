#!/usr/bin/env python3
"""What each mechanism that limits speculation gains: simulated, with it and without it.

    paceline simulate --measure-costs costs.tsv
    bench/throttles.py --costs costs.tsv --out throttles.tsv --humaneval HumanEval.jsonl.gz
        --mt-bench mt_bench_question.jsonl [--first 4] [-n 48] [--build "draft pause=PROGRAM"]

A mechanism with a configuration key is switched off by that key; for one without a key --build names a
paceline from which it was removed. Cases: trained parts; a draft and an exit that are nearly always
wrong (useless); for silent waits a draft slower than the wait (stalled). Each with the target's
devices as configured (1: one device, of FOLD and AdaDecode theirs) and with four.
"""

import argparse
import json
import pathlib
import subprocess

import prompt_sets
import sweep_configs

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = pathlib.Path.home() / ".cache/paceline/SmolLM2-135M-Instruct.Q4_1.gguf"
SEQUENTIAL = ["speculative", "speculative-adaptive", "speculative-worth", "speculative-tree",
         "prompt-lookup+draft", "fold-sequential"]
AHEAD = ["pearl", "fold", "hybrid"]
MECHANISMS = {  # the setting that switches it off, the methods that have it
    "adaptive": ("draft.adaptive=false", ["speculative-adaptive"]),
    "confidence_min": ("draft.confidence_min=0", ["speculative-adaptive"]),
    "while_worth": ("draft.while_worth=false", ["speculative-worth", "prompt-lookup+draft"]),
    "draft reach_min": ("draft.reach_min=0", [*SEQUENTIAL, *AHEAD]),
    "schedule reach_min": ("schedule.reach_min=0", ["prompt-lookup+draft", *AHEAD]),
    "exit pause": ("exit.always_on=true",
                   ["fold-sequential", *AHEAD[1:], "adadecode", "adadecode-parallel", "heads"]),
    "draft pause": (None, [*SEQUENTIAL, *AHEAD]),
    "lookup row": (None, ["prompt-lookup", "prompt-lookup+draft"]),
    "silent waits": (None, ["speculative", "prompt-lookup+draft"]),
}


def words_of(method, case, devices, program, folder):
    """A method's configuration and settings."""
    text = sweep_configs.text_of(method, program)
    settings = {"stalled": ["draft-cost=100"], "useless": [], "trained": []}[case]
    if case == "useless" and '"early-verify"' in text:
        settings += ["exit-layer=3"]
    if case == "useless" and "trained" in text:  # as cheap as a trained draft
        source = "prompt-lookup+first-layers" if "lookup+trained" in text else "first-layers"
        settings += [f"draft.source={source}", "draft.layers=1", "draft-cost=0.06"]
    words = [word for setting in settings for word in ("--set", setting)]
    words += ["--parts", "none"] if case == "useless" else []
    if devices == 4 and "adadecode" in method:
        text = text.replace('process = "target"\n', "").replace("segments = 2", "segments = 4")
    elif devices == 4:
        text = sweep_configs.with_segments(text, 4, 4 if '"at-once"' in text else 1)
    file = folder / f"{method}-{devices}.toml"
    file.write_text(text, encoding="utf-8")
    return ["--config", str(file), *words]


def rates(options, program, words, sets, folder):
    """{set: tokens per simulated second}, over all tokens after the first of each answer."""
    out = folder / "run.json"
    subprocess.run([program, "simulate", "-t", "1", "-m", options.model, "--costs", options.costs,
                    "--hop-us", "0", "--prompts", folder / "all.jsonl", "-n", str(options.n),
                    "--json", out, *words], check=True, stdout=subprocess.DEVNULL)
    answers = iter(json.loads(out.read_text())[0]["prompts"])
    found = {}
    for name, count in sets.items():
        rows = [row for row in (next(answers) for _ in range(count)) if row["tokens"] > 1]
        found[name] = (sum(row["tokens"] - 1 for row in rows)
                       / sum((row["tokens"] - 1) / row["tokens_per_second"] for row in rows))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline")
    parser.add_argument("--model", default=DEMO)
    parser.add_argument("--costs", required=True)
    parser.add_argument("--out", type=argparse.FileType("w"), required=True)
    parser.add_argument("-n", type=int, default=48)
    parser.add_argument("--build", action="append", default=[], metavar="MECHANISM=PROGRAM")
    parser.add_argument("--only", action="append", default=[], choices=MECHANISMS)
    options = parser.parse_args()
    builds = dict(word.split("=", 1) for word in options.build)
    files, prompts = prompt_sets.chosen(options)
    options.out.write("set\tmethod\tdevices\tcase\tmechanism\twith\twithout\tgain_percent\n")
    with prompts:
        folder = pathlib.Path(prompts.name)
        sets = {name: len(prompt_sets.lines_of(file)) for name, file in files.items()}
        (folder / "all.jsonl").write_text("".join(file.read_text() for file in files.values()))
        for mechanism in options.only or MECHANISMS:
            key, methods = MECHANISMS[mechanism]
            if not key and mechanism not in builds:
                continue
            cases = ["stalled"] if mechanism == "silent waits" else ["trained", "useless"]
            for method, case, devices in [(m, c, d) for m in methods for c in cases for d in (1, 4)]:
                words = words_of(method, case, devices, options.paceline, folder)
                whole = rates(options, options.paceline, words, sets, folder)
                without = rates(options, builds.get(mechanism, options.paceline),
                                [*words, *(["--set", key] if key else [])], sets, folder)
                for name, rate in whole.items():
                    options.out.write(f"{name}\t{method}\t{devices}\t{case}\t{mechanism}\t{rate:.1f}\t"
                                      f"{without[name]:.1f}\t{100 * (rate / without[name] - 1):.1f}\n")
                options.out.flush()


if __name__ == "__main__":
    main()
