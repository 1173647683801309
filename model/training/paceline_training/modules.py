"""What is trained: a draft of whole layers, exit heads, and FOLD's exit adapter.

Parameters are float32; forward() computes in the type of its input (bfloat16 on a CPU that has
it: four times the speed of float32), norms and rope angles in float32. Where several answers lie
in one sequence, Context keeps them apart. Nothing here knows files, losses or loops.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from .kernels import attention, rms_norm, swiglu
from .target import Shape


class Context:
    """Angles and mask of a batch, made once for all layers."""

    def __init__(self, shape: Shape, positions: torch.Tensor, segments: torch.Tensor,
                 kind: torch.dtype) -> None:
        """positions, segments: [B, L]; a row sees the rows of its segment up to itself."""
        angles = positions[..., None].float() * shape.frequencies().to(positions.device)
        self.cos = angles.cos()[:, :, None].to(kind)
        self.sin = angles.sin()[:, :, None].to(kind)
        length = positions.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=positions.device).tril()
        seen = (segments[:, :, None] == segments[:, None, :]) & causal
        self.mask = torch.zeros(seen.shape, dtype=kind, device=seen.device).masked_fill_(
            ~seen, -math.inf)[:, None]


class RmsNorm(nn.Module):
    def __init__(self, weight: torch.Tensor, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.epsilon = epsilon

    def forward(self, x):
        return rms_norm(x, self.weight, self.epsilon)


def linear(x, weight):
    """x W^T in the type of x."""
    return functional.linear(x, weight.to(x.dtype))


class Attention(nn.Module):
    """Norm, attention, and its output to be added to the residual. q, k and v are one matrix."""

    def __init__(self, shape: Shape, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.shape = shape
        self.norm = RmsNorm(tensors["attn_norm"], shape.epsilon)
        self.qkv = nn.Parameter(torch.cat([tensors[name] for name in ("q", "k", "v")]))
        self.out = nn.Parameter(tensors["attn_out"].clone())

    def forward(self, x, context: Context):
        mixed = attention(linear(self.norm(x), self.qkv), context.cos, context.sin, context.mask,
                          self.shape.heads, self.shape.kv_heads)
        return linear(mixed, self.out)

    def tensors(self) -> dict[str, torch.Tensor]:
        """As they were given, by name."""
        shape = self.shape
        kv_rows = shape.kv_heads * shape.head_dim
        q, k, v = self.qkv.detach().split([shape.heads * shape.head_dim, kv_rows, kv_rows])
        return {"attn_norm": self.norm.weight.detach(), "q": q, "k": k, "v": v,
                "attn_out": self.out.detach()}


class Layer(nn.Module):
    """A transformer layer as the target's, gate and up in one matrix."""

    def __init__(self, shape: Shape, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.attention = Attention(shape, tensors)
        self.norm = RmsNorm(tensors["ffn_norm"], shape.epsilon)
        self.gate_up = nn.Parameter(torch.cat([tensors["gate"], tensors["up"]]))
        self.down = nn.Parameter(tensors["down"].clone())

    def forward(self, x, context: Context):
        x = x + self.attention(x, context)
        return x + linear(swiglu(linear(self.norm(x), self.gate_up)), self.down)

    def tensors(self) -> dict[str, torch.Tensor]:
        gate, up = self.gate_up.detach().chunk(2)
        return self.attention.tensors() | {"ffn_norm": self.norm.weight.detach(), "gate": gate,
                                           "up": up, "down": self.down.detach()}


class DraftModel(nn.Module):
    """Layers between the target's embedding and its head; both belong to the target.

    With `features`, a draft in EAGLE's way: its input joins the token's embedding and the
    target's (or its own) last hidden state of the position before. With `transform` a matrix, from
    the identity on, takes the last layer's states to where the target's head reads: the target's
    first layers do not end there.
    """

    def __init__(self, shape: Shape, layers: list[dict[str, torch.Tensor]],
                 output_norm: torch.Tensor, features: bool = False,
                 transform: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape, tensors) for tensors in layers)
        self.output_norm = RmsNorm(output_norm, shape.epsilon)
        self.join = nn.Parameter(torch.cat(
            [torch.eye(shape.dim), torch.zeros(shape.dim, shape.dim)], 1)) if features else None
        self.transform = nn.Parameter(torch.eye(shape.dim)) if transform else None

    def forward(self, embedded, context: Context, features=None):
        """[B, L, dim] -> the last hidden states, before output_norm."""
        x = embedded
        if self.join is not None:
            x = linear(torch.cat([embedded, features.to(embedded.dtype)], -1), self.join)
        for layer in self.layers:
            x = layer(x, context)
        return x if self.transform is None else linear(x, self.transform)


class THead(nn.Module):
    """AdaDecode's head behind a layer: logits = E (T norm(h)), or E (norm(T h)), T from the
    identity on. forward() gives what E is multiplied with."""

    def __init__(self, output_norm: torch.Tensor, epsilon: float, norm_first: bool) -> None:
        super().__init__()
        self.transform = nn.Parameter(torch.eye(len(output_norm)))
        self.register_buffer("norm", output_norm.clone(), persistent=False)
        self.epsilon = epsilon
        self.norm_first = norm_first

    def forward(self, hidden):
        if self.norm_first:
            return linear(rms_norm(hidden, self.norm, self.epsilon), self.transform)
        return rms_norm(linear(hidden, self.transform), self.norm, self.epsilon)


class ResidualHead(nn.Module):
    """Medusa's head: logits = E (n + SiLU(W n)), n = norm(h), W from zero on, so that it begins as
    the target's own head. forward() gives what E is multiplied with."""

    def __init__(self, output_norm: torch.Tensor, epsilon: float) -> None:
        super().__init__()
        self.transform = nn.Parameter(torch.zeros(len(output_norm), len(output_norm)))
        self.register_buffer("norm", output_norm.clone(), persistent=False)
        self.epsilon = epsilon

    def forward(self, hidden):
        normed = rms_norm(hidden, self.norm, self.epsilon)
        return normed + nn.functional.silu(linear(normed, self.transform))


class FullHead(nn.Module):
    """A head of its own, V x d, from the target's rows on: for comparison, never shipped."""

    def __init__(self, output_norm: torch.Tensor, epsilon: float, head: torch.Tensor) -> None:
        super().__init__()
        self.matrix = nn.Parameter(head.float().clone())
        self.register_buffer("norm", output_norm.clone(), persistent=False)
        self.epsilon = epsilon

    def forward(self, hidden):
        return rms_norm(hidden, self.norm, self.epsilon)


class Adapter(nn.Module):
    """FOLD's exit module (Kangaroo's adapter): x = h + attention(norm(h)), then a norm of its
    own. forward() gives what the target's head is multiplied with."""

    def __init__(self, shape: Shape, tensors: dict[str, torch.Tensor],
                 output_norm: torch.Tensor) -> None:
        super().__init__()
        self.attention = Attention(shape, tensors)
        self.output_norm = RmsNorm(output_norm, shape.epsilon)

    def forward(self, hidden, context: Context):
        return self.output_norm(hidden + self.attention(hidden, context))
