"""Writes answer shards as `paceline generate` does, from random numbers; shared by tests."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

TARGET = "00112233445566ff"


def random_answers(rng: np.random.Generator, count: int, vocab: int, prompt: int = 5,
                   longest: int = 40) -> list[dict]:
    """Answers of random tokens: {tokens, prompt_tokens, prompt_index, finish}."""
    return [{"tokens": rng.integers(0, vocab, int(rng.integers(prompt + 1, longest))),
             "prompt_tokens": int(rng.integers(1, prompt + 1)), "prompt_index": i,
             "finish": int(rng.integers(0, 2))} for i in range(count)]


def write_shard(path: Path, answers: list[dict], vocab: int, hidden: tuple[int, ...] = (),
                top: int = 4, dim: int = 6, **changes) -> dict[str, np.ndarray]:
    """The tensors that were written. Token i+1 is the likeliest behind i; the last row is unknown.

    `changes` replace tensors, or leave them out where they are None.
    """
    rng = np.random.default_rng(7)
    tokens = np.concatenate([a["tokens"] for a in answers]).astype(np.int32)
    begins = np.cumsum([0] + [len(a["tokens"]) for a in answers]).astype(np.int64)
    ids = rng.integers(0, vocab, (len(tokens), top)).astype(np.int32)
    ids[:-1, 0] = tokens[1:]
    for answer, begin, end in zip(answers, begins, begins[1:]):
        ids[begin:begin + answer["prompt_tokens"] - 1] = -1
        ids[end - 1] = -1
    logprob = -np.sort(rng.random((len(tokens), top)), axis=1).astype(np.float16) - np.float16(1)
    tensors = {
        "tokens": tokens, "begins": begins, "top_ids": ids, "top_logprob": logprob,
        "prompt_tokens": np.array([a["prompt_tokens"] for a in answers], np.int32),
        "prompt_index": np.array([a["prompt_index"] for a in answers], np.int32),
        "finish": np.array([a["finish"] for a in answers], np.int32),
        **{f"hidden.{layer}": (rng.standard_normal((len(tokens), dim)) * layer).astype(np.float16)
           for layer in hidden}}
    metadata = {"paceline.format": "answers-1", "paceline.target": TARGET,
                "vocab_size": str(vocab)} | changes.pop("metadata", {})
    tensors = {name: value for name, value in (tensors | changes).items() if value is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata)
    return tensors
