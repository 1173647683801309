#!/usr/bin/env python3
"""All methods on the same prompts, against plain decoding and against llama.cpp.

    bench/methods.py --humaneval HumanEval.jsonl.gz --mt-bench mt_bench_question.jsonl
                     [--methods pearl,fold,...] [--parts with,none] [--rejected] [--rounds 3]
                     [--first 8] [-n 128] [--json FILE]

Every round runs each method once on each set (`paceline check`, which also decodes the same
prompts plainly on all cores, compares every token, and counts what was wasted), then plain
decoding on one core, then llama.cpp with the same file: plain decoding of as many tokens, and every
kind of its own speculation that needs no second model, on the first --peer-prompts of the same
prompts. So what is compared ran minutes apart at most; ratios are formed per round, the table has
medians and ranges.

--parts: each method with the trained parts of the model, without any (`none`), or both, a row each.
--rejected adds rows in which every guess of the draft is wrong: a draft of the target's first layer
whose head knows only the first 16 tokens, which no answer holds. Most of these are end tokens, which are
not sent for verification: the rows say what drafting alone costs, against plain decoding on all cores for
sequential methods, on one core where the draft has its own.

Ratios: x all: to plain decoding on all cores. x one: to plain decoding on one core. x llama.cpp: to
its plain decoding; x its best: to the fastest of its kinds of speculation, which is named. Tokens/s
are tokens after the first of each answer over the time for them, over all prompts of a set.
A text that repeats itself (a run of 20 tokens that was there before) flatters every drafter, so
every figure stands there twice: of all prompts, and of those that do not loop. In the llama.cpp
columns the prompts that loop are always in.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import prompt_sets
from cache_folder import DEMO_MODEL, LLAMA_CPP
from llama_speculation import KINDS, Llama

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Not a pipeline, or what other rows are measured against.
OMITTED = {"plain"}
# Whose draft can be made useless: a sequential one, one on a core of its own.
REJECTED = ["speculative", "pearl"]


def listed_methods(paceline):
    text = subprocess.run([paceline, "run", "--list-methods", "all"], capture_output=True, text=True,
                          check=True).stdout
    names = [line.split()[0] for line in text.splitlines() if re.match(r"[a-z]", line)]
    return [name for name in names if name not in OMITTED]


def check(options, words, file):
    """One run of `paceline check`: its JSON, or the reason why there is none."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [options.paceline, "check", "-m", options.model, "--prompts", file, "-n",
                   str(options.n), "--json", out.name, *options.sampling, *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        text = pathlib.Path(out.name).read_text()
        # Exit code 1 with a report: an answer that differs, which the table shows.
        if done.returncode not in (0, 1) or not text:
            return None, (done.stderr.strip().splitlines() or ["failed"])[0]
        return json.loads(text), ""


def rate(prompts, key, loops=True):
    """Tokens after the first, over their time."""
    tokens = seconds = 0.0
    for row in prompts:
        if row[key] > 0 and (loops or not row["loops"]):
            tokens += row["tokens"] - 1
            seconds += (row["tokens"] - 1) / row[key]
    return tokens / seconds if seconds else 0.0


def rows_of(options, methods):
    """(label, words for `paceline check`) of every row of the tables."""
    rows = []
    for parts in options.parts.split(","):
        for method in methods:
            label = method if parts == "with" else f"{method}, no parts"
            words = ["--parts", "none"] if parts == "none" else []
            rows.append((label, ["--method", method, *words]))
    return rows


def rejected_rows(options, folder):
    """Methods whose draft is never right, as configurations of their own."""
    rows = []
    for method in REJECTED:
        text = (f'extends = "{method}"\n[draft]\nsource = "first-layers"\nlayers = 1\n'
                "short_list = 16\n")
        file = pathlib.Path(folder) / f"{method}-rejected.toml"
        file.write_text(text, encoding="utf-8")
        rows.append((f"{method}, always rejected", ["--config", str(file)]))
    return rows


def measure_round(options, rows, sets, llama, results):
    for name, file in sets.items():
        one_core, why = check(options, ["--method", "autoregressive", "-t", "1"], file)
        if one_core is None:
            sys.exit(f"plain decoding on one core: {why}")
        plain_one = rate(one_core["prompts"], "plain_tokens_per_second")
        peers = {}
        if llama.present():
            peers["plain"] = llama.plain()
            # Its tools know greedy decoding in one way only: at temperature 0.
            for kind in [] if options.sampling else llama.kinds:
                print(f"{name}, llama.cpp {kind}", file=sys.stderr, flush=True)
                peers[kind] = llama.speculation(kind, file, options.peer_prompts)
        for label, words in rows:
            print(f"{name}, {label}", file=sys.stderr, flush=True)
            made, why = check(options, words, file)
            results.append({"set": name, "method": label, "failed": why, "plain_one": plain_one,
                            "peers": peers, "check": made})


def spread(values, digits=2):
    if not values:
        return "-"
    middle = statistics.median(values)
    if len(values) == 1:
        return f"{middle:.{digits}f}"
    return f"{middle:.{digits}f} [{min(values):.{digits}f}..{max(values):.{digits}f}]"


def best_kind(peers):
    """Which of its speculations was the fastest; nothing if none was measured."""
    rates = {kind: peers[kind] for kind in KINDS if peers.get(kind)}
    return max(rates, key=rates.get) if rates else None


def peers_table(name, results):
    """What llama.cpp did by itself."""
    rounds = {id(r["peers"]): r["peers"] for r in results if r["set"] == name}.values()
    lines = [f"| {name} | {kind} | "
             + spread([peers[kind] for peers in rounds if peers.get(kind)], 1) + " |"
             for kind in ["plain", *KINDS]]
    return "\n".join(line for line in lines if "| - |" not in line)


def row_of(name, method, rounds):
    good = [r for r in rounds if r["check"]]
    if not good:
        return f"| {name} | {method} | {rounds[0]['failed']} |" + " |" * 9
    checks = [r["check"] for r in good]
    ours = [rate(c["prompts"], "tokens_per_second") for c in checks]
    bare = [rate(c["prompts"], "tokens_per_second", loops=False) for c in checks]
    plain = [rate(c["prompts"], "plain_tokens_per_second") for c in checks]
    bare_plain = [rate(c["prompts"], "plain_tokens_per_second", loops=False) for c in checks]
    figures = checks[-1]["figures"]

    against = [o / r["peers"]["plain"] for o, r in zip(ours, good) if r["peers"].get("plain")]
    kinds = [best_kind(r["peers"]) for r in good]
    against_best = [o / r["peers"][kind] for o, r, kind in zip(ours, good, kinds) if kind]
    prompts = checks[-1]["prompts"]
    differing = sum(c["differing"] for c in checks)
    return " | ".join([
        f"| {name}", method, "yes" if differing == 0 else f"NO ({differing})", spread(ours, 1),
        spread([o / p for o, p in zip(ours, plain) if p]),
        spread([b / p for b, p in zip(bare, bare_plain) if p]),
        f"{sum(p['loops'] for p in prompts)}/{len(prompts)}",
        spread([o / r["plain_one"] for o, r in zip(ours, good) if r["plain_one"]]),
        spread(against), spread(against_best) + (f" {kinds[-1]}" if kinds[-1] else ""),
        f"{figures.get('mean_acceptance_length', 0):.2f}",
        f"{100 * checks[-1]['overlap']['both']:.0f} % |"])


HEADER = ("| set | method | equal | tokens/s | x all | x all, no loops | loops | x one | "
          "x llama.cpp | x its best | acceptance length | overlap |\n"
          "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--llama", default=LLAMA_CPP,
                        help="folder of bench/build_llama_cpp; without it those columns are empty")
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--methods", help="comma-separated (default: all that run --list-methods)")
    parser.add_argument("--parts", default="with", help="with, none, or with,none")
    parser.add_argument("--rejected", action="store_true",
                        help="also measure drafts that are always wrong")
    parser.add_argument("--peer-kinds", default=",".join(KINDS),
                        help="of llama.cpp's own speculation, comma-separated")
    parser.add_argument("--peer-prompts", type=int, default=2,
                        help="prompts of each set for those; 0: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-n", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=0.95, help="with --temp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="write every run to this file")
    options = parser.parse_args()
    options.sampling = [] if options.temp == 0 else [
        "--temp", str(options.temp), "--top-p", str(options.top_p), "--seed", str(options.seed)]
    unknown = set(options.parts.split(",")) - {"with", "none"}
    unknown |= set(filter(None, options.peer_kinds.split(","))) - set(KINDS)
    if unknown:
        sys.exit(f"--parts or --peer-kinds: {', '.join(sorted(unknown))} unknown")
    methods = options.methods.split(",") if options.methods else listed_methods(options.paceline)
    sets, folder = prompt_sets.chosen(options)
    llama = Llama(options.llama, options.model, options.n,
                  list(filter(None, options.peer_kinds.split(","))))
    results = []
    with folder:
        rows = rows_of(options, methods)
        if options.rejected:
            rows += rejected_rows(options, folder.name)
        for _ in range(options.rounds):
            measure_round(options, rows, sets, llama, results)
    print(subprocess.run([options.paceline, "--version"], capture_output=True, text=True).stdout)
    print(f"{options.rounds} rounds, {options.n} tokens, "
          f"{'greedy' if not options.sampling else ' '.join(options.sampling)}\n\n{HEADER}")
    for name in sets:
        for label, _ in rows:
            print(row_of(name, label,
                         [r for r in results if r["set"] == name and r["method"] == label]))
    if llama.present():
        print("\n| set | llama.cpp | tokens/s |\n|---|---|---:|")
        for name in sets:
            print(peers_table(name, results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
