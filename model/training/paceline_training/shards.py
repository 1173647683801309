"""Answers of the target, as `paceline generate` writes them, and what a training loop reads.

    shards = Shards([folder, ...], hidden=[20, 30])     every shard-*.safetensors of the folders
    for answer in shards.answers: ...                   tokens, targets, weights, hidden(layer)
    for sequence in pack(shards.answers, 512, seed=1):  answers side by side in fixed lengths

Position i of an answer holds token i, the distribution of the token behind it (top_ids,
top_logprob) and the residuals of its row. It has weight 1 if that distribution is the target's
opinion about the answer: from the prompt's last token on, as far as something was computed, and
not inside a loop. Everything is memory-mapped and read-only; Sequences copy when they are asked.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from .tensor_map import TensorMap

FORMAT = "answers-1"
LOOP_GRAM = 20  # so many tokens that come again are a round of a loop
LOOP_ROUNDS = 2  # rounds that may be learnt from
OPEN_SEQUENCES = 64  # half-filled sequences that an answer may join

_MIX = np.random.default_rng(20).integers(1, 2**63, LOOP_GRAM, dtype=np.uint64) * 2 + 1


def loop_begin(tokens: np.ndarray) -> int:
    """Where a LOOP_GRAM-gram begins that stands there for the third time; else len(tokens)."""
    if len(tokens) < LOOP_GRAM + LOOP_ROUNDS:
        return len(tokens)
    windows = np.lib.stride_tricks.sliding_window_view(tokens.astype(np.uint64), LOOP_GRAM)
    hashes = (windows * _MIX).sum(axis=1, dtype=np.uint64)
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    if counts.max() <= LOOP_ROUNDS:
        return len(tokens)
    order = np.argsort(inverse, kind="stable")  # by gram, then by place
    ends = np.cumsum(counts)
    return int(min(order[end - count + LOOP_ROUNDS]
                   for end, count in zip(ends, counts) if count > LOOP_ROUNDS))


@dataclass
class Answer:
    """A prompt and what the target said to it. The arrays are views of the shard's map."""

    tokens: np.ndarray  # int32 [n]
    prompt_tokens: int
    prompt_index: int
    top_ids: np.ndarray  # int32 [n, K], best first; -1: not known
    top_logprob: np.ndarray  # float16 [n, K]
    finished: bool  # at an end token or stop, not at a limit
    residuals: dict[int, np.ndarray] = field(default_factory=dict)  # layer: float16 [n, dim]
    source: str = ""  # of the prompt, where the folder has a prompts.jsonl

    def __len__(self) -> int:
        return len(self.tokens)

    def hidden(self, layer: int) -> np.ndarray:
        """The residual behind so many layers: float16 [n, dim]."""
        return self.residuals[layer]

    @cached_property
    def weights(self) -> np.ndarray:
        """float32 [n]: 1 where the position is learnt from, else 0."""
        weights = (self.top_ids[:, 0] >= 0).astype(np.float32)
        weights[:max(0, self.prompt_tokens - 1)] = 0
        weights[self.prompt_tokens + loop_begin(self.tokens[self.prompt_tokens:]):] = 0
        return weights

    @cached_property
    def useful_length(self) -> int:
        """Up to the last position that has weight; what follows teaches nothing."""
        used = np.flatnonzero(self.weights)
        return int(used[-1]) + 1 if len(used) else 0


class Shards:
    """The answers of all shards below some folders, in the order of folders, files and answers."""

    def __init__(self, folders: Iterable[Path], hidden: Iterable[int] = (),
                 limit_tokens: int = 0) -> None:
        """With limit_tokens, about so many tokens in all, an equal part from each folder.

        Raises ValueError for files that are damaged, of another target or without a layer of
        `hidden`.
        """
        folders = [Path(folder) for folder in folders]
        self.hidden_layers = sorted(set(hidden))
        self.answers: list[Answer] = []
        self.metadata: dict[str, str] = {}
        self.top = 0
        for folder in folders:
            self._read_folder(folder, limit_tokens // len(folders) if limit_tokens else 0)

    @property
    def target(self) -> str:
        """The fingerprint of the model that answered."""
        return self.metadata["paceline.target"]

    @property
    def vocab_size(self) -> int:
        return int(self.metadata["vocab_size"])

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(answer) for answer in self.answers], np.int64)

    def _read_folder(self, folder: Path, limit: int) -> None:
        paths = sorted(folder.glob("shard-*.safetensors"))
        if not paths:
            raise ValueError(f"{folder}: no shard-*.safetensors")
        sources = prompt_sources(folder)
        count = 0
        for path in paths:
            for answer in self._read_shard(path, sources):
                if limit and count >= limit:
                    return
                self.answers.append(answer)
                count += len(answer)

    def _check(self, shard: TensorMap, top: int) -> None:
        found = shard.metadata.get("paceline.format")
        if found != FORMAT:
            raise ValueError(f"{shard.path}: paceline.format is {found!r}, not '{FORMAT}'")
        for key in ("paceline.target", "vocab_size"):
            if key not in shard.metadata:
                raise ValueError(f"{shard.path}: no '{key}' in its metadata")
            first = self.metadata.get(key, shard.metadata[key])
            if shard.metadata[key] != first:
                raise ValueError(f"{shard.path}: {key} is {shard.metadata[key]}, that of the "
                                 f"shards before it {first}")
        if self.top not in (0, top):
            raise ValueError(f"{shard.path}: {top} tokens a position, {self.top} before it")

    def _read_shard(self, path: Path, sources: list[str]) -> list[Answer]:
        shard = TensorMap(path)
        tokens = shard.tensor("tokens", "I32", 1)
        begins = shard.tensor("begins", "I64", 1)
        prompts = shard.tensor("prompt_tokens", "I32", 1)
        indices = shard.tensor("prompt_index", "I32", 1)
        finish = shard.tensor("finish", "I32", 1)
        ids = shard.tensor("top_ids", "I32", 2)
        logprob = shard.tensor("top_logprob", "F16", 2)
        layers = {layer: shard.tensor(f"hidden.{layer}", "F16", 2)
                  for layer in self.hidden_layers}
        self._check(shard, ids.shape[1])
        rows = [len(tokens), len(ids), len(logprob), *(len(rows) for rows in layers.values())]
        counts = [len(begins) - 1, len(prompts), len(indices), len(finish)]
        if len(set(rows)) != 1 or len(set(counts)) != 1:
            raise ValueError(f"{path}: its tensors do not belong together: rows {rows}, answers "
                             f"{counts}")
        if begins[0] != 0 or begins[-1] != len(tokens) or (np.diff(begins) <= 0).any():
            raise ValueError(f"{path}: begins does not go up from 0 to {len(tokens)}")
        self.metadata = self.metadata or shard.metadata
        self.top = ids.shape[1]
        answers = []
        for a, (first, last) in enumerate(zip(begins[:-1], begins[1:])):
            index = int(indices[a])
            answers.append(Answer(
                tokens[first:last], int(prompts[a]), index, ids[first:last], logprob[first:last],
                bool(finish[a] == 0),
                {layer: rows[first:last] for layer, rows in layers.items()},
                sources[index] if index < len(sources) else ""))
        return answers


def prompt_sources(folder: Path) -> list[str]:
    """The sources of the prompts that a folder's prompt_index counts; empty where unknown."""
    from .prompts import read_rows  # keeps this module free of what only `data` needs

    path = folder / "prompts.jsonl"
    return [row.get("source", "") for row in read_rows(path)] if path.is_file() else []


class Sequence:
    """Answers side by side in `length` positions. Every property makes a new array."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.parts: list[tuple[Answer, int]] = []  # with the positions taken of each
        self.used = 0

    def add(self, answer: Answer, take: int) -> None:
        self.parts.append((answer, take))
        self.used += take

    def _joined(self, pieces: Iterable[np.ndarray], shape: tuple, kind: type,
                padding: int) -> np.ndarray:
        out = np.full((self.length, *shape), padding, kind)
        at = 0
        for piece in pieces:
            out[at:at + len(piece)] = piece
            at += len(piece)
        return out

    @property
    def tokens(self) -> np.ndarray:
        """int64 [length]; 0 behind the last answer."""
        return self._joined((a.tokens[:n] for a, n in self.parts), (), np.int64, 0)

    @property
    def positions(self) -> np.ndarray:
        """int64 [length]: from 0 in each answer."""
        return self._joined((np.arange(n) for _, n in self.parts), (), np.int64, 0)

    @property
    def segments(self) -> np.ndarray:
        """int64 [length]: 1 for the first answer and so on, 0 for padding."""
        return self._joined((np.full(n, s) for s, (_, n) in enumerate(self.parts, 1)), (),
                            np.int64, 0)

    @property
    def weights(self) -> np.ndarray:
        """float32 [length]; 0 for padding."""
        return self._joined((a.weights[:n] for a, n in self.parts), (), np.float32, 0)

    @property
    def top_ids(self) -> np.ndarray:
        """int64 [length, K]; -1 for padding and wherever a distribution is not known."""
        top = self.parts[0][0].top_ids.shape[1]
        return self._joined((a.top_ids[:n] for a, n in self.parts), (top,), np.int64, -1)

    @property
    def top_logprob(self) -> np.ndarray:
        """float32 [length, K]; 0 for padding."""
        top = self.parts[0][0].top_ids.shape[1]
        return self._joined((a.top_logprob[:n] for a, n in self.parts), (top,), np.float32, 0)

    @property
    def hidden(self) -> dict[int, np.ndarray]:
        """{layer: float16 [length, dim]} of the layers that the shards were opened with."""
        return {layer: self._joined((a.hidden(layer)[:n] for a, n in self.parts),
                                    rows.shape[1:], np.float16, 0)
                for layer, rows in self.parts[0][0].residuals.items()}


def pack(answers: Iterable[Answer], length: int, seed: int) -> list[Sequence]:
    """The answers in the order of `seed`, each in one sequence, cut at `length` or at its loop.

    An answer joins the fullest of the last OPEN_SEQUENCES sequences that has room for it; one
    without any weight before its cut is left out.
    """
    answers = list(answers)
    opened: list[Sequence] = []
    packed: list[Sequence] = []
    for index in np.random.default_rng(seed).permutation(len(answers)):
        answer = answers[index]
        take = min(answer.useful_length, length)
        if not take or not answer.weights[:take].any():
            continue
        room = [s for s in opened if s.used + take <= length]
        sequence = max(room, key=lambda s: s.used) if room else Sequence(length)
        if not room:
            packed.append(sequence)
            opened.append(sequence)
            if len(opened) > OPEN_SEQUENCES:
                opened.remove(max(opened, key=lambda s: s.used))
        sequence.add(answer, take)
    return packed
