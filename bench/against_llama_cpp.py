#!/usr/bin/env python3
"""Paceline against llama.cpp on the demo model, alternating, in one session on one machine.

    bench/build_llama_cpp                       # once: the peer, outside this tree
    bench/against_llama_cpp.py [--rounds 5] [--threads 1,2] [--sections decode,batch,...] [--json F]

Every case is measured once per round by both programs, one right after the other; the ratio is
formed per round, so a drift of the machine's speed cancels. Printed: medians and ranges. Rounds in
which other processes used more than --foreign of the machine are repeated.

Sections (each is a bound of docs/performance.md):
    decode   tg128 from an empty context: demo file as it is, bf16, int8 against q8_0
    prefill  pp512 on the demo file
    batch    one row and 8 rows with logits for all rows (llama-batched-bench)
    depth    tg32 after 512, 2048 and 8000 tokens, demo file
    avx2     tg128 without AVX-512, against llama.cpp built for AVX2
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from cache_folder import DEMO_MODEL, LLAMA_CPP

ROOT = pathlib.Path(__file__).resolve().parent.parent


def busy_ticks():
    """Clock ticks that all processes together have used, from /proc/stat."""
    fields = [int(x) for x in open("/proc/stat").readline().split()[1:]]
    return sum(fields[:3]) + sum(fields[5:8])


class Foreign:
    """Share of the machine that processes other than our children use while it is open."""

    def __enter__(self):
        self.start = time.monotonic(), busy_ticks(), sum(os.times()[2:4])
        return self

    def __exit__(self, *_):
        seconds = time.monotonic() - self.start[0]
        all_seconds = (busy_ticks() - self.start[1]) / os.sysconf("SC_CLK_TCK")
        ours = sum(os.times()[2:4]) - self.start[2]
        self.share = max(0.0, all_seconds - ours) / (seconds * os.cpu_count())


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


def cores(threads):
    return ",".join(str(c) for c in sorted(os.sched_getaffinity(0))[:threads])


class Programs:
    def __init__(self, options):
        self.paceline = options.paceline
        self.llama = pathlib.Path(options.llama)
        self.demo = options.model
        self.files = {"demo": self.demo, "bf16": self.llama / "smollm2-bf16.gguf",
                      "q8_0": self.llama / "smollm2-q8_0.gguf"}

    def ours(self, threads, dtype="auto", isa="auto", prompt=0, generate=0, depth=0, batches=""):
        command = [self.paceline, "bench", "-m", self.demo, "-t", str(threads), "--dtype", dtype,
                   "--isa", isa, "-p", str(prompt), "-n", str(generate), "-d", str(depth), "-r", "1",
                   "-o", "json"]
        if batches:
            command += ["--batches", batches]
        return json.loads(output_of(command))

    def theirs(self, threads, file, build="native", prompt=0, generate=0, depth=0):
        command = ["taskset", "-c", cores(threads), self.llama / build / "bin/llama-bench", "-m",
                   self.files[file], "-t", str(threads), "-p", str(prompt), "-n", str(generate),
                   "-d", str(depth), "-r", "1", "-o", "json"]
        return json.loads(output_of(command))[-1]["avg_ts"]

    def their_batches(self, threads, rows):
        command = ["taskset", "-c", cores(threads), self.llama / "native/bin/llama-batched-bench",
                   "-m", self.demo, "-t", str(threads), "-c", "2048", "-npp", "16", "-ntg", "24",
                   "-npl", ",".join(map(str, rows)), "--output-format", "jsonl"]
        lines = [json.loads(x) for x in output_of(command).splitlines() if x.startswith("{")]
        return {x["pl"]: x["t_tg"] / x["tg"] for x in lines}  # seconds a step of pl rows


def rate(rows):
    return rows[-1]["avg_ts"]


def cases(programs, threads, sections):
    """(name, our unit, function giving ours, function giving theirs); a rate is better higher."""
    p = programs
    if "decode" in sections:
        for name, dtype, file in (("demo file", "auto", "demo"), ("bf16", "bf16", "bf16"),
                                  ("int8 / q8_0", "int8", "q8_0")):
            yield (f"decode tg128, {name}, {threads}T", "tok/s",
                   lambda d=dtype: rate(p.ours(threads, d, generate=128)),
                   lambda f=file: p.theirs(threads, f, generate=128))
    if "prefill" in sections:
        yield (f"prefill pp512, demo file, {threads}T", "tok/s",
               lambda: rate(p.ours(threads, prompt=512)),
               lambda: p.theirs(threads, "demo", prompt=512))
    if "batch" in sections:
        for rows in (1, 8):
            yield (f"batch of {rows}, logits for all rows, demo file, {threads}T", "rows/s",
                   lambda r=rows: rate(p.ours(threads, batches=str(r))),
                   lambda r=rows: r / p.their_batches(threads, [r])[r])
    if "depth" in sections:
        for depth in (512, 2048, 8000):
            yield (f"decode tg32 at depth {depth}, demo file, {threads}T", "tok/s",
                   lambda d=depth: rate(p.ours(threads, generate=32, depth=d)),
                   lambda d=depth: p.theirs(threads, "demo", generate=32, depth=d))
    if "avx2" in sections:
        yield (f"decode tg128, demo file, AVX2 only, {threads}T", "tok/s",
               lambda: rate(p.ours(threads, isa="avx2", generate=128)),
               lambda: p.theirs(threads, "demo", build="avx2", generate=128))


def measure(case, options):
    name, unit, ours, theirs = case
    pairs, discarded = [], 0
    while len(pairs) < options.rounds:
        with Foreign() as foreign:
            pair = ours(), theirs()
        if foreign.share > options.foreign and discarded < 3 * options.rounds:
            discarded += 1
            continue
        pairs.append(pair)
    ratios = [a / b for a, b in pairs]
    return {"case": name, "unit": unit, "ours": [a for a, _ in pairs], "theirs": [b for _, b in pairs],
            "ratio": ratios, "discarded_rounds": discarded}


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}..{max(values):.{digits}f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--llama", default=LLAMA_CPP, help="folder of bench/build_llama_cpp")
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--sections", default="decode,prefill,batch,depth,avx2")
    parser.add_argument("--foreign", type=float, default=0.08, help="discard rounds with more foreign load")
    parser.add_argument("--json", help="write every sample to this file")
    options = parser.parse_args()
    for path in (options.paceline, options.llama, options.model):
        if not pathlib.Path(path).exists():
            sys.exit(f"{path} is missing; see the head of {__file__}")
    programs = Programs(options)
    print(output_of([options.paceline, "--version"]).strip())
    print(f"{options.rounds} rounds, ours then theirs; median [min..max]; ratio per round\n")
    print("| case | Paceline | llama.cpp | ratio |\n|---|---:|---:|---:|")
    results = []
    for threads in map(int, options.threads.split(",")):
        for case in cases(programs, threads, options.sections.split(",")):
            result = measure(case, options)
            results.append(result)
            note = f" ({result['discarded_rounds']} noisy rounds repeated)" if result["discarded_rounds"] else ""
            print(f"| {result['case']}{note} | {spread(result['ours'], 0)} {result['unit']} "
                  f"| {spread(result['theirs'], 0)} | **{spread(result['ratio'], 2)}** |", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
