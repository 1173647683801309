#!/usr/bin/env python3
"""What a pipeline really does against what the simulation says it would do.

    bench/overlap.py [--methods pearl,fold,speculative] [--rounds 5] [--first 8] [--costs FILE]

For each method and round: `paceline check` on the project's prompts (real processes, real time),
then `paceline simulate` of the same prompts with costs that were measured on this machine while
its neighbours computed (--measure-costs; written once, to --costs). Acceptance comes from the same
model and the same text in both, so what differs is what the processes lose: wake-ups, memory that
two stages fight for beyond what was measured, work that is thrown away too late. The promise is
0.9 of the simulated tokens/s. Overlap is the share of the time in which draft and target both
computed, from the trace of each.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import prompt_sets

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "paceline"


def paceline(options, *words):
    """The JSON that a command wrote."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(options.paceline), *map(str, words), "-m", str(options.model), "--json",
                   out.name]
        done = subprocess.run(command, capture_output=True, text=True)
        text = pathlib.Path(out.name).read_text()
        if done.returncode != 0 or not text:
            sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}{done.stdout[-2000:]}")
        return json.loads(text)


def measure_costs(options):
    if options.costs.exists():
        return
    print(f"measuring costs into {options.costs}", file=sys.stderr)
    subprocess.run([options.paceline, "simulate", "--measure-costs", options.costs, "-m",
                    options.model, "--short-lists", options.short_lists], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--model", default=str(CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--methods", default="speculative,pearl,fold")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1, help="cores of each process")
    parser.add_argument("--neighbours", type=int, default=1,
                        help="processes that compute beside each at the same time")
    parser.add_argument("--costs", type=pathlib.Path, default=pathlib.Path("costs.tsv"))
    parser.add_argument("--short-lists", default="0,4096", help="of the heads, when measuring")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    measure_costs(options)
    sets, folder = prompt_sets.chosen(options)
    rows = []
    print("| set | method | measured tokens/s | simulated | ratio [min..max] | acceptance length, "
          "both | overlap, both |\n|---|---|---:|---:|---:|---:|---:|")
    with folder:
        for name, file in sets.items():
            for method in options.methods.split(","):
                what = ["--method", method, "--prompts", file, "-n", options.n]
                simulated = paceline(options, "simulate", *what, "--costs", options.costs,
                                     "--device-threads", options.threads, "--busy-neighbours",
                                     options.neighbours)[0]
                real = [paceline(options, "check", *what) for _ in range(options.rounds)]
                ratios = [r["tokens_per_second"] / simulated["tokens_per_second"] for r in real]
                lengths = [r["figures"]["mean_acceptance_length"] for r in real]
                rows.append({"set": name, "method": method, "simulated": simulated, "real": real})
                print(f"| {name} | {method} "
                      f"| {statistics.median(r['tokens_per_second'] for r in real):.1f} "
                      f"| {simulated['tokens_per_second']:.1f} "
                      f"| {statistics.median(ratios):.2f} [{min(ratios):.2f}..{max(ratios):.2f}] "
                      f"| {statistics.median(lengths):.2f} / "
                      f"{simulated['figures']['mean_acceptance_length']:.2f} "
                      f"| {100 * statistics.median(r['overlap']['both'] for r in real):.0f} % / "
                      f"{100 * simulated['overlap']['both']:.0f} % |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
