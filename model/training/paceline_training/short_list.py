"""The short list of a head: the tokens that the target says most often, and those it must be able
to say. A token that is not on it can never be guessed, so coverage bounds what a part may reach.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from .shards import Answer, Shards

ROWS_AT_ONCE = 1 << 16


def byte_alphabet() -> set[str]:
    """The 256 characters that stand for single bytes in a byte-level vocabulary (GPT-2's)."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return {chr(byte) for byte in printed} | {chr(256 + i) for i in range(256 - len(printed))}


def always_kept(model: Path) -> list[int]:
    """Tokens of a GGUF file that every short list has: single bytes and ends of an answer."""
    from gguf import GGUFReader

    fields = GGUFReader(model).fields
    if "tokenizer.ggml.tokens" not in fields:
        raise ValueError(f"{model}: no tokenizer.ggml.tokens")
    alphabet = byte_alphabet() | {f"<0x{byte:02X}>" for byte in range(256)}
    kept = {token for token, text in enumerate(fields["tokenizer.ggml.tokens"].contents())
            if text in alphabet}
    for name in ("eos", "eot", "eom"):
        entry = fields.get(f"tokenizer.ggml.{name}_token_id")
        if entry is not None:
            kept.add(int(entry.contents()))
    return sorted(kept)


def _batches(answers: Iterable[Answer]) -> Iterable[list[Answer]]:
    batch, rows = [], 0
    for answer in answers:
        batch.append(answer)
        rows += len(answer)
        if rows >= ROWS_AT_ONCE:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch


def token_mass(shards: Shards) -> np.ndarray:
    """float64 [vocab]: how often the target would say each token at the positions with weight.

    The sum of its probabilities, which counts with less noise than what it happened to say.
    """
    mass = np.zeros(shards.vocab_size)
    for batch in _batches(shards.answers):
        used = [answer.weights > 0 for answer in batch]
        ids = np.concatenate([a.top_ids[u] for a, u in zip(batch, used)])
        shares = np.exp(np.concatenate([a.top_logprob[u] for a, u in zip(batch, used)],
                                       dtype=np.float64))
        known = ids >= 0
        mass += np.bincount(ids[known], shares[known], minlength=len(mass))
    return mass


def token_list(shards: Shards, size: int, keep: Iterable[int] = ()) -> np.ndarray:
    """int32 [size], ascending: `keep`, the tokens that ended answers, and the commonest others.

    `keep` is always_kept(model). Tokens that were never seen fill up the end, lowest id first.
    """
    mass = token_mass(shards)
    kept = np.array(sorted({*keep, *(int(a.tokens[-1]) for a in shards.answers if a.finished)}),
                    np.int64)
    if not len(kept) <= size <= len(mass):
        raise ValueError(f"a short list of {size} tokens: {len(kept)} are always on it, and the "
                         f"vocabulary has {len(mass)}")
    mass[kept] = np.inf
    return np.sort(np.argsort(-mass, kind="stable")[:size]).astype(np.int32)


def coverage(shards: Shards, tokens: np.ndarray) -> float:
    """Share of the positions with weight whose likeliest next token is on the list."""
    listed = np.zeros(shards.vocab_size, bool)
    listed[tokens] = True
    hits = total = 0
    for answer in shards.answers:
        best = answer.top_ids[answer.weights > 0, 0]
        hits += int(listed[best].sum())
        total += len(best)
    if not total:
        raise ValueError("no position with weight in these shards")
    return hits / total
