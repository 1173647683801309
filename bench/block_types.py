#!/usr/bin/env python3
"""Paceline against llama.cpp on GGUF files of every common block type, alternating, in one session.

    bench/build_llama_cpp                       # once: the peer and its llama-quantize, outside this tree
    bench/block_types.py [--types Q4_K_M,Q6_K] [--rounds 3] [--threads 2] [--folder /tmp] [--json FILE]

A bf16 file of the shape (default: Llama-3.2-1B) is made with synthetic weights (cuda/synthetic_gguf.py), and
llama-quantize makes the other files from it, so both programs read the same bytes. Cases of each file, measured
once per round by both programs, one right after the other; ratios are formed per round:

    decode   tg32 from an empty context
    prefill  pp128
    batch    8 rows a step with logits for all rows, against 8 sequences of llama-batched-bench

`of memory` is what decoding reads of weights per second, over what as many processes read of memory in the same
round: 1 would be the machine's limit.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from against_llama_cpp import ROOT, Foreign, cores, output_of, spread
from cache_folder import LLAMA_CPP

sys.path.insert(0, str(ROOT / "bench" / "cuda"))
from peer_report import read_shape  # noqa: E402: found through the line above
from synthetic_gguf import write_gguf  # noqa: E402: found through the line above

TYPES = "Q4_K_M,Q5_K_M,Q6_K,Q8_0,IQ4_XS,BF16"
DECODED, PROMPT, ROWS = 32, 128, 8


class Programs:
    """Runs both programs on one file."""

    def __init__(self, options, file):
        self.options = options
        self.file = file
        self.weights = 0  # bytes as Paceline has packed them

    def ours(self, prompt=0, generate=0, batches=""):
        command = [self.options.paceline, "bench", "-m", self.file, "-t", str(self.options.threads), "-p",
                   str(prompt), "-n", str(generate), "-r", "1", "-o", "json"]
        row = json.loads(output_of([*command, "--batches", batches] if batches else command))[-1]
        self.weights = row["model_size"]
        return row["avg_ts"]

    def theirs(self, prompt=0, generate=0):
        threads = self.options.threads
        command = ["taskset", "-c", cores(threads), self.options.llama / "native/bin/llama-bench", "-m", self.file,
                   "-t", str(threads), "-p", str(prompt), "-n", str(generate), "-r", "1", "-o", "json"]
        return json.loads(output_of(command))[-1]["avg_ts"]

    def their_batches(self):
        threads = self.options.threads
        command = ["taskset", "-c", cores(threads), self.options.llama / "native/bin/llama-batched-bench", "-m",
                   self.file, "-t", str(threads), "-c", "1024", "-npp", "8", "-ntg", "12", "-npl", str(ROWS),
                   "--output-format", "jsonl"]
        row = [json.loads(line) for line in output_of(command).splitlines() if line.startswith("{")][-1]
        return ROWS * row["tg"] / row["t_tg"]


def read_some(start):
    """Bytes per second of one process that looks through 512 MB for a byte which is not there."""
    buffer = bytearray(512 << 20)
    start.wait()
    begin = time.monotonic()
    for _ in range(3):
        buffer.find(1)  # memchr: faster than memory
    return 3 * len(buffer) / (time.monotonic() - begin)


def read_rate(threads):
    """The same of `threads` processes at once, together."""
    with multiprocessing.Manager() as manager, multiprocessing.Pool(threads) as pool:
        start = manager.Barrier(threads)
        return sum(pool.map(read_some, [start] * threads, chunksize=1))


def cases(programs):
    p = programs
    return {f"decode tg{DECODED}": (lambda: p.ours(generate=DECODED), lambda: p.theirs(generate=DECODED)),
            f"prefill pp{PROMPT}": (lambda: p.ours(prompt=PROMPT), lambda: p.theirs(prompt=PROMPT)),
            f"batch of {ROWS}": (lambda: p.ours(batches=str(ROWS)), p.their_batches)}


def measure(programs, options):
    """For each case its pairs of rates, and for decoding the share of the machine's memory rate."""
    results = {name: {"ours": [], "theirs": [], "foreign": []} for name in cases(programs)}
    shares = []
    for _ in range(options.rounds):
        memory = read_rate(options.threads)
        for name, (ours, theirs) in cases(programs).items():
            with Foreign() as foreign:
                results[name]["ours"].append(ours())
                results[name]["theirs"].append(theirs())
            results[name]["foreign"].append(foreign.share)
            if name.startswith("decode"):
                shares.append(results[name]["ours"][-1] * programs.weights / memory)
    return results, shares


def quantised(options, source, kind):
    if kind == "BF16":
        return source
    file = source.with_name(f"{kind}.gguf")
    subprocess.run([options.llama / "native/bin/llama-quantize", source, file, kind, str(os.cpu_count())], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--llama", default=LLAMA_CPP, type=pathlib.Path)
    parser.add_argument("--shape", type=pathlib.Path, default=ROOT / "configs/shapes/llama-1b.toml")
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", help="where the files are made: 2.5 GB, and as much again")
    parser.add_argument("--json", help="write every sample to this file")
    options = parser.parse_args()
    for path in (options.paceline, options.llama):
        if not path.exists():
            sys.exit(f"{path} is missing; see the head of {__file__}")
    print(output_of([options.paceline, "--version"]).strip())
    print(f"{options.rounds} rounds, {options.threads} threads, ours then theirs; median [min..max]\n")
    print("| file | case | Paceline tok/s | llama.cpp tok/s | ratio | of memory | other processes |\n"
          "|---|---|---:|---:|---:|---:|---:|", flush=True)
    samples = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        source = pathlib.Path(folder) / "BF16.gguf"
        write_gguf(read_shape(options.shape), source)
        for kind in options.types.split(","):
            file = quantised(options, source, kind)
            programs = Programs(options, file)
            results, shares = measure(programs, options)
            samples[kind] = {"results": results, "shares": shares, "weights": programs.weights,
                             "file": file.stat().st_size}
            for name, result in results.items():
                ratios = [a / b for a, b in zip(result["ours"], result["theirs"])]
                of_memory = spread(shares, 2) if name.startswith("decode") else ""
                print(f"| {kind} | {name} | {spread(result['ours'], 1)} | {spread(result['theirs'], 1)} "
                      f"| **{spread(ratios, 2)}** | {of_memory} | {max(result['foreign']):.2f} |", flush=True)
            print(f"| {kind} | weights in memory over the file | | "
                  f"| {programs.weights / file.stat().st_size:.3f} | | |", flush=True)
            if file != source:
                file.unlink()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(samples, indent=1))


if __name__ == "__main__":
    main()
