#!/usr/bin/env python3
"""A random LoRA part for a GGUF file: for measuring what merging costs, not for use.

    /tmp/venv/bin/python bench/parity/random_lora.py -m MODEL.gguf -o /tmp/random.safetensors

Every matrix of the layers gets scale * B A whose Frobenius norm is --share of the matrix's own.
Needs numpy, gguf and safetensors (tests/fixtures/models/requirements.txt), and the program for the
model's fingerprint. The format is in docs/trained-parts.md.
"""

import argparse
import json
import math
import subprocess
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[2]
STEMS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def factors_of(reader: gguf.GGUFReader, options) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(options.seed)
    tensors = {}
    for tensor in reader.tensors:
        stem = tensor.name.removesuffix(".weight")
        if not stem.startswith("blk.") or stem.split(".")[-1] not in STEMS:
            continue
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        rows, cols = weight.shape
        spread = options.share * float(np.sqrt(np.mean(np.square(weight, dtype=np.float64))))
        spread /= options.alpha / options.rank * math.sqrt(options.rank)
        tensors[f"{stem}.lora_a"] = rng.normal(0, 1, (options.rank, cols)).astype(np.float16)
        tensors[f"{stem}.lora_b"] = rng.normal(0, spread, (rows, options.rank)).astype(np.float16)
    return tensors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", type=Path, required=True, help="GGUF file")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the part")
    parser.add_argument("--rank", type=int, default=8, help="%(default)s")
    parser.add_argument("--alpha", type=int, default=16, help="%(default)s")
    parser.add_argument("--share", type=float, default=0.05,
                        help="of a matrix's norm that is added to it (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="%(default)s")
    parser.add_argument("--paceline", type=Path, default=ROOT / "build/release/paceline",
                        help="%(default)s")
    options = parser.parse_args()
    done = subprocess.run([options.paceline, "inspect", str(options.model), "-o", "json"],
                          check=True, capture_output=True)
    save_file(factors_of(gguf.GGUFReader(options.model), options), options.out, metadata={
        "paceline.format": "parts-1", "paceline.part": "lora",
        "paceline.target": json.loads(done.stdout)["fingerprint"],
        "paceline.name": f"random LoRA, seed {options.seed}", "licence": "CC0",
        "rank": str(options.rank), "alpha": str(options.alpha)})


if __name__ == "__main__":
    main()
