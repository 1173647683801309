"""paceline-train probe: whether an early token is right, read off one hidden state (AdaSPEED).

Logistic regression on u = h / rms(h) behind an exit layer: sigmoid(v u + b) is the chance that the
token which the exit says is the one that the last layer says. `greedy` probes learn whether the
likeliest tokens agree, `sampled` ones the sum of min(p, q), the chance that a token drawn from the
exit's distribution is accepted. Exits of two kinds: `lens`, the target's own norm and head on the
target with a low-rank part (--lora RUN), and `head`, the trained heads of a part file (--heads) on
the plain target.
"""

import argparse
import hashlib
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from . import loop
from .batches import Batch, Data, add_data_arguments
from .heads import layer_list
from .kernels import rms_norm
from .lora import LoraTarget
from .losses import CHUNK_ROWS
from .modules import Context
from .tensor_map import TensorMap

MODES = ("greedy", "sampled")
STEPS = 300  # of the optimiser; the problem is convex and small


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    add = parser.add_argument
    add("-o", "--out", type=Path, required=True, metavar="RUN", help="the run's folder")
    add("--lora", type=Path, metavar="RUN",
        help="a run of early-exit: probes of the logit lens on that target")
    add("--lora-part", type=Path, metavar="FILE", help="the part file that was made of it")
    add("--lens-exits", type=layer_list, default=[], metavar="L,...")
    add("--heads", type=Path, metavar="FILE", help="a part file of exit heads: probes of these")
    add("--head-exits", type=layer_list, default=[], metavar="L,...")
    add("--decay", type=float, default=1e-3, help="weight of |v|^2 (%(default)s)")
    add("--seed", type=int, default=1)
    add("-t", "--threads", type=int, default=torch.get_num_threads())
    add("--device", default="cpu", help="cpu, cuda, cuda:1, ... (%(default)s)")
    add("--dtype", choices=["auto", "f32", "bf16"], default="auto",
        help="to compute hidden states in (%(default)s)")


@dataclass
class Rows:
    """What a probe reads and what it should say, of many positions."""

    states: list[torch.Tensor] = field(default_factory=list)  # float32 [rows, dim], rms 1
    labels: dict[str, list[torch.Tensor]] = field(
        default_factory=lambda: {mode: [] for mode in MODES})

    def joined(self, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat(self.states), torch.cat(self.labels[mode])


def unit_rms(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    """h / rms(h): the final norm without its weight."""
    return rms_norm(x.float(), torch.ones(x.shape[-1], device=x.device), epsilon)


def agreement(early: torch.Tensor, final: torch.Tensor, head: torch.Tensor,
              tokens: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """Labels of rows. early, final [rows, dim]: what the head reads. With `tokens`, the early
    exit can say these alone."""
    labels: dict[str, list[torch.Tensor]] = {mode: [] for mode in MODES}
    early_head = head if tokens is None else head[tokens]
    for first in range(0, len(early), CHUNK_ROWS):
        rows = slice(first, first + CHUNK_ROWS)
        p = torch.softmax((final[rows] @ head.T).float(), -1)
        q = torch.softmax((early[rows] @ early_head.T).float(), -1)
        said = q.argmax(-1)
        if tokens is not None:
            said = tokens[said]
        labels["greedy"].append((said == p.argmax(-1)).float())
        if tokens is not None:
            p = p[:, tokens]
        labels["sampled"].append(torch.minimum(p, q).sum(-1))
    return {mode: torch.cat(parts) for mode, parts in labels.items()}


def fit(states: torch.Tensor, labels: torch.Tensor,
        decay: float) -> tuple[torch.Tensor, torch.Tensor]:
    """v [dim], b [1] of the logistic regression; labels may be chances."""
    v = torch.zeros(states.shape[1], device=states.device, requires_grad=True)
    b = torch.zeros(1, device=states.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([v, b], max_iter=STEPS, history_size=20,
                                  line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(states @ v + b, labels)
        loss = loss + decay * v.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return v.detach(), b.detach()


def area(scores: np.ndarray, labels: np.ndarray) -> float:
    """Chance that a right row scores higher than a wrong one; a row whose label is a chance counts
    as right and as wrong by it. Equal scores count half."""
    _, places = np.unique(scores, return_inverse=True)
    right = np.bincount(places, labels)
    wrong = np.bincount(places, 1 - labels)
    below = np.cumsum(wrong) - wrong
    pairs = right.sum() * wrong.sum()
    return float((right * (below + wrong / 2)).sum() / pairs) if pairs else 0.5


def judged(states: torch.Tensor, labels: torch.Tensor, v: torch.Tensor,
           b: torch.Tensor) -> dict[str, float]:
    scores = (states @ v + b).double().cpu().numpy()
    labels = labels.double().cpu().numpy()
    right = np.where(scores > 0, labels, 1 - labels)
    return {"positions": len(scores), "accuracy": float(right.mean()),
            "auc": area(scores, labels), "base_rate": float(labels.mean())}


class HeadsPart:
    """Exit heads of a part file."""

    def __init__(self, path: Path, device: str) -> None:
        self.path = path
        self.file = TensorMap(path)
        self.device = device
        if self.file.metadata.get("paceline.part") != "heads":
            raise ValueError(f"--heads {path}: paceline.part is "
                             f"'{self.file.metadata.get('paceline.part')}', not 'heads'")
        self.norm_first = self.file.metadata["norm_first"] == "1"
        self.tokens = torch.from_numpy(
            np.array(self.file.tensor("tokens", "I32", 1), np.int64)).to(device)

    def transform(self, layer: int) -> torch.Tensor:
        if f"exit.{layer}" not in self.file.metadata:
            raise ValueError(f"--heads {self.path}: has no head behind layer {layer}")
        stored = self.file.tensor(f"exit.{layer}.transform", "F16", 2)
        return torch.from_numpy(np.array(stored, np.float32)).to(self.device)


class Collector:
    """Rows of every probe, from the answers of some batches."""

    def __init__(self, data: Data, options) -> None:
        target = data.target
        self.options = options
        self.shape = target.shape
        self.layers = target.layers
        self.norm = target.output_norm.to(options.device)
        self.head = target.head(np.arange(target.vocab_size)).to(options.device, options.kind)
        rank, alpha, state = 0, 1.0, None
        if options.lora:
            state, rank, alpha = read_lora(options.lora, data.fingerprint)
        self.module = LoraTarget(target, {i: rank for i in range(target.layers)},
                                 alpha).to(options.device)
        if state is not None:
            self.module.load_state_dict(state)
        self.heads = HeadsPart(options.heads, options.device) if options.heads else None
        for layer in options.lens_exits + options.head_exits:
            if not 0 < layer < self.layers:
                raise ValueError(f"exit layer {layer}: exits lie behind 1 to {self.layers - 1}")
        self.transforms = {layer: self.heads.transform(layer) for layer in options.head_exits}

    def collect(self, batches) -> dict[str, Rows]:
        """{"exit.L.lens" or "exit.L.head": its rows}."""
        rows: dict[str, Rows] = {}
        batches = list(batches)
        if self.options.lens_exits:
            self.module.merge(self.options.kind)
            for batch in batches:
                self._add(rows, batch, self.options.lens_exits, "lens")
        if self.options.head_exits:
            with self.module.plain(self.options.kind):
                for batch in batches:
                    self._add(rows, batch, self.options.head_exits, "head")
        return rows

    @torch.no_grad()
    def _add(self, rows: dict[str, Rows], batch: Batch, exits: list[int], kind: str) -> None:
        batch = batch.to(self.options.device)
        context = Context(self.shape, batch.positions, batch.segments, self.options.kind)
        kept = {layer: batch.at_rows(x) for layer, x in self.module.walk(batch.tokens, context)
                if layer in exits or layer == self.layers}
        final = self._normed(kept[self.layers])
        for layer in exits:
            if kind == "lens":
                found = agreement(self._normed(kept[layer]), final, self.head)
            else:
                found = agreement(self._through_head(kept[layer], layer), final, self.head,
                                  self.heads.tokens)
            mine = rows.setdefault(f"exit.{layer}.{kind}", Rows())
            mine.states.append(unit_rms(kept[layer], self.shape.epsilon))
            for mode, labels in found.items():
                mine.labels[mode].append(labels)

    def _normed(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.norm, self.shape.epsilon)

    def _through_head(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        matrix = self.transforms[layer].to(x.dtype)
        if self.heads.norm_first:
            return self._normed(x) @ matrix.T
        return self._normed(x @ matrix.T)


def read_lora(run: Path, fingerprint: str) -> tuple[dict, int, float]:
    """Its updates, rank and alpha."""
    path = run / "checkpoint.pt"
    if not path.is_file():
        raise ValueError(f"--lora {run}: no checkpoint.pt there")
    saved = torch.load(path, map_location="cpu", weights_only=True)
    if saved["part"]["part"] != "lora":
        raise ValueError(f"--lora {run}: a run of '{saved['part']['part']}', not of early-exit")
    if saved["target"] != fingerprint:
        raise ValueError(f"--lora {run}: its target is {saved['target']}, the answers are of "
                         f"{fingerprint}")
    return saved["module"], saved["part"]["rank"], saved["part"]["alpha"]


def digest(path: Path | None) -> str:
    """The first 16 digits of the file's SHA-256: which file a probe was fitted with."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path else ""


def check(options) -> None:
    if not options.lens_exits and not options.head_exits:
        raise ValueError("nothing to fit: give --lens-exits or --head-exits")
    if options.lens_exits and not (options.lora and options.lora_part):
        raise ValueError("--lens-exits: needs --lora RUN and --lora-part FILE")
    if options.head_exits and not options.heads:
        raise ValueError("--head-exits: needs --heads FILE")


def run(options) -> int:
    check(options)
    begun = time.perf_counter()
    options.steps, options.minutes = STEPS, 0
    loop.prepare(options)
    data = Data(options, [])
    collector = Collector(data, options)
    learnt = collector.collect(data.training(options.seed))
    unseen = collector.collect(data.heldout_batches())
    tensors, figures, positions = {}, {}, 0
    for name, rows in learnt.items():
        for mode in MODES:
            states, labels = rows.joined(mode)
            v, b = fit(states, labels, options.decay)
            tensors |= {f"{name}.{mode}.v": v.cpu(), f"{name}.{mode}.b": b.cpu()}
            figures[f"{name}.{mode}"] = judged(*unseen[name].joined(mode), v, b)
            positions = len(labels)
    part = {"part": "probe", "dim": data.target.shape.dim, "probes": list(figures),
            "lora": digest(options.lora_part if options.lens_exits else None),
            "heads": digest(options.heads if options.head_exits else None)}
    torch.save({"module": tensors, "part": part, "target": data.fingerprint, "step": STEPS,
                "tokens": positions, "seed": options.seed}, options.out / "checkpoint.pt")
    write_card(options, data, part, figures, positions, time.perf_counter() - begun)
    loop.print_table(figures, "probe")
    return 0


def write_card(options, data: Data, part: dict, figures: dict, positions: int,
               seconds: float) -> None:
    card = {"part": part, "target": data.fingerprint, "target_name": data.target.path.name,
            "options": {"decay": options.decay, "seed": options.seed, "dtype": options.dtype},
            "answers": len(data.answers), "heldout_answers": len(data.heldout),
            "positions": positions, "seconds": round(seconds, 1), "torch": torch.__version__,
            "heldout": figures}
    (options.out / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    print(f"probe: {positions} positions to learn from, {seconds:.0f} s", file=sys.stderr)
