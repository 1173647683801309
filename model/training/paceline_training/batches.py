"""Answers as batches of tensors: what every part is trained and judged on.

    data = Data(options)                     the shards, the short list, the held-out answers
    for batch in data.training(seed): ...    one pass, in the order of the seed
    for batch in data.heldout_batches(): ...

A Batch holds `sequences` of equal length. `rows` are the positions (flat, row by row) that have
weight; ids and mass are their targets on the short list (losses.py). The shards stay mapped: a
batch copies only its own part.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .losses import ShortList
from .shards import Answer, Sequence, Shards, pack
from .short_list import always_kept, token_list
from .target import Target
from .tensor_map import TensorMap

LAST = -1  # as a layer: behind the target's last one
HELDOUT_EVERY = 50  # without held-out folders, every 50th prompt is kept for judging


@dataclass
class Batch:
    tokens: torch.Tensor  # int64 [B, L]
    positions: torch.Tensor
    segments: torch.Tensor
    rows: torch.Tensor  # int64 [R]: flat positions with weight
    ids: torch.Tensor  # int64 [R, K], -1: not on the short list
    mass: torch.Tensor  # float32 [R, K]
    hidden: dict[int, torch.Tensor]  # layer: float16 [B, L, dim]
    answers: list[Answer]  # in the order of their rows

    @property
    def sources(self) -> list[str]:
        """What the report tells apart: of "own-general-travel" only "own-general"."""
        return ["-".join(answer.source.split("-")[:2]) for answer in self.answers]

    @property
    def used_tokens(self) -> int:
        return int((self.segments > 0).sum())

    def at_rows(self, grid: torch.Tensor) -> torch.Tensor:
        """[B, L, ...] -> [R, ...]."""
        return grid.flatten(0, 1)[self.rows]

    def owners(self) -> torch.Tensor:
        """For each row the index of its answer in `answers`."""
        starts = (self.positions == 0) & (self.segments > 0)
        return (starts.flatten().cumsum(0) - 1)[self.rows]

    def ahead(self, steps: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows (as indices into `rows`) whose answer still has weight `steps` positions on, and
        the ids and mass there."""
        place = torch.full((self.segments.numel() + steps,), -1, dtype=torch.int64,
                           device=self.rows.device)
        place[self.rows] = torch.arange(len(self.rows), device=self.rows.device)
        there = place[self.rows + steps]
        owners = self.owners()
        good = (there >= 0) & (owners == owners[there.clamp(min=0)])
        here = good.nonzero()[:, 0]
        return here, self.ids[there[here]], self.mass[there[here]]

    def to(self, device: torch.device) -> "Batch":
        move = {name: value.to(device) for name, value in vars(self).items()
                if isinstance(value, torch.Tensor)}
        return Batch(**move, answers=self.answers,
                     hidden={layer: h.to(device) for layer, h in self.hidden.items()})


def make_batch(sequences: list[Sequence], short: ShortList) -> Batch:
    def stacked(name: str) -> torch.Tensor:
        return torch.from_numpy(np.stack([getattr(s, name) for s in sequences]))

    segments, weights = stacked("segments"), stacked("weights")
    rows = weights.flatten().nonzero()[:, 0]
    ids, mass = short.targets(stacked("top_ids").flatten(0, 1)[rows],
                              stacked("top_logprob").flatten(0, 1)[rows])
    parts = [s.hidden for s in sequences]
    hidden = {layer: torch.from_numpy(np.stack([part[layer] for part in parts]))
              for layer in parts[0]}
    answers = [answer for s in sequences for answer, _ in s.parts]
    return Batch(stacked("tokens"), stacked("positions"), segments, rows, ids, mass, hidden,
                 answers)


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--model", type=Path, required=True, help="the target's GGUF file")
    parser.add_argument("--answers", type=Path, action="append", required=True, metavar="DIR",
                        help="a folder of answer shards to learn from; may be repeated")
    parser.add_argument("--heldout", type=Path, action="append", default=[], metavar="DIR",
                        help="a folder of answer shards to judge by; without one, every "
                        f"{HELDOUT_EVERY}th prompt of the others is kept for that")
    parser.add_argument("--source", action="append", default=[], metavar="NAME",
                        help="learn from prompts of this source (or NAME-...) alone; repeatable")
    parser.add_argument("--tokens", type=int, default=6144, metavar="N",
                        help="length of the short list: the commonest tokens (%(default)s)")
    parser.add_argument("--token-list", type=Path, metavar="FILE",
                        help="the short list itself: a part file, or ids as text, one a line")
    parser.add_argument("--length", type=int, default=512, metavar="N",
                        help="positions of a sequence (%(default)s)")
    parser.add_argument("--batch-tokens", type=int, default=2048, metavar="N",
                        help="positions of a step (%(default)s)")
    parser.add_argument("--limit-tokens", type=int, default=0, metavar="N",
                        help="learn from about so many tokens only (0: all)")
    parser.add_argument("--heldout-tokens", type=int, default=40000, metavar="N",
                        help="judge by about so many tokens (%(default)s)")


def read_token_list(path: Path) -> np.ndarray:
    if path.suffix == ".safetensors":
        return np.array(TensorMap(path).tensor("tokens", "I32", 1))
    return np.array(sorted(int(word) for word in path.read_text(encoding="utf-8-sig").split()), np.int32)


class Data:
    """Training and held-out answers of the options, and the short list."""

    def __init__(self, options, hidden: list[int]) -> None:
        """hidden: layers whose residuals the batches shall hold.

        Raises ValueError for shards that are damaged or of another target.
        """
        self.options = options
        self.target = Target(options.model)
        self.hidden = sorted({self.target.layers if layer == LAST else layer for layer in hidden})
        self.heldout: list[Answer] = []
        self._open()
        self.short = ShortList(self._tokens(), self.target.vocab_size)

    @property
    def fingerprint(self) -> str:
        return self.shards.target

    def _tokens(self) -> np.ndarray:
        """The run's own list if it has begun: shards that came since must not change it."""
        kept = self.options.out / "tokens.txt"
        if kept.is_file():
            return read_token_list(kept)
        if self.options.token_list:
            tokens = read_token_list(self.options.token_list)
        else:
            self.shards.answers = self.answers  # without those that are held out
            tokens = token_list(self.shards, min(self.options.tokens, self.target.vocab_size),
                                always_kept(self.options.model))
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("\n".join(map(str, tokens)) + "\n")
        return tokens

    def _open(self) -> None:
        options = self.options
        self.shards = Shards(options.answers, self.hidden, options.limit_tokens)
        if self.shards.vocab_size != self.target.vocab_size:
            raise ValueError(f"{options.answers[0]}: answers of a model with "
                             f"{self.shards.vocab_size} tokens, but {options.model} has "
                             f"{self.target.vocab_size}")
        answers = self.shards.answers
        if options.source:
            answers = [a for a in answers
                       if any(f"{a.source}-".startswith(f"{name}-") for name in options.source)]
        if not options.heldout:
            kept = [a for a in answers if a.prompt_index % HELDOUT_EVERY == 0]
            answers = [a for a in answers if a.prompt_index % HELDOUT_EVERY]
        elif not self.heldout:
            others = Shards(options.heldout, self.hidden, options.heldout_tokens)
            if others.target != self.shards.target:
                raise ValueError(f"{options.heldout[0]}: answers of target {others.target}, "
                                 f"those to learn from are of {self.shards.target}")
            kept = others.answers
        if not self.heldout:
            self.heldout = first_tokens(kept, options.heldout_tokens)
        self.answers = answers
        if not answers:
            raise ValueError(f"{options.answers[0]}: no answers to learn from")

    def training(self, seed: int, skip: int = 0) -> Iterator[Batch]:
        """One pass over all answers that are there when it begins, without its first `skip`
        batches: shards that were written since the last pass belong to it."""
        self._open()
        return self.batches(self.answers, seed, skip)

    def heldout_batches(self) -> Iterator[Batch]:
        return self.batches(self.heldout, 0)

    def batches(self, answers: list[Answer], seed: int, skip: int = 0) -> Iterator[Batch]:
        sequences = pack(answers, self.options.length, seed)
        count = max(1, self.options.batch_tokens // self.options.length)
        order = np.random.default_rng(seed).permutation(len(sequences))
        for first in range(skip * count, len(order), count):
            yield make_batch([sequences[i] for i in order[first:first + count]], self.short)


def first_tokens(answers: list[Answer], limit: int) -> list[Answer]:
    """Answers spread evenly over the list, about `limit` tokens of them."""
    total = sum(len(answer) for answer in answers)
    step = max(1, -(-total // limit)) if limit else 1
    return answers[::step]
