#!/usr/bin/env python3
"""What Paceline's own parts cost, on the demo model, in one session on one machine.

    bench/own_figures.py [--rounds 5]

Every ratio is formed from two measurements made one right after the other, once per round; printed
are medians and ranges. Sections:
    batches    a batch of 8 rows over one row, and each against its matrix products alone
    processes  two segments in two processes of one thread over one process of one thread
    sampling   temperature 1, and 0.8 with top-k 40 and top-p 0.95, over greedy
    load       seconds to load and pack from a warm file cache; peak memory
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from cache_folder import DEMO_MODEL
from against_llama_cpp import ROOT, output_of, spread

PROMPT = "Write a long story about a lighthouse keeper and the sea."


def bench(options, threads, dtype):
    rows = json.loads(output_of([options.paceline, "bench", "-m", options.model, "-t", str(threads),
                                 "--dtype", dtype, "-p", "0", "-n", "0", "-b", "1,8", "--gemm", "-r", "3",
                                 "-o", "json"]))
    seconds = {}
    for row in rows:
        kind = "gemm" if row["test"].startswith("gemm") else "batch"
        seconds[kind, int("".join(c for c in row["test"] if c.isdigit()))] = statistics.median(row["samples_ns"]) / 1e9
    return seconds


def run(options, *arguments, tokens=192):
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        output_of([options.paceline, "run", "-m", options.model, "-p", PROMPT, "-n", str(tokens),
                   "--logit-bias", "2=-inf", "--stats", stats.name, *arguments])
        return json.load(stats)


def table(title, header, rows):
    print(f"\n{title}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def batches(options):
    rows = []
    for threads in (1, 2):
        for dtype in ("auto", "bf16", "int8"):
            rounds = [bench(options, threads, dtype) for _ in range(options.rounds)]
            ratio = [r["batch", 8] / r["batch", 1] for r in rounds]
            one = [r["gemm", 1] / r["batch", 1] for r in rounds]
            eight = [r["gemm", 8] / r["batch", 8] for r in rounds]
            milliseconds = [1e3 * r["batch", 1] for r in rounds], [1e3 * r["batch", 8] for r in rounds]
            rows.append([f"{dtype}, {threads}T", spread(milliseconds[0], 2), spread(milliseconds[1], 2),
                         spread(ratio, 2), spread(one, 2), spread(eight, 2)])
    table("Batches with logits for every row", ["dtype, threads", "1 row, ms", "8 rows, ms", "8 rows / 1 row",
          "products alone / 1 row", "products alone / 8 rows"], rows)


def processes(options):
    config = pathlib.Path(tempfile.mkdtemp()) / "two.toml"
    config.write_text('[pipeline]\nname = "two"\n' + "".join(
        f'[[stage]]\nname = "segment-{i + 1}"\nrole = "segment"\nlayers = "auto"\ncores = [{i}]\nthreads = 1\n'
        for i in range(2)))
    one, two = [], []
    for _ in range(options.rounds):
        one.append(run(options, "-t", "1")["tokens_per_second"])
        two.append(run(options, "--config", str(config))["tokens_per_second"])
    cost = [a / b - 1 for a, b in zip(one, two)]
    table("Two processes, one thread each, against one process", ["one process, tok/s", "two processes, tok/s", "cost, %"],
          [[spread(one, 0), spread(two, 0), spread([100 * c for c in cost], 1)]])


def sampling(options):
    rows = []
    for name, arguments in (("temperature 1", ["--temp", "1"]),
                            ("0.8, top-k 40, top-p 0.95", ["--temp", "0.8", "--top-k", "40", "--top-p", "0.95"])):
        for threads in ("1", "2"):
            ratios = []
            for _ in range(options.rounds):
                greedy = run(options, "-t", threads)["tokens_per_second"]
                ratios.append(run(options, "-t", threads, *arguments)["tokens_per_second"] / greedy)
            rows.append([f"{name}, {threads}T", spread(ratios, 3)])
    table("Sampled over greedy decoding", ["sampling", "tokens/s over greedy"], rows)


def load(options):
    rounds = [run(options, "-t", "2", tokens=16) for _ in range(options.rounds)]
    limit = [1.3 * r["weight_bytes"] + r["kv_bytes"] for r in rounds]
    table("Loading and memory", ["load and pack, s", "peak memory, MB", "peak / (1.3 x packed weights + KV cache)"],
          [[spread([r["load_seconds"] for r in rounds], 2), spread([r["peak_memory_bytes"] / 1e6 for r in rounds], 0),
            spread([r["peak_memory_bytes"] / m for r, m in zip(rounds, limit)], 2)]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sections", default="batches,processes,sampling,load")
    options = parser.parse_args()
    sections = {"batches": batches, "processes": processes, "sampling": sampling, "load": load}
    print(output_of([options.paceline, "--version"]).strip())
    for name in options.sections.split(","):
        if name not in sections:
            sys.exit(f"--sections: there is no section {name!r}; there are {', '.join(sections)}")
        sections[name](options)


if __name__ == "__main__":
    main()
