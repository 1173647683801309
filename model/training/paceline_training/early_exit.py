"""paceline-train early-exit: low-rank updates with which the target says early what it says last.

LayerSkip's recipe on a frozen target with LoRA: every layer may be dropped from a step, the later
the likelier; the target's own norm and head (the logit lens) learn behind exit layers, the deeper
the heavier; all towards the distributions that the plain target left in its answers. So does the
last layer's output, which keeps the text what it was. The updates make a target of their own: its
final output is near the plain one's, not equal to it.

Most steps run the layers up to --exit only; every --full-every th runs all of them. Each of these
also trains one of --others in turn. A step's softmax is over the short list, the tokens that the
batch's targets name, and --sampled others, whose logits are raised by what they stand for.
"""

import argparse
import sys
from dataclasses import dataclass

import numpy as np
import torch

from . import loop
from .batches import Batch, Data, add_data_arguments
from .heads import layer_list
from .kernels import rms_norm
from .lora import LoraTarget
from .losses import CHUNK_ROWS, ShortList, distil
from .modules import Context


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    loop.add_loop_arguments(parser, rate=1.2e-3)
    add = parser.add_argument
    add("--exit", type=int, default=8, metavar="L",
        help="the exit layer that every step trains (%(default)s)")
    add("--others", type=layer_list, default=[4, 6, 10, 12, 15, 20, 24], metavar="L,...",
        help="exit layers of which each step trains one in turn (4,6,10,12,15,20,24)")
    add("--judged", type=layer_list, default=[], metavar="L,...",
        help="further exit layers in the report on held-out answers")
    add("--other-weight", type=float, default=0.3, metavar="W",
        help="weight of the others' losses, times L / --exit (%(default)s)")
    add("--final-weight", type=float, default=2.0, metavar="W",
        help="weight of the last layer's loss, times its number / --exit (%(default)s)")
    add("--full-every", type=int, default=2, metavar="N",
        help="every Nth step runs all layers (%(default)s)")
    add("--layer-dropout", type=float, default=0.1, metavar="P",
        help="chance that a step leaves out the last layer; layer i of n: "
        "P (2^(i / (n - 1)) - 1) (%(default)s)")
    add("--rank", type=int, default=16, help="of the updates (%(default)s)")
    add("--alpha", type=float, default=32.0, help="W + alpha / rank * B A (%(default)s)")
    add("--sampled", type=int, default=2048, metavar="N",
        help="tokens drawn each step from those off the short list (%(default)s)")


def dropout_chances(layers: int, most: float) -> list[float]:
    """Of each layer: 0 for the first, `most` for the last, exponentially between."""
    return [most * (2 ** (index / max(1, layers - 1)) - 1) for index in range(layers)]


@dataclass
class StepHead:
    """The rows of the head that one step's softmax is over."""

    head: torch.Tensor  # [tokens, dim]
    bias: torch.Tensor  # float32 [tokens]
    ids: torch.Tensor  # [rows, K]: the batch's ids as places in it


class HeadSampler:
    """Draws the head of each step from all of the target's."""

    def __init__(self, head: torch.Tensor, listed: np.ndarray, sampled: int) -> None:
        self.head = head
        self.listed = torch.zeros(len(head), dtype=torch.bool, device=head.device)
        self.listed[torch.from_numpy(np.asarray(listed, np.int64)).to(head.device)] = True
        self.sampled = sampled

    def draw(self, ids: torch.Tensor) -> StepHead:
        """ids [rows, K]: tokens, -1 where unknown."""
        always = self.listed.clone()
        always[ids[ids >= 0]] = True
        rest = (~always).nonzero()[:, 0]
        count = min(self.sampled, len(rest))
        drawn = rest[torch.randperm(len(rest), device=rest.device)[:count]]
        kept = always.nonzero()[:, 0]
        tokens = torch.cat([kept, drawn])
        bias = torch.zeros(len(tokens), device=tokens.device)
        if count:
            bias[len(kept):] = float(np.log(len(rest) / count))
        places = torch.full((len(self.head) + 1,), -1, dtype=torch.int64, device=tokens.device)
        places[tokens] = torch.arange(len(tokens), device=tokens.device)
        return StepHead(self.head[tokens], bias, places[ids])


class EarlyExitTask:
    def __init__(self, data: Data, options) -> None:
        target = data.target
        self.options = options
        self.kind = options.kind
        self.target = target
        self.layers = target.layers
        for layer in [options.exit, *options.others, *options.judged]:
            if not 0 < layer < self.layers:
                raise ValueError(f"exit layer {layer}: the target has {self.layers} layers, so "
                                 f"exits lie behind 1 to {self.layers - 1}")
        if options.rank < 1:
            raise ValueError(f"--rank {options.rank}: must be at least 1")
        if options.full_every < 1:
            raise ValueError(f"--full-every {options.full_every}: must be at least 1")
        listed = data.short.tokens
        # The batches' targets are whole: a target of its own must keep its rare tokens.
        data.short = ShortList(np.arange(target.vocab_size), target.vocab_size)
        self.module = LoraTarget(target, {i: options.rank for i in range(self.layers)},
                                 options.alpha).to(options.device)
        self.norm = target.output_norm.to(options.device)
        self.head = target.head(np.arange(target.vocab_size)).to(options.device)
        self.sampler = HeadSampler(self.head.to(self.kind), listed, options.sampled)
        self.chances = dropout_chances(self.layers, options.layer_dropout)
        self.random = np.random.default_rng(options.seed)
        self.steps = 0

    def describe(self) -> dict:
        options = self.options
        return {"part": "lora", "rank": options.rank, "alpha": options.alpha,
                "exit": options.exit, "exits": sorted({options.exit, *options.others}),
                "layers": self.layers, "dim": self.target.shape.dim,
                "heads": self.target.shape.heads, "kv_heads": self.target.shape.kv_heads,
                "rope_dims": self.target.shape.rope_dims}

    def plan(self) -> tuple[int, dict[int, float]]:
        """Depth of the next step, and the weights of the losses behind its layers."""
        options, number = self.options, self.steps
        self.steps += 1
        full = number % options.full_every == options.full_every - 1
        turn = number // options.full_every if full else number
        weights = {options.exit: 1.0}
        others = [l for l in options.others if (l > options.exit) == full and l != options.exit]
        if others:
            other = others[turn % len(others)]
            weights[other] = options.other_weight * other / options.exit
        if full:
            weights[self.layers] = options.final_weight * self.layers / options.exit
        return max(weights), weights

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        depth, weights = self.plan()
        skipped = {i for i in range(depth) if self.random.random() < self.chances[i]}
        self.module.merge(self.kind, depth)
        context = Context(self.target.shape, batch.positions, batch.segments, self.kind)
        head, count = self.sampler.draw(batch.ids), max(1, len(batch.rows))
        total, measures = torch.zeros((), device=self.options.device), {}
        for layer, x in self.module.walk(batch.tokens, context, depth, skipped):
            if layer not in weights:
                continue
            normed = rms_norm(batch.at_rows(x), self.norm, self.target.shape.epsilon)
            loss, hits = distil(normed, head.head, head.ids, batch.mass, bias=head.bias)
            total = total + weights[layer] * loss / count
            measures |= {f"exit_{layer}.kl": loss.item() / count,
                         f"exit_{layer}.top1": hits.item() / count}
        return total, measures

    @torch.no_grad()
    def evaluate(self, batches) -> dict[str, dict[str, float]]:
        """With the whole head, logits in float32. `plain` is the target without updates."""
        options = self.options
        exits = sorted({options.exit, *options.others, *options.judged})
        figures = Comparison(exits)
        batches = [batch.to(options.device) for batch in batches]
        with self.module.plain(self.kind):
            plain = [self._normed(batch, exits) for batch in batches]
        self.module.merge(self.kind)
        for batch, before in zip(batches, plain):
            figures.add(self.head, self._normed(batch, exits), before, next_tokens(batch))
        return figures.rows()

    def _normed(self, batch: Batch, exits: list[int]) -> dict[int, torch.Tensor]:
        context = Context(self.target.shape, batch.positions, batch.segments, self.kind)
        return {layer: rms_norm(batch.at_rows(x).float(), self.norm, self.target.shape.epsilon)
                for layer, x in self.module.walk(batch.tokens, context)
                if layer in exits or layer == self.layers}


def next_tokens(batch: Batch) -> torch.Tensor:
    """The token behind each row, -1 where the answer ends."""
    flat = torch.cat([batch.tokens.flatten(), batch.tokens.new_zeros(1)])
    starts = torch.cat([batch.positions.flatten(), batch.positions.new_zeros(1)])
    return flat[batch.rows + 1].masked_fill(starts[batch.rows + 1] == 0, -1)


class Comparison:
    """The tuned target against the plain one and each exit against its own last layer."""

    def __init__(self, exits: list[int]) -> None:
        self.exits = exits
        self.sums: dict[str, dict[str, float]] = {}
        self.count = self.texts = 0

    def _add(self, row: str, **values) -> None:
        kept = self.sums.setdefault(row, {})
        for name, value in values.items():
            kept[name] = kept.get(name, 0.0) + float(value)

    def add(self, head: torch.Tensor, tuned: dict[int, torch.Tensor],
            plain: dict[int, torch.Tensor], text: torch.Tensor) -> None:
        """tuned, plain: {layer: normed rows}; text: the token that stands behind each row."""
        last = max(tuned)
        for first in range(0, len(text), CHUNK_ROWS):
            rows = slice(first, first + CHUNK_ROWS)
            p = torch.log_softmax(plain[last][rows] @ head.T, -1)
            q = torch.log_softmax(tuned[last][rows] @ head.T, -1)
            known = text[rows] >= 0
            said = text[rows].clamp(min=0)[:, None]
            self.count += len(p)
            self.texts += int(known.sum())
            self._add("final", kl_from_plain=(p.exp() * (p - q)).sum(),
                      agrees_with_plain=(p.argmax(-1) == q.argmax(-1)).sum(),
                      plain_surprise=-p.gather(1, said)[known].sum(),
                      surprise=-q.gather(1, said)[known].sum())
            for layer in self.exits:
                before = torch.log_softmax(plain[layer][rows] @ head.T, -1)
                after = torch.log_softmax(tuned[layer][rows] @ head.T, -1)
                places = after.topk(4, -1).indices
                agrees = places == q.argmax(-1)[:, None]
                self._add(f"exit_{layer}",
                          plain_lens_top1=(before.argmax(-1) == p.argmax(-1)).sum(),
                          top1=agrees[:, 0].sum(), top4=agrees.any(-1).sum(),
                          accepted_sampled=torch.minimum(after, q).exp().sum())

    def rows(self) -> dict[str, dict[str, float]]:
        """Means over the rows; surprise (nats) as perplexity."""
        out = {}
        for row, sums in self.sums.items():
            out[row] = {"positions": self.count}
            for name, value in sums.items():
                if name.endswith("surprise"):
                    out[row][name.replace("surprise", "perplexity")] = float(
                        np.exp(value / max(1, self.texts)))
                else:
                    out[row][name] = value / max(1, self.count)
        return out


def run(options) -> int:
    loop.prepare(options)
    data = Data(options, [])
    task = EarlyExitTask(data, options)
    weights = sum(p.numel() for p in task.module.parameters())
    print(f"early-exit: rank {options.rank} in {task.layers} layers, {weights} weights; "
          f"{len(data.answers)} answers to learn from, {len(data.heldout)} held out",
          file=sys.stderr)
    loop.print_table(loop.train(task, data, options), "held-out answers")
    return 0
