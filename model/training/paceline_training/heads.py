"""paceline-train heads: AdaDecode's exit heads, and heads that look further ahead.

Behind each exit layer one matrix T, from the identity on, learns to say what the last layer will
say: logits = E norm(T h), or E T norm(h) with --norm-first; E is the target's own head, cut to the
short list. Look-ahead head J learns from the last layer's states what comes J positions behind
the next token; with --residual these are Medusa's, logits = E (n + SiLU(W n)), n = norm(h). How
often each rank of a look-ahead head is right on held-out text gives a fixed tree of at most 63
nodes, which export writes (ahead_tree.py). All heads learn in one pass over the same batches.
--full trains a matrix V x d per layer instead, for comparison; --source trains on the prompts of
one task alone.
"""

import argparse
import sys

import torch
from torch import nn

from . import loop
from .ahead_tree import RankCounts, expected_tokens, greedy_tree, write_tree
from .batches import LAST, Batch, Data, add_data_arguments
from .losses import Figures, distil, judge
from .modules import FullHead, ResidualHead, THead


def layer_list(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",") if word]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers like 15,20,23") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    loop.add_loop_arguments(parser, rate=1e-3)
    parser.add_argument("--exits", type=layer_list, default=[], metavar="L,...",
                        help="a head behind so many layers, for each number")
    parser.add_argument("--ahead", type=layer_list, default=[], metavar="J,...",
                        help="look-ahead heads behind the last layer: 1 is the token behind the "
                        "next one")
    parser.add_argument("--residual", action="store_true",
                        help="look-ahead heads E (n + SiLU(W n)), n = norm(h) (Medusa)")
    parser.add_argument("--norm-first", action="store_true", help="E T norm(h), not E norm(T h)")
    parser.add_argument("--full", action="store_true",
                        help="a matrix V x d for each layer (cannot be exported)")
    parser.add_argument("--rest", choices=["drop", "bucket"], default="drop",
                        help="mass outside the target's top tokens: left out, or one bucket")


class HeadsTask:
    def __init__(self, data: Data, options) -> None:
        target = data.target
        self.options = options
        self.kind = options.kind
        self.short = data.short
        self.dim = target.shape.dim
        head = target.head(data.short.tokens)
        self.head = head.to(options.device, self.kind)
        self.head_exact = head.to(options.device)
        # name: (layer whose states it reads, positions ahead)
        self.plan = {f"exit_{layer}": (layer, 0) for layer in options.exits}
        self.plan |= {f"ahead_{steps}": (target.layers, steps) for steps in options.ahead}
        if not self.plan:
            raise ValueError("nothing to train: give --exits or --ahead")
        if options.residual and (options.exits or options.full or not options.ahead):
            raise ValueError("--residual is for look-ahead heads (--ahead) alone, without --exits "
                             "and --full: train exit heads in a run of their own")
        epsilon = target.shape.epsilon
        def make() -> nn.Module:
            if options.residual:
                return ResidualHead(target.output_norm, epsilon)
            if options.full:
                return FullHead(target.output_norm, epsilon, head)
            return THead(target.output_norm, epsilon, options.norm_first)

        self.module = nn.ModuleDict({name: make() for name in self.plan})
        self.lens = THead(target.output_norm, epsilon, False).to(options.device)

    def describe(self) -> dict:
        residual = {"ahead_block": "residual"} if self.options.residual else {}
        return {"part": "heads", "dim": self.dim, "exits": self.options.exits,
                "ahead": self.options.ahead,
                "norm_first": self.options.norm_first or self.options.residual,
                "full": self.options.full, "tokens": self.short.tokens.tolist(), **residual}

    def _rows(self, batch: Batch, layer: int, steps: int):
        """Hidden states and their targets; and which of the batch's rows these are."""
        states = batch.at_rows(batch.hidden[layer]).to(self.kind)
        if not steps:
            return states, batch.ids, batch.mass, slice(None)
        here, ids, mass = batch.ahead(steps)
        return states[here], ids, mass, here

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        total, measures = torch.zeros((), device=self.options.device), {}
        for name, (layer, steps) in self.plan.items():
            states, ids, mass, _ = self._rows(batch, layer, steps)
            part = self.module[name]
            matrix = part.matrix if self.options.full else self.head
            loss, hits = distil(part(states), matrix, ids, mass, self.options.rest)
            count = max(1, len(ids))
            total = total + loss / count
            measures |= {f"{name}.kl": loss.item() / count, f"{name}.top1": hits.item() / count}
        return total, measures

    @torch.no_grad()
    def evaluate(self, batches) -> dict[str, dict[str, float]]:
        figures, lens = Figures(), Figures()
        for batch in batches:
            batch = batch.to(self.options.device)
            owners = batch.owners()
            for name, (layer, steps) in self.plan.items():
                states, ids, _, which = self._rows(batch, layer, steps)
                states = states.float()
                part = self.module[name]
                matrix = part.matrix if self.options.full else self.head_exact
                figures.add(name, judge(part(states), matrix, ids), owners[which], batch.sources)
                lens.add(name, judge(self.lens(states), self.head_exact, ids), owners[which],
                         batch.sources)
        plain = lens.rows()
        return {name: {"lens_top1": plain[name]["top1"]} | row
                for name, row in figures.rows().items()}

    @torch.no_grad()
    def rank_accuracies(self, batches) -> list[list[float]]:
        """[look-ahead head][rank]: the share of positions whose token is the head's of that rank."""
        counts = [RankCounts() for _ in self.options.ahead]
        for batch in batches:
            batch = batch.to(self.options.device)
            for count, steps in zip(counts, self.options.ahead):
                name = f"ahead_{steps}"
                states, ids, _, _ = self._rows(batch, self.plan[name][0], steps)
                count.add(self.module[name](states.float()), self.head_exact, ids[:, 0])
        return [count.shares() for count in counts]


def run(options) -> int:
    loop.prepare(options)
    data = Data(options, [*options.exits, *([LAST] if options.ahead else [])])
    task = HeadsTask(data, options)
    print(f"heads: {', '.join(task.plan)}; {len(data.answers)} answers to learn from, "
          f"{len(data.heldout)} held out", file=sys.stderr)
    loop.print_table(loop.train(task, data, options), "head")
    if options.ahead and not options.full:
        accuracies = task.rank_accuracies(data.heldout_batches())
        tree = greedy_tree(accuracies)
        write_tree(options.out, accuracies, tree)
        print(f"fixed tree: {len(tree)} nodes, {1 + expected_tokens(accuracies, tree):.2f} tokens a "
              "pass if the heads were independent", file=sys.stderr)
    return 0
