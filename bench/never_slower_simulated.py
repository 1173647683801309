#!/usr/bin/env python3
"""Whether speculation loses against the same pipeline without it, on simulated devices.

    paceline simulate --measure-costs costs.tsv
    bench/never_slower_simulated.py --costs costs.tsv --out TABLE.tsv [--devices 1,4] [--cases trained,useless]
        [--methods fold,...] [--before PROGRAM] [--first 4] [-n 256] [--humaneval FILE] [--mt-bench FILE]
        [--oracle-costs SHAPE.tsv --shape SHAPE]

Each process of a method is a device with the costs of one thread; with --devices 4 the target has four, with --devices
cores2 all processes share one device of two threads (the table needs --measure-threads 1,2). The text and what
is accepted are the real model's, the time is simulated. Cases:

    trained        the parts that came with the program
    useless        a draft of one layer, an exit after the third, no trained parts: nearly always wrong
    calibrated     an oracle of --shape, right in 0.7 and 0.5 of the cases, and knows how sure to be
    overconfident  the same, says p^(1/3) where it is right with probability p
    correlated     the same, right a quarter as often in phases of 32 tokens, a third of the text

The cases of an oracle have costs of their own (--measure-costs --random SHAPE) and no prompts, their set is "oracle".
Methods that an oracle cannot answer (prompt-lookup, heads, exits that look ahead) are left out.

A row has tokens/s of the method, of the same processes when none of them speculates (asleep), the ratio, and with
--before the rate of another build. The figures of a set are all its tokens after the first of each answer, over the
time for them.
"""

import argparse
import json
import pathlib
import subprocess

import prompt_sets
import sweep_configs
from cache_folder import DEMO_MODEL

ROOT = pathlib.Path(__file__).resolve().parent.parent
METHODS = ["prompt-lookup", "speculative", "speculative-adaptive", "speculative-tree", "prompt-lookup+draft",
           "fold-sequential", "pearl", "fold", "hybrid", "four-stages", "adadecode", "adadecode-parallel", "heads"]
ASLEEP = ["--set", "schedule.controller=plain"]
SHARED = "cores2"
ORACLES = {"calibrated": [], "overconfident": ["--overconfidence", "3"],
           "correlated": ["--bad-share", "0.33", "--bad-length", "32", "--bad-accuracy", "0.25"]}
ORACLE_METHODS = ["speculative", "speculative-adaptive", "speculative-tree", "fold-sequential", "pearl", "fold",
                  "four-stages"]
ORACLE = "oracle"  # the set of its answers,
ORACLE_ANSWERS = 4  # so many


def words_of(method, case, devices, program, folder):
    """A method's configuration and settings; nothing where the case changes nothing in it."""
    text = sweep_configs.text_of(method, program)
    settings = []
    if case == "useless" and method in ("prompt-lookup", "heads"):
        return None
    if case == "useless" and '"early-verify"' in text:
        settings += ["exit-layer=3"]
    if case != "trained" and "trained" in text:  # as cheap as a trained draft
        source = "prompt-lookup+first-layers" if "lookup+trained" in text else "first-layers"
        settings += [f"draft.source={source}", "draft.layers=1", "draft-cost=0.06"]
    words = [word for setting in settings for word in ("--set", setting)]
    words += ["--parts", "none"] if case == "useless" else []
    if devices == 4 and "adadecode" in method:
        text = text.replace('process = "target"\n', "").replace("segments = 2", "segments = 4")
    elif devices == 4:
        text = sweep_configs.with_segments(text, 4, 4 if '"at-once"' in text else 1)
    if devices == SHARED:
        words += ["--shared-device", "all", "--device-threads", "2"]
    file = folder / f"{method}-{devices}.toml"
    file.write_text(text, encoding="utf-8")
    return ["--config", str(file), *words]


def asked_of(case, options, folder):
    """The model, its costs and what it is asked."""
    if case in ORACLES:
        return ["--random", options.shape, "--costs", options.oracle_costs, "--acceptance", "0.7",
                "--exit-accuracy", "0.5", *ORACLES[case]]
    return ["-m", options.model, "--costs", options.costs, "--prompts", folder / "all.jsonl"]


def rates(options, program, case, words, sets, folder):
    """{set: tokens per simulated second}."""
    out = folder / "run.json"
    subprocess.run([program, "simulate", *asked_of(case, options, folder), "--hop-us", str(options.hop_us),
                    "-n", str(options.n), "--json", out, *words], check=True, stdout=subprocess.DEVNULL)
    answers = iter(json.loads(out.read_text())[0]["prompts"])
    found = {}
    for name, count in sets.items():
        rows = [row for row in (next(answers) for _ in range(count)) if row["tokens"] > 1]
        found[name] = (sum(row["tokens"] - 1 for row in rows)
                       / sum((row["tokens"] - 1) / row["tokens_per_second"] for row in rows))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline")
    parser.add_argument("--before", help="another build of the program, measured in the same cells")
    parser.add_argument("--model", default=DEMO_MODEL)
    parser.add_argument("--costs", required=True)
    parser.add_argument("--hop-us", type=float, default=20)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--devices", default="1,4", help="1, 4 or cores2, between commas")
    parser.add_argument("--cases", default="trained,useless")
    parser.add_argument("--shape", default="smollm2-135m", help="of the cases of an oracle")
    parser.add_argument("--oracle-costs", help="the shape's cost table")
    parser.add_argument("-n", type=int, default=256)
    parser.add_argument("--out", type=argparse.FileType("w"), required=True)
    options = parser.parse_args()
    if any(case in ORACLES for case in options.cases.split(",")) and not options.oracle_costs:
        parser.error("the cases of an oracle need --oracle-costs")
    files, prompts = prompt_sets.chosen(options)
    options.out.write("set\tmethod\tdevices\tcase\trate\tasleep\tratio\tbefore\n")
    with prompts:
        folder = pathlib.Path(prompts.name)
        sets = {name: len(prompt_sets.lines_of(file)) for name, file in files.items()}
        (folder / "all.jsonl").write_text("".join(file.read_text() for file in files.values()))
        cells = [(method, devices if devices == SHARED else int(devices), case) for method in options.methods.split(",")
                 for devices in options.devices.split(",") for case in options.cases.split(",")]
        for method, devices, case in cells:
            words = words_of(method, case, devices, options.paceline, folder)
            if words is None or (case in ORACLES and method not in ORACLE_METHODS):
                continue
            asked = {ORACLE: ORACLE_ANSWERS} if case in ORACLES else sets
            own = rates(options, options.paceline, case, words, asked, folder)
            asleep = rates(options, options.paceline, case, [*words, *ASLEEP], asked, folder)
            before = rates(options, options.before, case, words, asked, folder) if options.before else {}
            for name, rate in own.items():
                then = f"{before[name]:.1f}" if before else "-"
                print(name, method, devices, case, f"{rate:.1f}", f"{asleep[name]:.1f}",
                      f"{rate / asleep[name]:.3f}", then, sep="\t", file=options.out, flush=True)


if __name__ == "__main__":
    main()
