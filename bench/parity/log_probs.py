#!/usr/bin/env python3
"""Log probabilities of `paceline score` against transformers in float32, on a real GGUF of the llama family.

    build/release/paceline score -m MODEL.gguf --dtype f32 --kv-dtype f32 --top 5 -o json TEXT > /tmp/scores.json
    /tmp/venv/bin/python bench/parity/log_probs.py -m MODEL.gguf --scores /tmp/scores.json

The environment and the model are those of smollm2_parity.py. Prints the greatest difference of a token's log
probability and of the most probable ones beside it, and how many ranks differ. Exit code 1 above 1e-3.
"""

import argparse
import json
from pathlib import Path

import torch

from smollm2_parity import File, load_model, logits_of

DIFFERENCE_MAX = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", type=Path, required=True, help="GGUF file")
    parser.add_argument("--scores", type=Path, required=True, help="what `paceline score -o json` printed, one line")
    options = parser.parse_args()
    tokens = json.loads(options.scores.read_text().splitlines()[0])["tokens"]
    logits = logits_of(load_model(File(options.model)), [token["id"] for token in tokens])
    expected = torch.log_softmax(logits.double(), dim=-1)
    worst = worst_beside = 0.0
    ranks = 0
    for position, token in enumerate(tokens[1:], start=1):
        row = expected[position - 1]
        worst = max(worst, abs(float(row[token["id"]]) - token["logprob"]))
        for other in token["top"]:
            worst_beside = max(worst_beside, abs(float(row[other["id"]]) - other["logprob"]))
        ranks += int((row > row[token["id"]]).sum()) != token["rank"]
    print(f"{len(tokens) - 1} tokens: greatest difference {worst:.2e}, of those beside {worst_beside:.2e}, "
          f"{ranks} ranks differ")
    if max(worst, worst_beside) > DIFFERENCE_MAX:
        raise SystemExit(f"more than {DIFFERENCE_MAX}")


if __name__ == "__main__":
    main()
