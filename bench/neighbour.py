#!/usr/bin/env python3
"""What a busy process beside it costs a decoding pipeline: tokens/s alone and with one endless loop on the
machine, for some methods, each with one paceline or, interleaved, with two that are compared.

    bench/neighbour.py [--paceline PROGRAM] [--other PROGRAM] [--rounds 5] [-n 64] [--together] [METHOD ...]

Medians over the rounds; `kept` is busy over alone. With --together the neighbour is the same command: `busy` is the
tokens/s of both while both decode, added up. Nothing else may run on the machine.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys

from cache_folder import DEMO_MODEL

ROOT = pathlib.Path(__file__).resolve().parent.parent
METHODS = ["plain", "prompt-lookup+draft", "speculative", "autoregressive-segments", "adadecode", "four-stages"]
LOOP = [sys.executable, "-c", "while True: pass"]


def rate(program, method, options, at_once=1):
    """Tokens/s of the answer; of so many answers at once, added up."""
    command = [program, "run", "-m", options.model, "--method", method, "-p", "Why is the sky blue?",
               "-n", str(options.n), "--logit-bias", "2=-inf"]
    runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for _ in range(at_once)]
    told = [run.communicate()[1] for run in runs]
    if any(run.returncode for run in runs):
        sys.exit(f"{' '.join(map(str, command))}: {told}")
    return sum(float(re.search(r"answer \d+ tokens, ([\d.]+) tokens/s", text).group(1)) for text in told)


def medians(programs, method, options, at_once=1):
    rates = {program: [] for program in programs}
    for number in range(options.rounds):
        for program in programs if number % 2 == 0 else programs[::-1]:
            rates[program].append(rate(program, method, options, at_once))
    return [statistics.median(rates[program]) for program in programs]


def beside_a_loop(programs, method, options):
    neighbour = subprocess.Popen(LOOP)
    try:
        return medians(programs, method, options)
    finally:
        neighbour.kill()
        neighbour.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=METHODS, metavar="METHOD")
    parser.add_argument("--paceline", default=str(ROOT / "build/release/paceline"))
    parser.add_argument("--other", help="a second program, for instance an earlier build")
    parser.add_argument("--model", default=DEMO_MODEL)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--together", action="store_true", help="two of the same command at once")
    parser.add_argument("-n", type=int, default=64)
    options = parser.parse_args()
    programs = [options.paceline, *([options.other] if options.other else [])]
    print("program\tmethod\talone\tbusy\tkept")
    for method in options.methods:
        alone = medians(programs, method, options)
        busy = (medians(programs, method, options, 2) if options.together
                else beside_a_loop(programs, method, options))
        for program, quiet, loaded in zip(programs, alone, busy):
            print(f"{program}\t{method}\t{quiet:.1f}\t{loaded:.1f}\t{loaded / quiet:.2f}", flush=True)


if __name__ == "__main__":
    main()
