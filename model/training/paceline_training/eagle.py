"""paceline-train eagle: an EAGLE draft, one layer over tokens and the target's hidden states.

The layer's input at position i is W [embedding of token i ; feature of i - 1]: the target's last
hidden state there (EAGLE-1, EAGLE-2) or J [its states after --layers] (EAGLE-3). Along a chain the
feature is the layer's own output, so training unrolls --unroll steps: step k reads the output of
step k - 1, its rows see the keys that they will see in use, and the losses of all steps are added.
Embedding and head stay the target's; shipped are layer, norm, W and J.

Without --layers the loss is cross entropy and --feature-weight times the smooth L1 of the
normalised features; with --layers cross entropy alone.
"""

import argparse
import math
import sys

import torch
from torch import nn

from . import loop
from .batches import LAST, Batch, Data, add_data_arguments
from .kernels import rms_norm, swiglu
from .losses import Figures, distil, feature_loss, judge
from .modules import Context, Layer, RmsNorm, linear

NEVER = -1e30  # the score of a key that a row does not see
CHAIN = 5  # steps that are judged: the levels of EAGLE-2's tree


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    loop.add_loop_arguments(parser, rate=1e-3)
    parser.set_defaults(checkpoint_minutes=10.0)
    parser.add_argument("--unroll", type=int, default=4, metavar="N",
                        help="steps of a chain that are trained (%(default)s)")
    parser.add_argument("--layers", default="", metavar="I,J,...",
                        help="read the target's states after these layers (EAGLE-3), which the "
                        "answers must hold; without: its last states")
    parser.add_argument("--from-layer", type=int, default=-1, metavar="N",
                        help="the target's layer that the draft's begins as (its last one)")
    parser.add_argument("--feature-weight", type=float, default=0.1, metavar="W",
                        help="of the smooth L1 to the target's features (%(default)s)")


def feature_layers(text: str, layers: int) -> list[int]:
    """The layers of --layers; none: []. Raises ValueError naming the option and its value."""
    if not text:
        return []
    try:
        named = [int(word) for word in text.split(",")]
    except ValueError:
        named = []
    if not named or named != sorted(set(named)) or named[0] < 1 or named[-1] > layers:
        raise ValueError(f"--layers '{text}': must be ascending layers of 1 to {layers} with commas "
                         "between them")
    return named


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The halves of each head of [B, L, heads, dims] turned by the angles."""
    half = cos.shape[-1]
    a, b = x[..., :half], x[..., half:2 * half]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half:]], -1)


class EagleModel(nn.Module):
    """W, J and the layer. forward() gives the outputs of `steps` steps, [B, L, dim] each."""

    def __init__(self, shape, tensors: dict[str, torch.Tensor], output_norm: torch.Tensor,
                 states: int) -> None:
        """states: layers whose states are joined; 0: the last states as they are."""
        super().__init__()
        eye = torch.eye(shape.dim)
        self.shape = shape
        self.fuse = nn.Parameter(torch.cat([eye, eye], 1))
        self.join = nn.Parameter(torch.cat([torch.zeros(shape.dim, shape.dim * (states - 1)), eye],
                                           1)) if states else None
        self.layer = Layer(shape, tensors)
        self.output_norm = RmsNorm(output_norm, shape.epsilon)

    def forward(self, embedded: torch.Tensor, states: torch.Tensor, context: Context,
                positions: torch.Tensor, segments: torch.Tensor,
                steps: int) -> list[torch.Tensor]:
        """states: the target's, [B, L, dim] or, joined here, [B, L, layers * dim]."""
        feature = states.to(embedded.dtype)
        if self.join is not None:
            feature = linear(feature, self.join)
        behind_first = (positions > 0)[..., None]
        seen = (segments[:, :, None] == segments[:, None, :]) & (segments > 0)[:, :, None]
        keys, values, outputs = [], [], []
        for step in range(steps):
            before = torch.roll(feature, 1, 1) * behind_first
            x = linear(torch.cat([embedded, before], -1), self.fuse)
            attention = self.layer.attention
            query, key, value = self._heads(attention, x, context)
            keys.append(key)
            values.append(value)
            mixed = self._attend(query, keys, values, seen)
            x = x + linear(mixed, attention.out)
            x = x + linear(swiglu(linear(self.layer.norm(x), self.layer.gate_up)), self.layer.down)
            outputs.append(x)
            feature = x
        return outputs

    def _heads(self, attention, x, context: Context):
        shape = self.shape
        sizes = [shape.heads * shape.head_dim] + [shape.kv_heads * shape.head_dim] * 2
        q, k, v = linear(attention.norm(x), attention.qkv).split(sizes, -1)
        q, k, v = (part.unflatten(-1, (-1, shape.head_dim)) for part in (q, k, v))
        return rotated(q, context.cos, context.sin), rotated(k, context.cos, context.sin), v

    def _attend(self, query, keys, values, seen):
        """Row i of step n is n places behind a chain's root i - n. It sees the text up to the
        root as the first step computed it, and of each place behind it the key of that step: one
        key of each later step, so these scores are columns beside the first step's square."""
        shape = self.shape
        behind = len(keys) - 1  # places behind the root
        length = query.shape[1]
        group = shape.heads // shape.kv_heads
        keys, values = ([part.repeat_interleave(group, 2) for part in parts]
                        for parts in (keys, values))
        place = torch.arange(length, device=query.device)
        mask = (seen & (place[:, None] - place >= behind))[:, None]
        query = query / math.sqrt(shape.head_dim)
        square = query.transpose(1, 2) @ keys[0].permute(0, 2, 3, 1)
        scores = [square.float().masked_fill(~mask, NEVER)]
        shifted = []  # the values of the later steps, each at the rows that see it
        for step in range(1, behind + 1):
            shift = behind - step
            there = seen.diagonal(-shift, 1, 2)  # rows from `shift` on
            there = nn.functional.pad(there, (shift, 0))[:, None, :, None]
            key = torch.roll(keys[step], shift, 1)
            column = (query * key).sum(-1, dtype=torch.float32).transpose(1, 2)[..., None]
            scores.append(column.masked_fill(~there, NEVER))
            shifted.append(torch.roll(values[step], shift, 1))
        weights = torch.softmax(torch.cat(scores, -1), -1).to(query.dtype)
        mixed = (weights[..., :length] @ values[0].transpose(1, 2)).transpose(1, 2)
        for column, value in enumerate(shifted, length):
            mixed = mixed + weights[..., column].transpose(1, 2)[..., None] * value
        return mixed.flatten(2)


class EagleTask:
    def __init__(self, data: Data, options) -> None:
        target = data.target
        if not 1 <= options.unroll <= 16:
            raise ValueError(f"--unroll {options.unroll}: must be 1 to 16")
        self.options = options
        self.kind = options.kind
        self.device = torch.device(options.device)
        self.layers = feature_layers(options.layers, target.layers)
        self.shape = target.shape
        self.top_layer = target.layers
        self.short = data.short
        source = options.from_layer if options.from_layer >= 0 else target.layers - 1
        self.module = EagleModel(target.shape, target.layer(source), target.output_norm,
                                 len(self.layers))
        self.embedding = target.embedding().to(self.device, self.kind)
        self.head = target.head(data.short.tokens).to(self.device, self.kind)
        self.head_exact = target.head(data.short.tokens).to(self.device)
        self.target_norm = target.output_norm.to(self.device)

    def describe(self) -> dict:
        return {"part": "eagle", "layers": 1, **self.shape.described(), "feature_layers": self.layers,
                "unroll": self.options.unroll, "tokens": self.short.tokens.tolist()}

    def _outputs(self, batch: Batch, steps: int) -> list[torch.Tensor]:
        states = torch.cat([batch.hidden[layer] for layer in self.layers or [self.top_layer]], -1)
        context = Context(self.shape, batch.positions, batch.segments, self.kind)
        return self.module(self.embedding[batch.tokens], states, context, batch.positions,
                           batch.segments, steps)

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        count = max(1, len(batch.rows))
        total = torch.zeros((), device=self.device)
        measures = {}
        for step, output in enumerate(self._outputs(batch, self.options.unroll), 1):
            normed = self.module.output_norm(batch.at_rows(output))
            loss, hits = distil(normed, self.head, batch.ids, batch.mass, "drop")
            total = total + loss / count
            measures |= {f"kl_{step}": loss.item() / count, f"top1_{step}": hits.item() / count}
            if self.layers or not self.options.feature_weight:
                continue
            wanted = rms_norm(batch.at_rows(batch.hidden[self.top_layer]).float(),
                              self.target_norm, self.shape.epsilon)
            distance = feature_loss(normed, wanted) / count
            measures[f"feature_{step}"] = distance.item()
            total = total + self.options.feature_weight * distance
        return total, measures

    @torch.no_grad()
    def evaluate(self, batches) -> dict[str, dict[str, float]]:
        """Chains of each place of the held-out answers: a chain's later tokens are teacher forced,
        and count only while all before them were right, as in use."""
        figures, accepted, chains = Figures(), torch.zeros(CHAIN), 0
        for batch in batches:
            batch = batch.to(self.device)
            place = torch.full((batch.segments.numel() + CHAIN,), -1, dtype=torch.int64,
                               device=self.device)
            place[batch.rows] = torch.arange(len(batch.rows), device=self.device)
            owners = batch.owners()
            alive = torch.ones(len(batch.rows), dtype=torch.bool, device=self.device)
            whole = place[batch.rows + CHAIN - 1]
            alive &= (whole >= 0) & (owners == owners[whole.clamp(min=0)])
            chains += int(alive.sum())
            for step, output in enumerate(self._outputs(batch, CHAIN)):
                found = judge(self.module.output_norm(batch.at_rows(output)), self.head_exact,
                              batch.ids)
                if step == 0:
                    figures.add("all", found, owners, batch.sources)
                hit = found["top1"].bool()[place[batch.rows + step].clamp(min=0)]
                alive = alive & hit
                accepted[step] += alive.sum().cpu()
        rows = figures.rows()
        share = (accepted / max(1, chains)).tolist()
        return rows | {"all": rows["all"] | {
            "acceptance_length": 1 + sum(share),
            **{f"accepted_{step + 1}": value for step, value in enumerate(share)}}}


def run(options) -> int:
    loop.prepare(options)
    data = Data(options, [LAST, *feature_layers(options.layers, 1 << 10)])
    task = EagleTask(data, options)
    weights = sum(p.numel() for p in task.module.parameters())
    reads = f"states after layers {options.layers}" if task.layers else "the last states"
    print(f"eagle: one layer over {reads}, {weights} weights, {len(data.answers)} answers to learn "
          f"from, {len(data.heldout)} held out", file=sys.stderr)
    figures = loop.train(task, data, options)
    loop.print_table(figures, "held-out answers")
    return 0
