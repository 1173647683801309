"""paceline-train draft: a few layers that guess what the target will say.

The layers start as copies of the target's (--from-layers) and learn its distributions on its own
answers; embedding and head stay the target's, so only layers and a norm are trained and shipped.
With --feature-loss the draft's last hidden state is also drawn towards the target's; with
--features it reads the target's hidden states of committed tokens, in EAGLE's way (an experiment:
such a draft has no part file).
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

from . import loop
from .batches import LAST, Batch, Data, add_data_arguments
from .kernels import rms_norm
from .losses import Figures, VerifyBatches, distil, feature_loss, judge
from .modules import Context, DraftModel

CHAIN = 8  # guesses of a batch, for the acceptance length
OWN_FEATURES = 0.5  # share of positions whose features are the draft's own in the second step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    loop.add_loop_arguments(parser, rate=1e-3)
    parser.add_argument("--from-layers", default="", metavar="I,J,...",
                        help="the target's layers that the draft's start from (its first ones)")
    parser.add_argument("--layers", type=int, default=4, metavar="N",
                        help="how many, without --from-layers (%(default)s)")
    parser.add_argument("--start-from", type=Path, metavar="RUN",
                        help="a run of a draft with fewer layers: this one begins as that one is, "
                        "and its further layers begin by adding nothing")
    parser.add_argument("--feature-loss", type=float, default=0.0, metavar="W",
                        help="weight of the smooth L1 to the target's last hidden states")
    parser.add_argument("--features", action="store_true",
                        help="read the target's last hidden states of committed tokens")
    parser.add_argument("--transform", action="store_true",
                        help="a trained matrix between the last layer and the output norm")
    parser.add_argument("--rest", choices=["drop", "bucket"], default="drop",
                        help="mass outside the target's top tokens: left out, or one bucket")
    parser.add_argument("--rollouts", type=int, default=200, metavar="N",
                        help="chains that are drafted for real when a --features draft is judged")


def start_layers(options, layers: int) -> list[int]:
    """The layers of the target that the draft starts from."""
    if options.from_layers:
        try:
            return [int(word) for word in options.from_layers.split(",")]
        except ValueError:
            raise ValueError(f"--from-layers '{options.from_layers}' is no list of numbers like "
                             "0,1,2,3") from None
    if not 0 < options.layers <= layers:
        raise ValueError(f"--layers {options.layers}: the target has {layers}")
    return list(range(options.layers))


def begin_as(module: DraftModel, run: Path) -> None:
    """Gives `module` the weights of a run's shallower draft. The layers behind them keep theirs but
    for what they add to the residual, which is nothing: the guesses are those of the run, and
    gradients reach the new layers from the first step on.

    Raises ValueError if there is no such run or its shapes are others.
    """
    path = run / "checkpoint.pt"
    if not path.is_file():
        raise ValueError(f"--start-from {run}: no checkpoint.pt there")
    weights = torch.load(path, map_location="cpu", weights_only=True)["module"]
    missing, unexpected = [], []
    try:
        missing, unexpected = module.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise ValueError(f"--start-from {run}: {error}") from None
    own = {name.split(".")[1] for name in missing if name.startswith("layers.")}
    if unexpected or len(own) == len(module.layers) or \
            any(not name.startswith("layers.") for name in missing):
        raise ValueError(f"--start-from {run}: a part of another kind or with more layers; not in "
                         f"this one: {', '.join(unexpected) or 'none'}; not in that one: "
                         f"{', '.join(missing) or 'none'}")
    with torch.no_grad():
        for index in map(int, own):
            module.layers[index].attention.out.zero_()
            module.layers[index].down.zero_()


class DraftTask:
    def __init__(self, data: Data, options) -> None:
        target = data.target
        self.options = options
        self.kind = options.kind
        self.device = torch.device(options.device)
        self.layers = start_layers(options, target.layers)
        self.shape = target.shape
        self.top_layer = target.layers
        self.short = data.short
        self.module = DraftModel(target.shape, [target.layer(i) for i in self.layers],
                                 target.output_norm, options.features, options.transform)
        if options.start_from:
            begin_as(self.module, options.start_from)
        self.embedding = target.embedding().to(self.device, self.kind)
        self.head = target.head(data.short.tokens).to(self.device, self.kind)
        self.head_exact = target.head(data.short.tokens).to(self.device)
        self.target_norm = target.output_norm.to(self.device)

    def describe(self) -> dict:
        return {"part": "draft", "layers": len(self.layers), "from_layers": self.layers,
                **self.shape.described(), "features": self.options.features,
                "transform": self.options.transform, "tokens": self.short.tokens.tolist()}

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        context = Context(self.shape, batch.positions, batch.segments, self.kind)
        embedded = self.embedding[batch.tokens]
        shifted = self._shifted(batch.hidden[self.top_layer]) if self.options.features else None
        last = self.module(embedded, context, shifted)
        loss, measures = self._loss_of(last, batch)
        if self.options.features:
            own = self._shifted(last.detach())
            pick = torch.rand(own.shape[:2], device=self.device)[..., None] < OWN_FEATURES
            second = self.module(embedded, context, torch.where(pick, own, shifted.to(own.dtype)))
            more, later = self._loss_of(second, batch)
            loss = 0.5 * (loss + more)
            measures |= {f"own_{name}": value for name, value in later.items()}
        return loss, measures

    def _shifted(self, hidden: torch.Tensor) -> torch.Tensor:
        """Row i gets the state of row i - 1. The first row of an answer gets that of another
        answer: a position that is never guessed from."""
        return torch.roll(hidden, 1, 1)

    def _loss_of(self, last: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        count = max(1, len(batch.rows))
        normed = self.module.output_norm(batch.at_rows(last))
        loss, hits = distil(normed, self.head, batch.ids, batch.mass, self.options.rest)
        loss = loss / count
        measures = {"kl": loss.item(), "top1": hits.item() / count}
        if self.options.feature_loss:
            wanted = rms_norm(batch.at_rows(batch.hidden[self.top_layer]).float(),
                              self.target_norm, self.shape.epsilon)
            distance = feature_loss(normed, wanted) / count
            measures["feature"] = distance.item()
            loss = loss + self.options.feature_loss * distance
        return loss, measures

    @torch.no_grad()
    def evaluate(self, batches) -> dict[str, dict[str, float]]:
        figures, verified = Figures(), {"all": VerifyBatches(CHAIN)}
        chains = Chains(self)
        for batch in batches:
            batch = batch.to(self.device)
            context = Context(self.shape, batch.positions, batch.segments, self.kind)
            shifted = (self._shifted(batch.hidden[self.top_layer])
                       if self.options.features else None)
            last = self.module(self.embedding[batch.tokens], context, shifted)
            found = judge(self.module.output_norm(batch.at_rows(last)), self.head_exact, batch.ids)
            owners = batch.owners()
            figures.add("all", found, owners, batch.sources)
            for index, source in enumerate(batch.sources):
                agrees = found["top1"][owners == index].cpu().numpy()
                for name in {"all", f"all {source}" if source else "all"}:
                    verified.setdefault(name, VerifyBatches(CHAIN)).add(agrees)
            if self.options.features:
                chains.add(batch)
        rows = figures.rows()
        if self.options.features:
            # Teacher forcing would let every guess read the target's features.
            return rows | {"all": rows["all"] | chains.figures()} if rows else rows
        return {name: row | verified[name].figures() for name, row in rows.items()}


class Chains:
    """Chains that a --features draft really drafts: the first guess reads the target's features,
    each later one its own state of the place before. Guesses count while they are the text."""

    def __init__(self, task: DraftTask) -> None:
        self.task = task
        self.left = task.options.rollouts
        self.random = np.random.default_rng(task.options.seed)
        self.lengths: list[int] = []

    def add(self, batch: Batch) -> None:
        """A few chains from each answer, as long as some are left."""
        owners = batch.owners()
        for index in range(len(batch.answers)):
            rows = batch.rows[owners == index]
            if self.left <= 0 or len(rows) <= CHAIN:
                continue
            count = min(4, self.left)
            self.left -= count
            self._roll(batch, rows, self.random.choice(len(rows) - CHAIN, count))

    def _roll(self, batch: Batch, rows: torch.Tensor, starts: np.ndarray) -> None:
        task = self.task
        length = batch.tokens.shape[1]
        sequence = int(rows[0]) // length
        first = int(rows[0]) - int(batch.positions.flatten()[rows[0]])  # the answer's begin
        offset = int(rows[0]) - first
        tokens = batch.tokens.flatten()[first:int(rows[-1]) + 1]
        states = batch.hidden[task.top_layer][sequence][
            first - sequence * length:int(rows[-1]) + 1 - sequence * length].to(task.kind)
        targets = batch.ids[torch.isin(batch.rows, rows), :1]
        for start in starts:
            begin = offset + int(start)  # the chain's first guess stands behind this position
            features = torch.roll(states, 1, 0)[:begin + CHAIN].clone()
            run = 0
            while run < CHAIN:
                here = begin + run + 1
                positions = torch.arange(here, device=tokens.device)[None]
                context = Context(task.shape, positions, torch.ones_like(positions), task.kind)
                last = task.module(task.embedding[tokens[:here]][None], context,
                                   features[None, :here])[0, -1]
                normed = task.module.output_norm(last[None])
                if not judge(normed, task.head_exact, targets[int(start) + run][None])["top1"][0]:
                    break
                run += 1
                if run < CHAIN:
                    features[here] = last
            self.lengths.append(run)

    def figures(self) -> dict[str, float]:
        """As VerifyBatches.figures(), from chains that begin anywhere."""
        runs = np.array(self.lengths or [0])
        return {"acceptance_length": float((runs + 1).mean()),
                **{f"accepted_{j + 1}": float((runs > j).mean()) for j in range(CHAIN)}}


def run(options) -> int:
    loop.prepare(options)
    data = Data(options, [LAST] if options.features or options.feature_loss else [])
    task = DraftTask(data, options)
    weights = sum(p.numel() for p in task.module.parameters())
    print(f"draft: layers {','.join(map(str, task.layers))} of the target, {weights} weights, "
          f"{len(data.answers)} answers to learn from, {len(data.heldout)} held out",
          file=sys.stderr)
    figures = loop.train(task, data, options)
    loop.print_table(figures, "held-out answers")
    return 0
