"""Trained parts for the tests' tiny models, without any training (docs/trained-parts.md).

    draft(gguf, target)               the target's own layers: a draft that is always right
    draft(gguf, target, noise=True)   random ones: a draft that is right by chance
    heads(gguf, target, [1], ahead)   T is the identity: the logit lens; or noise
    medusa(gguf, target, 5)           residual look-ahead heads of noise, with a fixed tree
    adapter(gguf, target, 1)          random
    lora(gguf, target)                random, over every matrix of the layers
    put(folder, kind, part)           writes one under the name that the program looks for

`gguf` are the bytes of a file whose matrices are Q8_0, `target` its fingerprint as `paceline inspect`
says it. Python's standard library only.
"""

import json
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

import gguf_vocabulary

Q8_0 = 8
NAMES = {"attn_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "attn_out": "attn_output",
         "ffn_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
MEDUSA_TREE = "0 1 2 0.0 0.1 1.0 0.0.0 0.0.1 0.1.0 0.0.0.0 0.0.0.0.0 0.0.0.0.1"


@dataclass
class Part:
    metadata: dict[str, str]
    tensors: dict[str, tuple[str, list[int], bytes]] = field(default_factory=dict)

    def add(self, name: str, dtype: str, shape: list[int], data: bytes) -> None:
        self.tensors[name] = (dtype, shape, data)

    def add_noise(self, name: str, shape: list[int], scale: float, rng: random.Random) -> None:
        count = 1
        for size in shape:
            count *= size
        self.add(name, "F32", shape, struct.pack(f"<{count}f", *(rng.gauss(0, scale) for _ in range(count))))

    def add_stored(self, name: str, tensor: gguf_vocabulary.Tensor) -> None:
        if tensor.type != Q8_0:
            self.add(name, "F32", tensor.shape[::-1], tensor.data[:4 * tensor.shape[0]])
            return
        cols, rows = tensor.shape
        row_bytes = cols // gguf_vocabulary.BLOCK * gguf_vocabulary.BLOCK_BYTES
        self.metadata["type." + name] = "Q8_0"
        self.add(name, "U8", [rows, row_bytes], tensor.data[:rows * row_bytes])

    def bytes(self) -> bytes:
        header: dict = {"__metadata__": self.metadata}
        body = b""
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
            body += data
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + body


class Target:
    """What a part must know of its target."""

    def __init__(self, data: bytes):
        fields, tensors = gguf_vocabulary.read(data)
        self.tensors = {tensor.name: tensor for tensor in tensors}
        number = {key.split(".", 1)[1]: value[1] for key, value in fields.items() if key.startswith("llama.")}
        self.layers, self.dim = number["block_count"], number["embedding_length"]
        self.heads, self.kv_heads = number["attention.head_count"], number["attention.head_count_kv"]
        self.ffn_dim, self.head_dim = number["feed_forward_length"], self.dim // self.heads
        self.vocab = self.tensors["token_embd.weight"].shape[1]

    def shapes(self) -> dict[str, list[int]]:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {"attn_norm": [self.dim], "q": [q, self.dim], "k": [kv, self.dim], "v": [kv, self.dim],
                "attn_out": [self.dim, q], "ffn_norm": [self.dim], "gate": [self.ffn_dim, self.dim],
                "up": [self.ffn_dim, self.dim], "down": [self.dim, self.ffn_dim]}


def part_of(kind: str, target: Target, fingerprint: str) -> Part:
    return Part({"paceline.format": "parts-1", "paceline.part": kind, "paceline.target": fingerprint,
                 "paceline.name": f"a test's {kind}", "licence": "CC0", "dim": str(target.dim),
                 "heads": str(target.heads), "kv_heads": str(target.kv_heads),
                 "head_dim": str(target.head_dim), "ffn_dim": str(target.ffn_dim)})


def add_tokens(part: Part, tokens: list[int]) -> None:
    part.add("tokens", "I32", [len(tokens)], struct.pack(f"<{len(tokens)}i", *tokens))


def draft(data: bytes, fingerprint: str, noise: bool = False, tokens: list[int] | None = None) -> Part:
    target, rng = Target(data), random.Random(3)
    part = part_of("draft", target, fingerprint)
    part.metadata["layers"] = str(target.layers)
    for layer in range(target.layers):
        for name, shape in target.shapes().items():
            if noise and len(shape) == 2:
                part.add_noise(f"layers.{layer}.{name}", shape, 0.1, rng)
            else:
                part.add_stored(f"layers.{layer}.{name}", target.tensors[f"blk.{layer}.{NAMES[name]}.weight"])
    part.add_stored("output_norm", target.tensors["output_norm.weight"])
    add_tokens(part, tokens or list(range(target.vocab)))
    return part


def heads(data: bytes, fingerprint: str, layers: list[int], ahead: int = 0, noise: bool = False) -> Part:
    target, rng = Target(data), random.Random(4)
    part = part_of("heads", target, fingerprint)
    part.metadata["norm_first"] = "1"
    names = [f"exit.{layer}.transform" for layer in layers] + [f"ahead.{j + 1}.transform" for j in range(ahead)]
    for name in names:
        if noise:
            part.add_noise(name, [target.dim, target.dim], 0.2, rng)
            continue
        rows = [[float(i == j) for j in range(target.dim)] for i in range(target.dim)]
        part.add(name, "F32", [target.dim, target.dim],
                 b"".join(struct.pack(f"<{target.dim}f", *row) for row in rows))
    for layer in layers:
        part.metadata[f"exit.{layer}"] = "1"
    add_tokens(part, list(range(1, target.vocab, 2)) if noise else list(range(target.vocab)))
    return part


def medusa(data: bytes, fingerprint: str, ahead: int = 5, tree: str = MEDUSA_TREE) -> Part:
    part = heads(data, fingerprint, [], ahead, noise=True)
    part.metadata |= {"ahead_block": "residual", "ahead_tree": tree}
    return part


def adapter(data: bytes, fingerprint: str, layer: int) -> Part:
    target, rng = Target(data), random.Random(5)
    part = part_of("adapter", target, fingerprint)
    shapes = {name: target.shapes()[name] for name in ("attn_norm", "q", "k", "v", "attn_out")}
    for name, shape in {**shapes, "out_norm": [target.dim]}.items():
        if len(shape) == 1:
            part.add(f"adapter.{layer}.{name}", "F32", shape, struct.pack(f"<{shape[0]}f", *[1.0] * shape[0]))
        else:
            part.add_noise(f"adapter.{layer}.{name}", shape, 0.1, rng)
    add_tokens(part, list(range(0, target.vocab, 2)))
    return part


def lora(data: bytes, fingerprint: str, seed: int = 6, spread: float = 0.05) -> Part:
    """Of rank 2; `spread` is that of what is added to a weight."""
    target, rng, rank = Target(data), random.Random(seed), 2
    part = Part(part_of("lora", target, fingerprint).metadata | {"rank": str(rank), "alpha": "4", "exits": "2,3"})
    for layer in range(target.layers):
        for name, shape in target.shapes().items():
            if len(shape) == 2:
                at = f"blk.{layer}.{NAMES[name]}"
                part.add_noise(f"{at}.lora_a", [rank, shape[1]], 1.0, rng)
                part.add_noise(f"{at}.lora_b", [shape[0], rank], spread / (2 * rank ** 0.5), rng)
    return part


def put(folder: Path, kind: str, part: Part) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{kind}.safetensors"
    path.write_bytes(part.bytes())
    return path
