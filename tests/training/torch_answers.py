"""Answer shards of a tiny model for the tests: what `paceline generate` would leave, computed by
the training package's own layers in float32."""

from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from paceline_training.modules import Context, DraftModel
from paceline_training.target import Target

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "fixtures" / "models"
FINGERPRINT = "0123456789abcdef"


def whole(target: Target) -> DraftModel:
    """All layers of the target, as a draft."""
    return DraftModel(target.shape, [target.layer(i) for i in range(target.layers)],
                      target.output_norm).eval()


@torch.no_grad()
def residuals(target: Target, tokens: torch.Tensor) -> list[torch.Tensor]:
    """What stands behind 0, 1, ... layers for one text."""
    positions = torch.arange(len(tokens))[None]
    context = Context(target.shape, positions, torch.ones_like(positions), torch.float32)
    states = [target.embedding()[tokens][None]]
    for layer in whole(target).layers:
        states.append(layer(states[-1], context))
    return [state[0] for state in states]


@torch.no_grad()
def write_shard(folder: Path, target: Target, texts: list[np.ndarray], prompt: int, top: int,
                first_index: int = 0) -> None:
    """One shard with the given texts as answers, `prompt` tokens of each being the prompt."""
    head = target.head(np.arange(target.vocab_size))
    ids, logprob, hidden = [], [], [[] for _ in range(target.layers + 1)]
    for text in texts:
        states = residuals(target, torch.from_numpy(text).long())
        normed = whole(target).output_norm(states[-1])
        best = (normed @ head.T).log_softmax(-1).topk(top, -1)
        known = np.arange(len(text)) >= prompt - 1
        ids.append(np.where(known[:, None], best.indices.numpy(), -1).astype(np.int32))
        logprob.append(np.where(known[:, None], best.values.numpy(), 0).astype(np.float16))
        for layer, state in enumerate(states):
            hidden[layer].append(state.numpy().astype(np.float16))
    lengths = [len(text) for text in texts]
    tensors = {
        "tokens": np.concatenate(texts).astype(np.int32),
        "begins": np.cumsum([0, *lengths]).astype(np.int64),
        "prompt_tokens": np.full(len(texts), prompt, np.int32),
        "prompt_index": np.arange(first_index, first_index + len(texts), dtype=np.int32),
        "finish": np.ones(len(texts), np.int32),
        "top_ids": np.concatenate(ids),
        "top_logprob": np.concatenate(logprob),
        **{f"hidden.{layer}": np.concatenate(hidden[layer])
           for layer in range(1, target.layers + 1)},
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "shard-00000.safetensors", metadata={
        "paceline.format": "answers-1", "paceline.target": FINGERPRINT, "seed": "1",
        "temperature": "0", "vocab_size": str(target.vocab_size)})


def random_texts(target: Target, count: int, seed: int, length: int = 48) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(0, target.vocab_size, int(n))
            for n in random.integers(length // 2, length + 1, count)]


def make_answers(folder: Path, model: str = "tiny-chat", answers: int = 60) -> Path:
    """folder/train and folder/heldout; returns the model's path."""
    path = MODELS / f"{model}.gguf"
    target = Target(path)
    write_shard(folder / "train", target, random_texts(target, answers, 1), 8, 8)
    write_shard(folder / "heldout", target, random_texts(target, 12, 2), 8, 8)
    return path
