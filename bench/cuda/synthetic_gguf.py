#!/usr/bin/env python3
"""Writes a GGUF file of a shape with synthetic weights, for a peer that cannot do without a file.

    bench/cuda/synthetic_gguf.py configs/shapes/llama-8b.toml -o /tmp/llama-8b.gguf

The bytes are one random block again and again, which a disk takes as fast as it can (16 GB for 8B). Matrices are
bf16 of +-2^-7 to 2^-5, norms ones, biases zeros, all of them F32 as llama.cpp wants them. There are
no tokens: `no_vocab` is what llama.cpp calls a tokenizer of so many ids and no texts; Paceline reads
such a file as one without a tokenizer. Python's standard library only.
"""

import argparse
import random
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from peer_report import Shape, read_shape  # noqa: E402: found through the line above

ALIGNMENT = 32
UINT32, FLOAT32, TEXT = 4, 6, 8
F32, BF16 = 0, 30
MOSTLY_BF16 = 32  # general.file_type, which is not used in computing
BLOCK_BYTES = (4 << 20) + 4098  # no multiple of a row: the rows of a matrix differ
FORMS = {UINT32: "<I", FLOAT32: "<f"}


def text_bytes(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def keys_of(shape: Shape) -> bytes:
    family = shape.family
    keys = [("general.architecture", TEXT, family), ("general.name", TEXT, shape.name),
            ("general.file_type", UINT32, MOSTLY_BF16), ("general.alignment", UINT32, ALIGNMENT),
            (f"{family}.block_count", UINT32, shape.layers),
            (f"{family}.embedding_length", UINT32, shape.dim),
            (f"{family}.feed_forward_length", UINT32, shape.ffn_dim),
            (f"{family}.context_length", UINT32, shape.context_length),
            (f"{family}.attention.head_count", UINT32, shape.heads),
            (f"{family}.attention.head_count_kv", UINT32, shape.kv_heads),
            (f"{family}.attention.key_length", UINT32, shape.head_dim),
            (f"{family}.attention.value_length", UINT32, shape.head_dim),
            (f"{family}.attention.layer_norm_rms_epsilon", FLOAT32, shape.norm_epsilon),
            (f"{family}.rope.dimension_count", UINT32, shape.head_dim),
            (f"{family}.rope.freq_base", FLOAT32, shape.rope_base),
            (f"{family}.vocab_size", UINT32, shape.vocab_size),
            ("tokenizer.ggml.model", TEXT, "no_vocab")]
    written = struct.pack("<Q", len(keys))
    for name, kind, value in keys:
        content = text_bytes(value) if kind == TEXT else struct.pack(FORMS[kind], value)
        written += text_bytes(name) + struct.pack("<I", kind) + content
    return written


def tensors_of(shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    """(name, sizes, the contiguous one first); what has one size is F32."""
    tensors: list[tuple[str, tuple[int, ...]]] = [("token_embd.weight", (shape.dim, shape.vocab_size))]
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        tensors += [(f"{at}{name}.weight", (inputs, outputs))
                    for name, (outputs, inputs) in shape.layer_matrices().items()]
        tensors += [(at + "attn_norm.weight", (shape.dim,)), (at + "ffn_norm.weight", (shape.dim,))]
        if shape.qkv_bias:
            tensors += [(f"{at}attn_{name}.bias", (size,))
                        for name, size in (("q", shape.q_dim), ("k", shape.kv_dim), ("v", shape.kv_dim))]
        if shape.qk_norm:
            tensors += [(f"{at}attn_{name}_norm.weight", (shape.head_dim,)) for name in "qk"]
    tensors.append(("output_norm.weight", (shape.dim,)))
    if not shape.tied_embeddings:
        tensors.append(("output.weight", (shape.dim, shape.vocab_size)))
    return tensors


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def random_block(seed: int) -> bytes:
    """bf16 numbers: sign, lowest bit of the exponent and mantissa at random."""
    count = BLOCK_BYTES // 2
    bits = int.from_bytes(random.Random(seed).randbytes(BLOCK_BYTES), "little")
    free = int.from_bytes(struct.pack("<H", 0x80FF) * count, "little")
    fixed = int.from_bytes(struct.pack("<H", 0x3C00) * count, "little")
    return ((bits & free) | fixed).to_bytes(BLOCK_BYTES, "little")


class Matrices:
    """Endless numbers for matrices, one block after the other."""

    def __init__(self, seed: int):
        self.block = memoryview(random_block(seed))
        self.at = 0

    def write(self, file, size: int) -> None:
        while size > 0:
            part = self.block[self.at:self.at + size]
            file.write(part)
            size -= len(part)
            self.at = (self.at + len(part)) % BLOCK_BYTES


def write_gguf(shape: Shape, path: Path, seed: int = 1) -> int:
    """Bytes written. Raises OSError; what was begun is then gone."""
    if shape.type != "bf16":
        sys.exit(f"synthetic_gguf: type = \"{shape.type}\", only bf16 is made")
    tensors = tensors_of(shape)
    described, offset = b"", 0
    for name, sizes in tensors:
        described += text_bytes(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        described += struct.pack("<IQ", F32 if len(sizes) == 1 else BF16, offset)
        offset += padded(4 * sizes[0] if len(sizes) == 1 else 2 * sizes[0] * sizes[1])
    head = b"GGUF" + struct.pack("<IQ", 3, len(tensors)) + keys_of(shape) + described
    matrices = Matrices(seed)
    try:
        with open(path, "wb", buffering=1 << 20) as file:
            file.write(head + bytes(padded(len(head)) - len(head)))
            for name, sizes in tensors:
                if len(sizes) == 1:
                    value = 0.0 if name.endswith(".bias") else 1.0
                    size = file.write(struct.pack("<f", value) * sizes[0])
                else:
                    size = 2 * sizes[0] * sizes[1]
                    matrices.write(file, size)
                file.write(bytes(padded(size) - size))
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return padded(len(head)) + offset


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin = time.monotonic()
    size = write_gguf(read_shape(options.shape), options.output, options.seed)
    print(f"{options.output}: {size / 1e9:.3f} GB in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
