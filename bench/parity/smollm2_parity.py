#!/usr/bin/env python3
"""Golden logits of a real GGUF of the llama family (SmolLM2), from transformers in float32.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install -r tests/fixtures/models/requirements.txt
    /tmp/venv/bin/python bench/parity/smollm2_parity.py -m MODEL.gguf -o /tmp/smollm2
    build/release/bench/parity/paceline_parity logits -m MODEL.gguf --golden /tmp/smollm2

Every tensor is de-quantised with the gguf package and put into a float32 LlamaForCausalLM
(transformers' own GGUF reader keeps weights packed and rounds activations, so it is no oracle).
q and k lie in the file with the two dimensions of a rotating pair as neighbours; transformers
pairs the halves of a head, so their rows are put back in that order.

Writes STEM.golden.json and STEM.golden.f32 in the format of tests/fixtures/models. With
--lora PART a LoRA (docs/trained-parts.md) is merged into the weights first, by PyTorch. With
--perplexity it also prints the oracle's perplexity over the same text and windows as
`paceline_parity perplexity`.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from safetensors import safe_open
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fixtures/models"))
from gguf_export import gguf_name  # noqa: E402: found through the line above

DEFAULT_TEXT = Path("/usr/share/common-licenses/GPL-3")  # part of every Debian system
CONTINUATION_TOKENS = 32


class File:
    """A GGUF's keys by name, and its tensors as float32."""

    def __init__(self, path: Path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        architecture = self.key("general.architecture")
        if architecture != "llama" or "rope_freqs.weight" in self.tensors:
            raise SystemExit(f"{path}: only the llama architecture without rope scaling is known")

    def key(self, name: str, default=None):
        found = self.reader.get_field(name)
        return default if found is None else found.contents()

    def tensor(self, name: str) -> np.ndarray:
        stored = self.tensors[name]
        return gguf.quants.dequantize(stored.data, stored.tensor_type).astype(np.float32)


def config_of(file: File) -> transformers.LlamaConfig:
    return transformers.LlamaConfig(
        vocab_size=len(file.key("tokenizer.ggml.tokens")),
        hidden_size=file.key("llama.embedding_length"),
        intermediate_size=file.key("llama.feed_forward_length"),
        num_hidden_layers=file.key("llama.block_count"),
        num_attention_heads=file.key("llama.attention.head_count"),
        num_key_value_heads=file.key("llama.attention.head_count_kv"),
        max_position_embeddings=file.key("llama.context_length"),
        rms_norm_eps=file.key("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": file.key("llama.rope.freq_base")},
        tie_word_embeddings="output.weight" not in file.tensors,
        attn_implementation="eager",
    )


def separate_heads(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows (2i, 2i + 1) of each head move to (i, i + head_dim/2): interleave_heads() undone."""
    head_dim = weight.shape[0] // heads
    split = weight.reshape(heads, head_dim // 2, 2, weight.shape[1])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(weight.shape))


class Lora:
    """What a part adds to the tensors of a file, in the file's order of rows."""

    def __init__(self, path: Path):
        with safe_open(path, "pt") as part:
            metadata = part.metadata()
            self.scale = float(metadata["alpha"]) / int(metadata["rank"])
            self.tensors = {name: part.get_tensor(name).double() for name in part.keys()}

    def added(self, name: str) -> np.ndarray | float:
        stem = name.removesuffix(".weight")
        if f"{stem}.lora_a" not in self.tensors:
            return 0.0
        product = self.tensors[f"{stem}.lora_b"] @ self.tensors[f"{stem}.lora_a"]
        return (self.scale * product).float().numpy()


def load_model(file: File, lora: Lora | None = None) -> transformers.LlamaForCausalLM:
    config = config_of(file)
    model = transformers.LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for hf_name, parameter in model.named_parameters():
            weight = file.tensor(gguf_name(hf_name))
            if lora:
                weight = weight + lora.added(gguf_name(hf_name))
            if "q_proj" in hf_name:
                weight = separate_heads(weight, config.num_attention_heads)
            if "k_proj" in hf_name:
                weight = separate_heads(weight, config.num_key_value_heads)
            if tuple(weight.shape) != tuple(parameter.shape):
                raise SystemExit(f"{hf_name}: {weight.shape} in the file, {parameter.shape} wanted")
            parameter.copy_(torch.from_numpy(weight))
    return model


def tokenizer_of(file: File) -> Tokenizer:
    """The tokenizers library on the file's tokens, pre-tokenizer "smollm"."""
    if file.key("tokenizer.ggml.pre") != "smollm":
        raise SystemExit(f"tokenizer.ggml.pre is {file.key('tokenizer.ggml.pre')}, not smollm")
    tokens = file.key("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in file.key("tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    kinds = file.key("tokenizer.ggml.token_type")
    control = [t for t, kind in zip(tokens, kinds) if kind == int(gguf.TokenType.CONTROL)]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    return tokenizer


def logits_of(model, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0]


def greedy_continuation(model, tokens: list[int]) -> tuple[list[int], float]:
    """As in make_tiny_models.py: the tokens, and the narrowest relative lead of a winner."""
    produced: list[int] = []
    margin = math.inf
    for _ in range(CONTINUATION_TOKENS):
        last = logits_of(model, tokens + produced)[-1].numpy()
        second, first = np.sort(last)[-2:]
        margin = min(margin, float((first - second) / np.abs(last).max()))
        produced.append(int(last.argmax()))
    return produced, margin


def write_golden(stem: Path, model, tokens: list[int], model_path: Path) -> None:
    logits = logits_of(model, tokens).numpy()
    continuation, margin = greedy_continuation(model, tokens)
    logits.astype("<f4").tofile(f"{stem}.golden.f32")
    golden = {
        "model": model_path.name,
        "oracle": f"transformers {transformers.__version__} {type(model).__name__}, float32",
        "vocab_size": logits.shape[1],
        "tokens": tokens,
        "argmax": [int(t) for t in logits.argmax(axis=1)],
        "continuation": continuation,
        "continuation_margin": margin,
    }
    Path(f"{stem}.golden.json").write_text(json.dumps(golden) + "\n")
    print(f"{stem}.golden.json, .golden.f32: {len(tokens)} tokens, margin {margin:.1e}")


def perplexity(model, tokens: list[int], window: int) -> float:
    """Windows side by side; every token of a window but its first is scored."""
    loss, scored = 0.0, 0
    for begin in range(0, len(tokens), window):
        part = tokens[begin : begin + window]
        if len(part) < 2:
            continue
        shares = torch.log_softmax(logits_of(model, part)[:-1].double(), dim=-1)
        loss -= float(shares.gather(1, torch.tensor(part[1:])[:, None]).sum())
        scored += len(part) - 1
    return math.exp(loss / scored)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", type=Path, required=True, help="GGUF file")
    parser.add_argument("--lora", type=Path, help="a LoRA part to merge")
    parser.add_argument("-o", "--out", type=Path, required=True, help="stem of the golden files")
    parser.add_argument("--text", type=Path, default=DEFAULT_TEXT, help="%(default)s")
    parser.add_argument("--tokens", type=int, default=48, help="of the text's start (%(default)s)")
    parser.add_argument("--perplexity", action="store_true", help="of the whole text")
    parser.add_argument("--window", type=int, default=512, help="of perplexity (%(default)s)")
    arguments = parser.parse_args()

    file = File(arguments.model)
    ids = tokenizer_of(file).encode(arguments.text.read_text(), add_special_tokens=False).ids
    model = load_model(file, Lora(arguments.lora) if arguments.lora else None)
    write_golden(arguments.out, model, ids[: arguments.tokens], arguments.model)
    if arguments.perplexity:
        start = time.monotonic()
        value = perplexity(model, ids, arguments.window)
        seconds = time.monotonic() - start
        print(f"perplexity {value:.6f} over {len(ids)} tokens of {arguments.text}, {seconds:.0f} s")


if __name__ == "__main__":
    main()
