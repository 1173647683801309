#!/usr/bin/env python3
"""What a JSON schema costs and gains: tokens per second and acceptance, with a schema and without, in pairs.

    bench/grammar.py                                 the demo model, plain decoding and prompt-lookup+draft
    bench/grammar.py --methods prompt-lookup fold --pairs 9 -n 128

A pair is one run with the schema and one without, each first in every other pair; the ratio is the median of the pairs. The
schema asks for a list of records that is longer than the answer may be, so both have the same number of tokens. The speed of
a method with the schema is also given over that of plain decoding with it, which is what speculation gains there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cache_folder import DEMO_MODEL

BINARY = os.environ.get("PACELINE_BINARY", str(Path(__file__).resolve().parent.parent / "build/release/paceline"))
SCHEMA = {"type": "array", "minItems": 40, "items": {
    "type": "object", "additionalProperties": False, "required": ["name", "age", "email_verified", "favourite_colour"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 1, "maximum": 99},
                   "email_verified": {"type": "boolean"}, "favourite_colour": {"enum": ["red", "green", "blue"]}}}}
PROMPT = "Write a list of people with name, age, whether their email is verified, and favourite colour, as JSON."


def run(method: str, schema: Path | None, options: argparse.Namespace, folder: Path) -> dict:
    stats = folder / "stats.json"
    grammar = ["--json-schema", str(schema)] if schema else []
    command = [BINARY, "run", "-q", "-m", options.model, "--method", method, "-p", PROMPT, "-n", str(options.n),
               "--stats", str(stats), *grammar]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench/grammar.py: {' '.join(command)}\n{done.stderr.strip()}")
    return json.loads(stats.read_text())


def accepted(stats: dict) -> str:
    pipeline = stats.get("pipeline")
    if not pipeline:
        return "-"
    return f"{pipeline['mean_acceptance_length']:.2f} tokens a verification, outcomes {json.dumps(pipeline.get('outcomes', {}))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=str(DEMO_MODEL))
    parser.add_argument("--methods", nargs="*", default=["prompt-lookup+draft"])
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        schema = folder / "schema.json"
        schema.write_text(json.dumps(SCHEMA))
        plain_rates: list[float] = []
        for method in ["plain", *options.methods]:
            ratios, rates, last = [], [], {}
            for pair in range(options.pairs):
                order = [schema, None] if pair % 2 else [None, schema]
                found = {each is not None: run(method, each, options, folder) for each in order}
                last = found[True]
                rates.append(found[True]["tokens_per_second"])
                ratios.append(found[False]["tokens_per_second"] / found[True]["tokens_per_second"])
            rate = statistics.median(rates)
            plain_rates = plain_rates or [rate]
            print(f"{method}: {rate:.1f} tokens/s with the schema; a token takes {statistics.median(ratios):.3f} "
                  f"({min(ratios):.3f} to {max(ratios):.3f}) times that of a run without; "
                  f"{rate / plain_rates[0]:.2f} times plain decoding with the schema; {accepted(last)}", flush=True)


if __name__ == "__main__":
    main()
