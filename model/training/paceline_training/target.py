"""The frozen pieces of a target, read from its GGUF file: what the trained parts stand on.

    target = Target(path)
    target.shape, target.layers, target.vocab_size
    target.embedding()             float32 [vocab, dim]
    target.head(tokens)            float32 [len(tokens), dim]: rows of the target's head
    target.output_norm             float32 [dim]
    target.layer(i)                {"attn_norm": ..., "q": ...}: float32, for a start from it

Only the llama family (Llama, SmolLM2, Mistral without a window) can be a target here. Its files
hold the rows of q and k so that neighbours (2i, 2i+1) rotate together; here halves (i, i + d/2)
do, which is faster to train: permute_rows() and unpermute_rows() go to and fro, and export.py
writes the file's own order. Immutable once made; tensors are fresh copies.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
import torch

LAYER_NAMES = {
    "attn_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v",
    "attn_out": "attn_output", "ffn_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up",
    "down": "ffn_down",
}


@dataclass(frozen=True)
class Shape:
    """The numbers of a layer, and of the angles that its rope turns by."""

    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_dim: int
    epsilon: float
    rope_base: float
    rope_dims: int
    rope_divisors: tuple[float, ...] = ()  # of the frequencies, where the file has them

    def described(self) -> dict:
        """As part files name them; the angles are the target's."""
        return {"dim": self.dim, "heads": self.heads, "kv_heads": self.kv_heads,
                "head_dim": self.head_dim, "ffn_dim": self.ffn_dim, "rope_dims": self.rope_dims}

    def with_kv_heads(self, kv_heads: int) -> "Shape":
        return replace(self, kv_heads=kv_heads)

    def frequencies(self) -> torch.Tensor:
        """float32 [rope_dims / 2]."""
        steps = torch.arange(0, self.rope_dims, 2, dtype=torch.float64) / self.rope_dims
        frequencies = self.rope_base**-steps
        if self.rope_divisors:
            frequencies = frequencies / torch.tensor(self.rope_divisors, dtype=torch.float64)
        return frequencies.float()


def permute_rows(matrix: torch.Tensor, heads: int, rope_dims: int) -> torch.Tensor:
    """Rows of q or k from the file's order (neighbours rotate) to that of halves."""
    rows = matrix.reshape(heads, -1, *matrix.shape[1:])
    turned = rows[:, :rope_dims]
    return torch.cat([turned[:, 0::2], turned[:, 1::2], rows[:, rope_dims:]],
                     1).reshape(matrix.shape).contiguous()


def unpermute_rows(matrix: torch.Tensor, heads: int, rope_dims: int) -> torch.Tensor:
    """The inverse of permute_rows()."""
    rows = matrix.reshape(heads, -1, *matrix.shape[1:])
    half = rope_dims // 2
    turned = torch.stack([rows[:, :half], rows[:, half:rope_dims]], 2).flatten(1, 2)
    return torch.cat([turned, rows[:, rope_dims:]], 1).reshape(matrix.shape).contiguous()


class Target:
    def __init__(self, path: Path) -> None:
        """Raises ValueError, naming file, field and value, for what cannot be a target here."""
        self.path = Path(path)
        try:
            self._reader = gguf.GGUFReader(self.path)
        except FileNotFoundError:
            raise ValueError(f"{self.path}: no such file") from None
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        if self._field("general.architecture") != "llama":
            raise ValueError(f"{self.path}: general.architecture is "
                             f"'{self._field('general.architecture')}'; parts can be trained for "
                             "'llama' alone")
        scaling = self._field("llama.rope.scaling.type", "none")
        if scaling != "none":
            raise ValueError(f"{self.path}: llama.rope.scaling.type is '{scaling}'; parts can be "
                             "trained for a target without rope scaling alone")
        self.layers = self._field("llama.block_count")
        self.shape = self._read_shape()
        self.vocab_size, _ = self._numpy("token_embd.weight").shape
        self.output_norm = self._torch("output_norm.weight")

    def embedding(self) -> torch.Tensor:
        return self._torch("token_embd.weight")

    def head(self, tokens: np.ndarray) -> torch.Tensor:
        """float32 [len(tokens), dim]."""
        name = "output.weight" if "output.weight" in self._tensors else "token_embd.weight"
        return torch.from_numpy(np.array(self._numpy(name, np.asarray(tokens)), np.float32))

    def layer(self, index: int) -> dict[str, torch.Tensor]:
        """q and k in the order of halves."""
        if not 0 <= index < self.layers:
            raise ValueError(f"{self.path}: has no layer {index}; its layers are 0 to "
                             f"{self.layers - 1}")
        tensors = {name: self._torch(f"blk.{index}.{stored}.weight")
                   for name, stored in LAYER_NAMES.items()}
        shape = self.shape
        tensors["q"] = permute_rows(tensors["q"], shape.heads, shape.rope_dims)
        tensors["k"] = permute_rows(tensors["k"], shape.kv_heads, shape.rope_dims)
        return tensors

    def _read_shape(self) -> Shape:
        dim = self._field("llama.embedding_length")
        heads = self._field("llama.attention.head_count")
        head_dim = self._field("llama.attention.key_length", dim // heads)
        divisors: tuple[float, ...] = ()
        if "rope_freqs.weight" in self._tensors:
            divisors = tuple(float(f) for f in self._numpy("rope_freqs.weight"))
        return Shape(
            dim, heads, self._field("llama.attention.head_count_kv", heads), head_dim,
            self._field("llama.feed_forward_length"),
            self._field("llama.attention.layer_norm_rms_epsilon"),
            self._field("llama.rope.freq_base", 10000.0),
            self._field("llama.rope.dimension_count", head_dim), divisors)

    def _field(self, key: str, default=None):
        field = self._reader.get_field(key)
        if field is None and default is None:
            raise ValueError(f"{self.path}: no field '{key}'")
        return default if field is None else field.contents()

    def _numpy(self, name: str, rows=slice(None)) -> np.ndarray:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ValueError(f"{self.path}: no tensor '{name}'")
        if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
            return np.asarray(tensor.data[rows])
        return gguf.quants.dequantize(np.ascontiguousarray(tensor.data[rows]), tensor.tensor_type)

    def _torch(self, name: str) -> torch.Tensor:
        return torch.from_numpy(np.array(self._numpy(name), np.float32))
