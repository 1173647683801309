"""paceline-train adapter: FOLD's exit module (Kangaroo's adapter) behind middle layers.

A norm, one attention with keys and values of its own over the whole text, a residual, a norm, and
the target's head on the short list: it sees the context that a T head does not. It starts from
the attention of the target's next layer (--start copy) or from small random numbers. Several
layers' adapters learn in one pass over the same batches.
"""

import argparse
import sys

import torch
from torch import nn

from . import loop
from .batches import Batch, Data, add_data_arguments
from .heads import layer_list
from .losses import Figures, distil, judge
from .modules import Adapter, Context
from .target import Shape, Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    loop.add_loop_arguments(parser, rate=1e-3)
    parser.add_argument("--exits", type=layer_list, required=True, metavar="L,...",
                        help="an adapter behind so many layers, for each number")
    parser.add_argument("--kv-heads", type=int, default=0, metavar="N",
                        help="heads of keys and values (as many as heads)")
    parser.add_argument("--start", choices=["copy", "random"], default="copy",
                        help="from the next layer's attention, or random (%(default)s)")
    parser.add_argument("--rest", choices=["drop", "bucket"], default="drop",
                        help="mass outside the target's top tokens: left out, or one bucket")


def repeated(matrix: torch.Tensor, heads: int, wanted: int) -> torch.Tensor:
    """Rows of k or v for more heads: each head's rows as often as its group has members."""
    rows = matrix.reshape(heads, -1, matrix.shape[1])
    return rows.repeat_interleave(wanted // heads, 0).reshape(-1, matrix.shape[1])


def start_tensors(target: Target, shape: Shape, layer: int,
                  start: str) -> dict[str, torch.Tensor]:
    """Of the adapter behind `layer` layers."""
    tensors = target.layer(min(layer, target.layers - 1))
    if start == "random":
        rows = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        sizes = {"q": rows[0], "k": rows[1], "v": rows[1]}
        drawn = {name: torch.randn(count, shape.dim) * 0.02 for name, count in sizes.items()}
        return {"attn_norm": torch.ones(shape.dim), **drawn,
                "attn_out": torch.randn(shape.dim, rows[0]) * 0.02}
    for name in ("k", "v"):
        tensors[name] = repeated(tensors[name], target.shape.kv_heads, shape.kv_heads)
    return tensors


class AdapterTask:
    def __init__(self, data: Data, options) -> None:
        target = data.target
        kv_heads = options.kv_heads or target.shape.heads
        if target.shape.heads % kv_heads or kv_heads % target.shape.kv_heads:
            raise ValueError(f"--kv-heads {kv_heads}: must divide the target's "
                             f"{target.shape.heads} heads and be a multiple of its "
                             f"{target.shape.kv_heads} of keys and values")
        self.options = options
        self.kind = options.kind
        self.short = data.short
        self.shape = target.shape.with_kv_heads(kv_heads)
        head = target.head(data.short.tokens)
        self.head = head.to(options.device, self.kind)
        self.head_exact = head.to(options.device)
        self.module = nn.ModuleDict({
            str(layer): Adapter(self.shape,
                                start_tensors(target, self.shape, layer, options.start),
                                target.output_norm) for layer in options.exits})

    def describe(self) -> dict:
        shape = self.shape
        return {"part": "adapter", "exits": self.options.exits, "dim": shape.dim,
                "heads": shape.heads, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim,
                "rope_dims": shape.rope_dims, "tokens": self.short.tokens.tolist()}

    def _normed(self, batch: Batch, layer: int, context: Context) -> torch.Tensor:
        part = self.module[str(layer)]
        return batch.at_rows(part(batch.hidden[layer].to(self.kind), context))

    def _context(self, batch: Batch) -> Context:
        return Context(self.shape, batch.positions, batch.segments, self.kind)

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        total, measures = torch.zeros((), device=self.options.device), {}
        context, count = self._context(batch), max(1, len(batch.rows))
        for layer in self.options.exits:
            loss, hits = distil(self._normed(batch, layer, context), self.head, batch.ids,
                                batch.mass, self.options.rest)
            total = total + loss / count
            measures |= {f"adapter_{layer}.kl": loss.item() / count,
                         f"adapter_{layer}.top1": hits.item() / count}
        return total, measures

    @torch.no_grad()
    def evaluate(self, batches) -> dict[str, dict[str, float]]:
        figures = Figures()
        for batch in batches:
            batch = batch.to(self.options.device)
            context, owners = self._context(batch), batch.owners()
            for layer in self.options.exits:
                judged = judge(self._normed(batch, layer, context), self.head_exact, batch.ids)
                figures.add(f"adapter_{layer}", judged, owners, batch.sources)
        return figures.rows()


def run(options) -> int:
    loop.prepare(options)
    data = Data(options, options.exits)
    task = AdapterTask(data, options)
    weights = sum(p.numel() for p in task.module.parameters())
    print(f"adapter: behind layers {', '.join(map(str, options.exits))}, {weights} weights; "
          f"{len(data.answers)} answers to learn from, {len(data.heldout)} held out",
          file=sys.stderr)
    loop.print_table(loop.train(task, data, options), "adapter")
    return 0
