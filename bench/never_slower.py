#!/usr/bin/env python3
"""Whether speculation loses against plain decoding: alternating pairs of whole runs of `paceline run`.

    bench/never_slower.py [--methods auto,prompt-lookup,...] [--against plain|own] [--dtypes q4,bf16]
                          [--temps 0,0.8] [--pairs 9] [-n 256] [--busy] [--requests 1]
                          [--humaneval FILE] [--mt-bench FILE] [--gsm8k FILE] [--out TABLE.tsv]

A cell is a set of prompts, a type of weights, a temperature and a method. Each of its pairs decodes one prompt twice,
once by the method and once by what it is compared with, each of them first in every other pair:

    --against plain   plain decoding
    --against own     the method's own processes, none of which speculates ([schedule] controller = "plain"): what
                      speculation itself gains or loses there
    --before PROGRAM  the same method in another build of the program

The rate of a run is its tokens after the first over the time for them. A cell's figures are the median of the ratios
and the interval in which the median of all such pairs lies with a probability of 95 % (order statistics); the set `all` has the pairs of all sets. The method
`plain` against plain is the control: it shows what the machine's noise makes of equal programs. Answers of fewer than
--least tokens are decoded, and not counted. Nothing else may run on the machine. --busy keeps one endless loop running
beside both. With --requests N the pairs are of `paceline check`, whose rate is of N answers decoded at the same time:
--against plain is then `autoregressive`. --first-token compares the seconds from the start of a command to the first
byte of its answer: the figures are then differences, of the method less the other.
"""

import argparse
import itertools
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import prompt_sets
from cache_folder import DEMO_MODEL

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOOP = [sys.executable, "-c", "while True: pass"]
PAIRS_MIN = 6  # fewer have no interval of 95 %
COLUMNS = ["set", "dtype", "temp", "requests", "method", "against", "pairs", "median", "low", "high", "decoded_by"]


def interval(ratios):
    """The closest order statistics that hold the median with a probability of 95 %: the binomial distribution."""
    ratios = sorted(ratios)
    count = len(ratios)
    outside, left = 0.0, 0
    while True:
        outside += 2 * math.comb(count, left) / 2**count
        if outside > 0.05 or 2 * (left + 1) > count:
            break
        left += 1
    left = max(left - 1, 0)
    return ratios[left], ratios[count - 1 - left]


class Bench:
    """One command line of this script, and the files that its runs share."""

    def __init__(self, options, folder):
        self.options = options
        self.folder = pathlib.Path(folder)

    def asleep(self, method):
        """The method's processes without speculation, as a configuration."""
        file = self.folder / f"{method}-asleep.toml"
        file.write_text(f'extends = "{method}"\n[schedule]\ncontroller = "plain"\n', encoding="utf-8")
        return ["--config", str(file)]

    def sampling(self, temp, seed):
        return [] if temp == 0 else ["--temp", str(temp), "--seed", str(seed)]

    def one(self, program, how, prompt, dtype, temp, seed):
        """(tokens, tokens per second, method) of one answer."""
        stats = self.folder / "stats.json"
        command = [program, "run", "-m", self.options.model, "--dtype", dtype, "-q", "-n", str(self.options.n), *how,
                   *self.sampling(temp, seed), "--stats", str(stats), "-p", prompt]
        done = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{command}\n{done.stderr}")
        found = json.loads(stats.read_text())
        return found["generated_tokens"], found["tokens_per_second"], found["method"]

    def to_first_token(self, program, how, prompt, dtype, temp, seed):
        """(tokens, seconds, options) from the start of a command to the first byte of its answer."""
        command = [program, "run", "-m", self.options.model, "--dtype", dtype, "-q", "-n", "1", *how,
                   *self.sampling(temp, seed), "-p", prompt]
        begin = time.monotonic()
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
            if not run.stdout.read(1):
                sys.exit(f"{command}: no answer")
            seconds = time.monotonic() - begin
        return self.options.least, seconds, " ".join(how)

    def many(self, program, how, prompts, dtype, temp, seed):
        """The same of answers decoded at the same time."""
        out = self.folder / "check.json"
        command = [program, "check", "-m", self.options.model, "--dtype", dtype, "-n", str(self.options.n), *how,
                   *self.sampling(temp, seed), "--requests", str(self.options.requests), "--prompts", str(prompts),
                   "--first", str(2 * self.options.requests), "--json", str(out)]
        done = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{command}\n{done.stderr}")
        found = json.loads(out.read_text())
        tokens = min(row["tokens"] for row in found["prompts"])
        return tokens, found["figures"]["tokens_per_second"], found["figures"]["method"]

    def sides(self, method):
        """(program, options) of the method and of what it is compared with."""
        ours = (self.options.paceline, ["--method", method])
        if self.options.before:
            return ours, (self.options.before, ["--method", method])
        if self.options.against == "own":
            return ours, (self.options.paceline, self.asleep(method))
        plain = "autoregressive" if self.options.requests > 1 else "plain"
        return ours, (self.options.paceline, ["--method", plain])

    def cell(self, name, file, dtype, temp, method):
        options = self.options
        sides = self.sides(method)
        lines = [prompt_sets.text_of(line) for line in prompt_sets.lines_of(file)]
        ratios, names = [], set()
        for number in range(2 * options.pairs):  # some answers are too short
            rates = [0.0, 0.0]
            tokens = 0
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                program, how = sides[side]
                if options.requests > 1:
                    tokens, rates[side], decoded = self.many(program, how, file, dtype, temp, number + 1)
                else:
                    decode = self.to_first_token if options.first_token else self.one
                    prompt = lines[number % len(lines)]
                    tokens, rates[side], decoded = decode(program, how, prompt, dtype, temp, number + 1)
                names |= {decoded} if side == 0 else set()
            if tokens >= options.least and min(rates) > 0:
                ratios.append(rates[0] - rates[1] if options.first_token else rates[0] / rates[1])
            if len(ratios) == options.pairs:
                break
        return ratios, names

    def row(self, name, dtype, temp, method, ratios, names):
        options = self.options
        head = [name, dtype, temp, options.requests, method, "before" if options.before else options.against]
        if len(ratios) < PAIRS_MIN:
            return [*head, len(ratios), "-", "-", "-", "-"]
        low, high = interval(ratios)
        return [*head, len(ratios), f"{statistics.median(ratios):.3f}", f"{low:.3f}", f"{high:.3f}",
                ",".join(sorted(names))]


def tell(options, row):
    print(*row, sep="\t", flush=True)
    if options.out:
        print(*row, sep="\t", file=options.out, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline")
    parser.add_argument("--before", help="another build: the same methods there are what is compared with")
    parser.add_argument("--model", default=DEMO_MODEL)
    parser.add_argument("--methods", default="plain,auto")
    parser.add_argument("--against", choices=["plain", "own"], default="plain")
    parser.add_argument("--dtypes", default="q4,bf16")
    parser.add_argument("--temps", default="0,0.8")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--least", type=int, default=64)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--first-token", action="store_true")
    parser.add_argument("-n", type=int, default=256)
    parser.add_argument("--out", type=argparse.FileType("a"))
    options = parser.parse_args()
    if options.pairs < PAIRS_MIN:
        parser.error(f"--pairs {options.pairs}: fewer than {PAIRS_MIN} have no interval")
    if options.first_token and options.requests > 1:
        parser.error("--first-token: with one request alone")
    files, folder = prompt_sets.chosen(options)
    print(*COLUMNS, sep="\t", flush=True)
    neighbour = subprocess.Popen(LOOP) if options.busy else None
    try:
        with folder, tempfile.TemporaryDirectory() as own:
            bench = Bench(options, own)
            for method, dtype, temp in itertools.product(
                    options.methods.split(","), options.dtypes.split(","), map(float, options.temps.split(","))):
                pooled, decoders = [], set()
                for name, file in files.items():
                    ratios, names = bench.cell(name, file, dtype, temp, method)
                    pooled += ratios
                    decoders |= names
                    tell(options, bench.row(name, dtype, temp, method, ratios, names))
                if len(files) > 1:
                    tell(options, bench.row("all", dtype, temp, method, pooled, decoders))
    finally:
        if neighbour:
            neighbour.kill()
            neighbour.wait()


if __name__ == "__main__":
    main()
