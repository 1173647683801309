#!/usr/bin/env python3
"""Every source of drafts in one table: what it gains in tokens and in time, and what it costs.

    bench/draft_sources.py --humaneval HumanEval.jsonl.gz --gsm8k gsm8k-heldout.jsonl
                           --mt-bench mt_bench_question.jsonl --no-own --store answers.jsonl
                           [--temp 0.8 --seed 1] [--rows lookahead,rest] [--costs costs.tsv]
                           [--accounts off] [--first 8] [-n 128] [--rounds 1] [--tsv FILE]

Without a file the project's own prompts (bench/prompts) are judged. Each set is decoded greedily and drawn with --temp by
every row of draft_sources_rows.py: `paceline check`, which decodes each prompt plainly too and compares the tokens.

account       off: drafts are never switched off or shortened ([schedule] controller = "off"; with [self_draft] auto_off =
              false). own: as the method's file says. One row where both are the same
M             tokens of a verify batch, the target's own included, batches without candidates counted too; neither the prompt's
              batch nor its token
alpha         accepted tokens over verified candidates; of targets that draft for themselves over drafted tokens. A window's
              rows and branches count as candidates
first_accepted  share of the drafts whose first token was accepted: the accuracy that `paceline simulate --acceptance` and
              projections.py want
forwards      of the target, for each token, with those of the prompts
layer_rows    layers that rows went through, for each token, without prompts: (candidates + batches) x layers of the target
              + rows of the draft x its layers; of targets that draft for themselves their own account of it. Rows that
              end at an exit count as whole ones; exits, adapters and heads do not count
draft_layers  and where they are from: the part, [draft] layers, or none (guesses)
part          the trained part, its size, and the minutes that its training took on two cores (docs/training.md)
times_plain   tokens/s over plain decoding's in the same run on this machine
simulated     the same with a device for every process, messages free, by --costs (paceline simulate --measure-costs)
paper         the papers' figure for the method and the set, greedy: other models, GPUs

rest needs --store: texts for `paceline datastore`. A text that has one of the judged prompts in it is refused. The last
table has the goals, each with its value over the greedy rows whose account is off. A row that does not run is told on
standard error with the reason, and left out.
"""

import argparse
import copy
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import draft_sources_account as account
import draft_sources_rows as table
import parts
import prompt_sets
from cache_folder import DEMO_MODEL
from methods import ROOT, check, listed_methods, rate, spread

COLUMNS = ["set", "sampling", "row", "account", "M", "alpha", "first_accepted", "forwards", "layer_rows",
           "draft_layers", "part", "part_mb", "minutes", "tokens_per_s", "times_plain", "simulated", "equal", "paper",
           "paper_source"]
SHORTEST_PROMPT = 20  # characters: shorter ones may be in a text by chance


def parts_of(options):
    """{name: (bytes, metadata)} of the model's trained parts."""
    if options.parts == "none":
        return {}
    options.target = options.shape
    folder = parts.parts_folder(options)
    return {file.stem: (file.stat().st_size, parts.metadata_of(file)) for file in sorted(folder.glob("*.safetensors"))}


def simulated(options, words, file):
    """Times plain decoding in simulated time; None without costs or where it does not run."""
    if not options.costs:
        return None
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [options.paceline, "simulate", "-m", options.model, "--costs", options.costs, "--hop-us", "0",
                   "--prompts", file, "-n", options.n, "--baseline", "--json", out.name, *options.sampling, *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            print(f"    simulate: {done.stderr.strip()[-200:]}", file=sys.stderr)
            return None
        return json.loads(pathlib.Path(out.name).read_text())[0]["times_plain"]


def run_row(options, file, method, settings):
    """(report of the first round, rates over plain, tokens/s of all rounds, reason if there is none)"""
    words = ["--method", method, *(word for setting in settings for word in ("--set", setting))]
    words += ["--parts", options.parts] if options.parts else []
    made = []
    for _ in range(options.rounds):
        report, why = check(options, [*words, *(["-t", options.threads] if options.threads else [])], file)
        if report is None:
            return None, why
        made.append(report)
    rates = [rate(report["prompts"], "tokens_per_second") for report in made]
    plain = [rate(report["prompts"], "plain_tokens_per_second") for report in made]
    return {"report": made[0], "tokens_per_s": rates, "differing": sum(r["differing"] for r in made),
            "over_plain": [r / p for r, p in zip(rates, plain) if p], "simulated": simulated(options, words, file)}, ""


def measured(options, name, file, there, store):
    """The records of one set with one sampling."""
    known = set(listed_methods(options.paceline))
    for label in options.rows:
        method, settings = table.ROWS[label]
        if method not in known or (method == "rest" and not store):
            print(f"{label} is left out: " + ("it needs --store" if method in known else "the program has no such method"),
                  file=sys.stderr)
            continue
        settings = [*settings, *([f"draft.datastore={store}"] if method == "rest" else [])]
        config = account.config_of(options, method, settings)
        part = account.part_of(config, there)
        for kind, more in account.accounts_of(config):
            if kind not in options.accounts:
                continue
            print(f"{name}, {options.label}, {label}, account {kind}", file=sys.stderr, flush=True)
            made, why = run_row(options, file, method, [*settings, *more])
            if made is None:
                print(f"    did not run: {why}", file=sys.stderr)
                continue
            figure, source = table.PAPERS.get(label, {}).get(name, (None, None)) if not options.sampling else (None, None)
            yield {"set": name, "sampling": options.label, "row": label, "account": kind,
                   **account.record_of(made["report"], config, there, options.shape["layers"]), "part": part,
                   "part_mb": there[part][0] / 1e6 if part else None, "minutes": table.MINUTES.get(part),
                   "tokens_per_s": spread(made["tokens_per_s"], 1), "simulated": made["simulated"],
                   "times_plain": statistics.median(made["over_plain"]) if made["over_plain"] else None,
                   "times": spread(made["over_plain"]), "paper": figure, "paper_source": source,
                   "equal": "yes" if not made["differing"] else f"NO ({made['differing']})"}


def cells_of(record):
    shown = {**record, "times_plain": record["times"]}
    return ["-" if shown[key] is None else f"{shown[key]:.2f}" if isinstance(shown[key], float) else str(shown[key])
            for key in COLUMNS]


def markdown(head, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def said(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def machine():
    names = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} virtual cores, {names[0] if names else os.uname().machine}"


def command_of(words):
    """The command line with names in the place of paths, without --paceline."""
    if "--paceline" in words:
        at = words.index("--paceline")
        words = words[:at] + words[at + 2:]
    return shlex.join(["bench/draft_sources.py", *(pathlib.Path(word).name if "/" in word else word for word in words)])


def write_tsv(path, records, words):
    lines = ["# what: every source of drafts: acceptance, target forwards, layer-rows, parts, tokens/s over plain decoding",
             f"# command: {command_of(words)}", f"# commit: {said('git', 'rev-parse', '--short', 'HEAD')}",
             f"# date: {time.strftime('%Y-%m-%d')}", f"# machine: {machine()}",
             "# columns: the head of bench/draft_sources.py says what they are", "\t".join(COLUMNS)]
    path.write_text("\n".join([*lines, *("\t".join(cells_of(record)) for record in records)]) + "\n", encoding="utf-8")


def store_of(options, sets, folder):
    """A datastore of the texts of --store; None without them."""
    if not options.store:
        return None
    judged = [prompt_sets.text_of(line).strip() for file in sets.values() for line in prompt_sets.lines_of(file)]
    for path in options.store:
        lines = prompt_sets.lines_of(path)
        text = "\n".join(map(strings_of, lines)) if ".jsonl" in path.suffixes else "".join(lines)
        for prompt in judged:
            if len(prompt) >= SHORTEST_PROMPT and prompt in text:
                sys.exit(f"--store {path}: has a prompt that is judged: {prompt[:60]!r}")
    out = pathlib.Path(folder) / "texts.store"
    parts.call([options.paceline, "datastore", "-m", options.model, *options.store, "-o", out])
    return out


def strings_of(line):
    """All strings of a JSON value."""
    def walk(value):
        if isinstance(value, str):
            return [value]
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        return [text for each in values for text in walk(each)]
    return "\n".join(walk(json.loads(line)))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--parts", help="folder of trained parts, or none (default: the one that the program finds)")
    parser.add_argument("--rows", help="only these, separated by ';' (default: all of draft_sources_rows.py)")
    parser.add_argument("--accounts", default="off,own", help="off, own, or both (default)")
    parser.add_argument("--store", nargs="+", type=pathlib.Path, default=[], help="texts of rest's store (text, JSONL)")
    parser.add_argument("--costs", type=pathlib.Path, help="a cost table, for simulated time")
    parser.add_argument("--temp", type=float, default=0.8, help="beside greedy; 0: greedy alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-n", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--threads", type=int, help="of each run (default: the program's)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tsv", type=pathlib.Path, help="write the table to this file, in the form of bench/results")
    options = parser.parse_args()
    options.rows = options.rows.split(";") if options.rows else list(table.ROWS)
    options.accounts = options.accounts.split(",")
    if not set(options.accounts) <= {"off", "own"}:
        sys.exit(f"--accounts {','.join(options.accounts)}: must be off, own or off,own")
    unknown = set(options.rows) - set(table.ROWS)
    if unknown:
        sys.exit(f"--rows: {'; '.join(sorted(unknown))} unknown; there are {'; '.join(table.ROWS)}")
    options.shape = json.loads(parts.call([options.paceline, "inspect", options.model, "-o", "json"]))
    return options


def main():
    options = read_options()
    there = parts_of(options)
    sets, prompts = prompt_sets.chosen(options)
    records = []
    with prompts:
        store = store_of(options, sets, prompts.name)
        for label, sampling in [("greedy", []), (f"temperature {options.temp:g}",
                                                 ["--temp", options.temp, "--seed", options.seed])][:1 + bool(options.temp)]:
            case = copy.copy(options)
            case.label, case.sampling = label, sampling
            for name, file in sets.items():
                for record in measured(case, name, file, there, store):
                    records.append(record)
                    if options.tsv:
                        write_tsv(options.tsv, records, sys.argv[1:])
    print(markdown(COLUMNS, map(cells_of, records)))
    print("\n" + markdown(["goal", "set", "least", "value", ""], account.goal_lines(table.GOALS, records)))


if __name__ == "__main__":
    main()
