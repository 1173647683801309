"""A target with low-rank updates of its matrices, as one trains it: the base is frozen.

    model = LoraTarget(target, ranks, alpha)     ranks: {layer: rank}, 0 leaves a layer as it is
    model.merge(kind, layers)                    W + alpha / rank * B A of these layers, in `kind`
    for depth, x in model.walk(tokens, context, last=8): ...    the residual after each layer

Matrices that share their input (q, k, v; gate, up) are one product here, with updates of their
own. The forward pass multiplies with the merged matrix, the backward pass makes the gradients of A
and B alone, so a step costs what the frozen target's forward and input gradient cost. Checkpoints
hold A and B only. walk() uses what merge() last made: call it after each optimiser step.
"""

import contextlib
import math
from collections.abc import Collection, Iterator

import torch
from torch import nn
from torch.autograd import Function

from .kernels import attention, rms_norm, swiglu
from .modules import Context
from .target import Target

# A fused matrix: the stored names of its row blocks, in order (target.LAYER_NAMES gives GGUF's).
FUSED = {"qkv": ("q", "k", "v"), "attn_out": ("attn_out",), "gate_up": ("gate", "up"),
         "down": ("down",)}


class _Merged(Function):
    """x W'^T; gradients reach x, A and B. `spread` is B of all blocks, block-diagonal."""

    @staticmethod
    def forward(ctx, x, merged, a, spread, scale):
        ctx.save_for_backward(x, merged, a, spread)
        ctx.scale = scale
        return x @ merged.T

    @staticmethod
    def backward(ctx, grad):
        x, merged, a, spread = ctx.saved_tensors
        rows, wide = x.flatten(0, -2), grad.flatten(0, -2)
        d_a = d_spread = None
        if ctx.needs_input_grad[2]:
            d_spread = (wide.T @ (rows @ a.to(x.dtype).T)).float().mul_(ctx.scale)
            d_a = ((wide @ spread.to(x.dtype)).T @ rows).float().mul_(ctx.scale)
        d_x = grad @ merged if ctx.needs_input_grad[0] else None
        return d_x, None, d_a, d_spread, None


class LoraMatrix(nn.Module):
    """Some matrices with one input, each with a rank-`rank` update of its own (0: none)."""

    def __init__(self, blocks: list[torch.Tensor], rank: int, alpha: float) -> None:
        super().__init__()
        self.rows = [len(block) for block in blocks]
        self.rank = rank
        self.scale = alpha / rank if rank else 0.0
        inputs = blocks[0].shape[1]
        self.register_buffer("base", torch.cat(blocks), persistent=False)
        self.register_buffer("merged", self.base, persistent=False)
        if rank:
            # As for a linear layer; B is zero, so the first step is the target itself.
            self.a = nn.Parameter(torch.empty(rank * len(blocks), inputs).uniform_(
                -1 / math.sqrt(inputs), 1 / math.sqrt(inputs)))
            self.b = nn.ParameterList(torch.zeros(count, rank) for count in self.rows)

    def updates(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(A [rank, inputs], B [outputs, rank]) of each block."""
        return list(zip(self.a.split(self.rank), self.b)) if self.rank else []

    @torch.no_grad()
    def exact(self) -> torch.Tensor:
        """float32 [outputs of all blocks, inputs]."""
        if not self.rank:
            return self.base
        return torch.cat([torch.addmm(base, b, a, alpha=self.scale) for base, (a, b) in
                          zip(self.base.split(self.rows), self.updates())])

    @torch.no_grad()
    def merge(self, kind: torch.dtype) -> None:
        if self.rank or self.merged.dtype != kind:
            self.merged = self.exact().to(kind)

    def forward(self, x):
        if not self.rank:
            return x @ self.merged.T
        return _Merged.apply(x, self.merged, self.a, torch.block_diag(*self.b), self.scale)


class LoraLayer(nn.Module):
    def __init__(self, target: Target, index: int, rank: int, alpha: float) -> None:
        super().__init__()
        self.shape = target.shape
        tensors = target.layer(index)
        self.matrices = nn.ModuleDict({name: LoraMatrix([tensors[part] for part in parts], rank,
                                                        alpha) for name, parts in FUSED.items()})
        for name in ("attn_norm", "ffn_norm"):
            self.register_buffer(name, tensors[name], persistent=False)

    def forward(self, x, context: Context):
        of, epsilon = self.matrices, self.shape.epsilon
        qkv = of["qkv"](rms_norm(x, self.attn_norm, epsilon))
        x = x + of["attn_out"](attention(qkv, context.cos, context.sin, context.mask,
                                         self.shape.heads, self.shape.kv_heads))
        return x + of["down"](swiglu(of["gate_up"](rms_norm(x, self.ffn_norm, epsilon))))


class LoraTarget(nn.Module):
    def __init__(self, target: Target, ranks: dict[int, int], alpha: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LoraLayer(target, index, ranks.get(index, 0), alpha)
                                    for index in range(target.layers))
        self.register_buffer("embedding", target.embedding(), persistent=False)

    def merge(self, kind: torch.dtype, layers: int | None = None) -> None:
        """Of the first `layers` layers."""
        for layer in self.layers[:layers]:
            for matrix in layer.matrices.values():
                matrix.merge(kind)

    @contextlib.contextmanager
    def plain(self, kind: torch.dtype) -> Iterator[None]:
        """A context in which walk() is the frozen target, in `kind`."""
        matrices = [matrix for layer in self.layers for matrix in layer.matrices.values()]
        merged = [matrix.merged for matrix in matrices]
        ranks = [matrix.rank for matrix in matrices]
        for matrix in matrices:
            matrix.merged, matrix.rank = matrix.base.to(kind), 0
        try:
            yield
        finally:
            for matrix, old, rank in zip(matrices, merged, ranks):
                matrix.merged, matrix.rank = old, rank

    def walk(self, tokens: torch.Tensor, context: Context, last: int | None = None,
             skipped: Collection[int] = ()) -> Iterator[tuple[int, torch.Tensor]]:
        """(number of layers run, residual [B, L, dim]) after each layer up to `last` layers;
        skipped layers are left out as layer dropout does."""
        x = self.embedding[tokens].to(context.cos.dtype)
        for index, layer in enumerate(self.layers[:last]):
            if index not in skipped:
                x = layer(x, context)
            yield index + 1, x
