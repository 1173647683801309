"""What a part is trained towards, and how well it does: both against the target's own top K.

    short = ShortList(tokens, vocab_size)
    ids, mass = short.targets(top_ids, top_logprob)     of some rows
    loss, hits = distil(x, head, ids, mass)             KL, summed over the rows; differentiable
    judge(x, head, ids)                                 top-1, top-4, confidence of each row

Distributions are at temperature 1. Mass that is not among the target's K tokens or not on the
short list is left out (rest="drop": the rest is renormalised and the row counts by its mass) or
is one bucket against the same bucket of the head (rest="bucket"). The logits of a row exist only
while its chunk is at work: the gradient is made in the forward pass.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch.autograd import Function
from torch.nn import functional

CHUNK_ROWS = 512
REST_MIN = 1e-3  # of a head's rest: below it lies the rounding of bfloat16
CONFIDENT = 0.75


class ShortList:
    """The tokens that a head can say, ascending, and their places in it."""

    def __init__(self, tokens: np.ndarray, vocab_size: int) -> None:
        tokens = np.asarray(tokens, np.int64)
        if not len(tokens) or (np.diff(tokens) <= 0).any() or tokens[0] < 0 \
                or tokens[-1] >= vocab_size:
            raise ValueError(f"a short list of {len(tokens)} tokens that does not ascend within "
                             f"0 to {vocab_size - 1}")
        self.tokens = tokens
        self.places = torch.full((vocab_size + 1,), -1, dtype=torch.int64)
        self.places[tokens] = torch.arange(len(tokens))

    def __len__(self) -> int:
        return len(self.tokens)

    def targets(self, top_ids: torch.Tensor,
                top_logprob: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Places on the list (-1: not on it) and probabilities (0 there), both [rows, K]."""
        ids = self.places[top_ids]  # id -1 is the last entry of places: not on the list
        return ids, top_logprob.float().exp().masked_fill_(ids < 0, 0.0)


class _Distil(Function):
    @staticmethod
    def forward(ctx, x, head, ids, mass, bucket, bias):
        grad = torch.empty_like(x)
        d_head = torch.zeros_like(head) if ctx.needs_input_grad[1] else None
        matrix = head.to(x.dtype)
        loss, hits = 0.0, 0
        for first in range(0, len(x), CHUNK_ROWS):
            rows = slice(first, first + CHUNK_ROWS)
            places, p = ids[rows].clamp(min=0), mass[rows]
            logits = x[rows] @ matrix.T
            if bias is not None:
                logits += bias.to(x.dtype)
            best = logits.amax(-1)
            hits += ((logits.gather(1, places[:, :1])[:, 0] >= best) & (ids[rows, 0] >= 0)).sum()
            d_logits = torch.softmax(logits, -1)
            q = d_logits.gather(1, places).float()
            known = p.sum(-1, keepdim=True)
            if bucket:
                rest = (1 - known).clamp_(min=0)
                q_rest = (1 - q.masked_fill(ids[rows] < 0, 0.0).sum(-1, keepdim=True)).clamp_(
                    min=REST_MIN)
                scale = 1 - rest / q_rest
                loss += torch.xlogy(rest, rest / q_rest).sum()
            else:
                scale = known
            loss += (torch.xlogy(p, p) - p * q.clamp_(min=1e-30).log()).sum()
            if not bucket:
                loss -= torch.xlogy(known, known).sum()
            d_logits *= scale.to(x.dtype)
            fix = -p + (q * (1 - scale)).masked_fill_(ids[rows] < 0, 0.0) if bucket else -p
            d_logits.scatter_add_(1, places, fix.to(x.dtype))
            grad[rows] = d_logits @ matrix
            if d_head is not None:
                d_head += (d_logits.T @ x[rows]).to(head.dtype)
        ctx.save_for_backward(grad, d_head)
        ctx.mark_non_differentiable(hits)
        return loss, hits

    @staticmethod
    def backward(ctx, d_loss, _):
        grad, d_head = ctx.saved_tensors
        d_head = None if d_head is None else d_head * d_loss
        return grad * d_loss, d_head, None, None, None, None


def distil(x, head, ids, mass, rest="drop", bias=None):
    """KL(target | head) summed over rows, and how many rows' first tokens agree.

    x [rows, dim]: what the head [short list, dim] is multiplied with; ids, mass: of targets();
    bias [short list]: added to the logits.
    """
    return _Distil.apply(x, head, ids, mass, rest == "bucket", bias)


def feature_loss(x, wanted):
    """Smooth L1 between normalised last hidden states, summed over rows, mean over dims."""
    return functional.smooth_l1_loss(x.float(), wanted.float(), reduction="sum") / x.shape[-1]


@torch.no_grad()
def judge(x: torch.Tensor, head: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """For each row: whether the target's first token is the head's first ("top1"), among its
    first four ("top4"), and the head's confidence in its own first. In float32."""
    parts = []
    for first in range(0, len(x), CHUNK_ROWS):
        rows = slice(first, first + CHUNK_ROWS)
        logits = x[rows].float() @ head.float().T
        values, places = logits.topk(min(4, logits.shape[1]), -1)
        confidence = (values[:, 0] - logits.logsumexp(-1)).exp()
        agrees = places == ids[rows, :1]
        parts.append((agrees[:, 0], agrees.any(-1), confidence))
    if not parts:
        empty = torch.zeros(0)
        return {"top1": empty.bool(), "top4": empty.bool(), "confidence": empty}
    return dict(zip(("top1", "top4", "confidence"), map(torch.cat, zip(*parts))))


def table_row(judged: dict[str, torch.Tensor]) -> dict[str, float]:
    """The figures of the report: shares of all rows, and right among the confident."""
    sure = judged["confidence"] > CONFIDENT
    count = max(1, len(sure))
    return {
        "positions": len(sure),
        "top1": float(judged["top1"].sum()) / count,
        "top4": float(judged["top4"].sum()) / count,
        "confident": float(sure.sum()) / count,
        "right_if_confident": float(judged["top1"][sure].sum()) / max(1, int(sure.sum())),
    }


class Figures:
    """Judged rows of several heads, together and by the source of their prompts."""

    def __init__(self) -> None:
        self.judged: dict[str, list[dict[str, torch.Tensor]]] = {}

    def add(self, name: str, judged: dict[str, torch.Tensor], owners: torch.Tensor,
            sources: list[str]) -> None:
        """owners: for each judged row the index of its answer, sources: those of the answers."""
        judged = {key: values.cpu() for key, values in judged.items()}
        self.judged.setdefault(name, []).append(judged)
        owners = owners.cpu()
        for source in sorted(set(filter(None, sources))):
            mine = torch.tensor([s == source for s in sources])[owners]
            self.judged.setdefault(f"{name} {source}", []).append(
                {key: values[mine] for key, values in judged.items()})

    def rows(self) -> dict[str, dict[str, float]]:
        """{"NAME" or "NAME SOURCE": its figures}."""
        return {name: table_row({key: torch.cat([part[key] for part in parts])
                                 for key in parts[0]})
                for name, parts in sorted(self.judged.items())}


@dataclass
class VerifyBatches:
    """What batches with chains of `chain` guesses would have done to some answers."""

    chain: int = 8
    batches: int = 0
    committed: int = 0
    accepted: np.ndarray = field(init=False)  # [j]: batches whose guess at place j was accepted

    def __post_init__(self) -> None:
        self.accepted = np.zeros(self.chain, np.int64)

    def add(self, agrees: np.ndarray) -> None:
        """One answer. agrees[i]: given the text up to position i, the draft's guess is the
        target's token. A batch accepts the run of right guesses from its position on and commits
        one token more, the target's own; the next begins behind these."""
        at = 0
        while at < len(agrees):
            window = agrees[at:at + self.chain]
            wrong = np.flatnonzero(~window)
            run = int(wrong[0]) if len(wrong) else len(window)
            self.accepted[:run] += 1
            self.committed += min(run + 1, len(agrees) - at)
            self.batches += 1
            at += run + 1

    def figures(self) -> dict[str, float]:
        """Mean acceptance length (the target's own token included), and by place."""
        batches = max(self.batches, 1)
        return {"acceptance_length": self.committed / batches,
                **{f"accepted_{j + 1}": int(self.accepted[j]) / batches
                   for j in range(self.chain)}}
