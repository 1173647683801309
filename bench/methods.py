#!/usr/bin/env python3
"""All methods on the same prompts, against plain decoding and against llama.cpp.

    bench/methods.py --humaneval HumanEval.jsonl.gz --mt-bench mt_bench_question.jsonl
                     [--methods pearl,fold,...] [--rounds 3] [--first 8] [-n 128] [--json FILE]

Every round runs each method once on each set (`paceline check`, which also decodes the same
prompts plainly on all cores, compares every token, and counts what was wasted), then plain
decoding on one core, then llama.cpp: plain decoding of as many tokens, and its own speculation
(llama-lookup, llama-lookahead) on the same prompts with the same file. So what is compared ran
minutes apart at most; ratios are formed per round, the table has medians and ranges.

Ratios: x all: to plain decoding on all cores. x one: to plain decoding on one core. Tokens/s are
tokens behind the first of each answer over the time for them, over all prompts of a set.
A text that repeats itself (a run of 20 tokens that was there before) flatters every drafter, so
every figure stands there twice: of all prompts, and of those that do not loop. In the llama.cpp
columns the prompts that loop are always in.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import prompt_sets

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "paceline"
# Not a pipeline, or what other rows are measured against.
LEFT_OUT = {"plain"}


def listed_methods(paceline):
    text = subprocess.run([paceline, "run", "--list-methods"], capture_output=True, text=True,
                          check=True).stdout
    names = [line.split()[0] for line in text.splitlines() if re.match(r"[a-z]", line)]
    return [name for name in names if name not in LEFT_OUT]


def check(options, method, file, extra=()):
    """One run of `paceline check`: its JSON, or the reason why there is none."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [options.paceline, "check", "-m", options.model, "--method", method, "--prompts",
                   file, "-n", str(options.n), "--json", out.name, *options.sampling, *extra]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        text = pathlib.Path(out.name).read_text()
        # Exit code 1 with a report: an answer that differs, which the table shows.
        if done.returncode not in (0, 1) or not text:
            return None, (done.stderr.strip().splitlines() or ["failed"])[-1]
        return json.loads(text), ""


def rate(prompts, key, loops=True):
    """Tokens behind the first, over their time."""
    tokens = seconds = 0.0
    for row in prompts:
        if row[key] > 0 and (loops or not row["loops"]):
            tokens += row["tokens"] - 1
            seconds += (row["tokens"] - 1) / row[key]
    return tokens / seconds if seconds else 0.0


class Llama:
    def __init__(self, options):
        self.bin = pathlib.Path(options.llama) / "native/bin"
        self.options = options
        self.threads = len(os.sched_getaffinity(0))

    def present(self):
        return (self.bin / "llama-bench").exists()

    def plain(self):
        out = subprocess.run([self.bin / "llama-bench", "-m", self.options.model, "-t",
                              str(self.threads), "-p", "0", "-n", str(self.options.n), "-r", "1",
                              "-o", "json"], capture_output=True, text=True, check=True).stdout
        return json.loads(out)[-1]["avg_ts"]

    def speculation(self, tool, file):
        """Tokens/s of one of its own tools over a set; nothing if it is not built."""
        if not (self.bin / tool).exists():
            return None
        tokens = seconds = 0.0
        for line in prompt_sets.lines_of(file):
            # The tools know no chat template: what the model sees is written out.
            prompt = (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
                      f"{prompt_sets.text_of(line)}<|im_end|>\n<|im_start|>assistant\n")
            done = subprocess.run([self.bin / tool, "-m", self.options.model, "-t",
                                   str(self.threads), "-n", str(self.options.n), "-c", "4096",
                                   "--temp", "0", "-p", prompt],
                                  capture_output=True, text=True, errors="replace")
            found = re.search(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds",
                              done.stderr + done.stdout)
            if found:
                tokens += int(found.group(1))
                seconds += float(found.group(2))
        return tokens / seconds if seconds else None


SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def measure_round(options, methods, sets, llama, results):
    for name, file in sets.items():
        one_core, why = check(options, "autoregressive", file, ["-t", "1"])
        if one_core is None:
            sys.exit(f"plain decoding on one core: {why}")
        plain_one = rate(one_core["prompts"], "plain_tokens_per_second")
        peers = {}
        if llama.present():
            peers["llama.cpp"] = llama.plain()
            if not options.sampling:
                for tool in ("llama-lookup", "llama-lookahead"):
                    peers[tool] = llama.speculation(tool, file)
        for method in methods:
            print(f"{name}, {method}", file=sys.stderr, flush=True)
            made, why = check(options, method, file)
            results.append({"set": name, "method": method, "failed": why, "plain_one": plain_one,
                            "peers": peers, "check": made})


def spread(values, digits=2):
    if not values:
        return "-"
    middle = statistics.median(values)
    if len(values) == 1:
        return f"{middle:.{digits}f}"
    return f"{middle:.{digits}f} [{min(values):.{digits}f}..{max(values):.{digits}f}]"


def row_of(name, method, rounds):
    good = [r for r in rounds if r["check"]]
    if not good:
        return f"| {name} | {method} | {rounds[0]['failed']} |" + " |" * 10
    checks = [r["check"] for r in good]
    ours = [rate(c["prompts"], "tokens_per_second") for c in checks]
    bare = [rate(c["prompts"], "tokens_per_second", loops=False) for c in checks]
    plain = [rate(c["prompts"], "plain_tokens_per_second") for c in checks]
    bare_plain = [rate(c["prompts"], "plain_tokens_per_second", loops=False) for c in checks]
    figures = checks[-1]["figures"]

    def against(peer):
        return [o / r["peers"][peer] for o, r in zip(ours, good) if r["peers"].get(peer)]

    prompts = checks[-1]["prompts"]
    differing = sum(c["differing"] for c in checks)
    return " | ".join([
        f"| {name}", method, "yes" if differing == 0 else f"NO ({differing})", spread(ours, 1),
        spread([o / p for o, p in zip(ours, plain) if p]),
        spread([b / p for b, p in zip(bare, bare_plain) if p]),
        f"{sum(p['loops'] for p in prompts)}/{len(prompts)}",
        spread([o / r["plain_one"] for o, r in zip(ours, good) if r["plain_one"]]),
        spread(against("llama.cpp")), spread(against("llama-lookup")),
        spread(against("llama-lookahead")),
        f"{figures.get('mean_acceptance_length', 0):.2f}",
        f"{100 * checks[-1]['overlap']['both']:.0f} % |"])


HEADER = ("| set | method | equal | tokens/s | x all | x all, no loops | loops | x one | "
          "x llama.cpp | x its lookup | x its lookahead | acceptance length | overlap |\n"
          "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--llama", default=CACHE / "llama.cpp-0.3.36",
                        help="folder of bench/build_llama_cpp; without it those columns are empty")
    parser.add_argument("--model", default=str(CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--methods", help="comma-separated (default: all that run --list-methods)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-n", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=0.95, help="with --temp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="write every run to this file")
    options = parser.parse_args()
    options.sampling = [] if options.temp == 0 else [
        "--temp", str(options.temp), "--top-p", str(options.top_p), "--seed", str(options.seed)]
    methods = options.methods.split(",") if options.methods else listed_methods(options.paceline)
    sets, folder = prompt_sets.chosen(options)
    llama = Llama(options)
    results = []
    with folder:
        for _ in range(options.rounds):
            measure_round(options, methods, sets, llama, results)
    print(subprocess.run([options.paceline, "--version"], capture_output=True, text=True).stdout)
    print(f"{options.rounds} rounds, {options.n} tokens, "
          f"{'greedy' if not options.sampling else ' '.join(options.sampling)}\n\n{HEADER}")
    for name in sets:
        for method in methods:
            rounds = [r for r in results if r["set"] == name and r["method"] == method]
            print(row_of(name, method, rounds))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
