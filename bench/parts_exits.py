"""How often exits say what the target said: the part of bench/parts.py that needs PyTorch.

    parts_exits.py MODEL PARTS ANSWERS...      in the environment of model/training/setup

PARTS is a folder with heads.safetensors, adapter.safetensors or both; each of ANSWERS is a folder
of `paceline generate --hidden` with the residuals after the layers of all exits in it. Prints a
list, for each of ANSWERS {exit: {"all": FIGURES, "no loops": FIGURES, "lens": FIGURES}}. A position
is one that the target answered at, its prompt's last one included; right is the token that it drew
there.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors import safe_open

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "model" / "training"))
from paceline_training.losses import ShortList, judge, table_row  # noqa: E402
from paceline_training.modules import Adapter, Context, THead  # noqa: E402
from paceline_training.shards import Shards  # noqa: E402
from paceline_training.target import Target, permute_rows  # noqa: E402

LOOP = 20  # a run of so many tokens that was there before


def loops(answer) -> bool:
    said = answer.tokens[answer.prompt_tokens:].tolist()
    runs = [tuple(said[i:i + LOOP]) for i in range(len(said) - LOOP + 1)]
    return len(set(runs)) < len(runs)


class Part:
    """The tensors of a part file, as numbers."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, "np") as file:
            self.metadata = file.metadata()
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}

    def tensor(self, name: str) -> torch.Tensor:
        values = self.tensors[name]
        kind = self.metadata.get(f"type.{name}")
        if kind:
            values = gguf.quants.dequantize(values, gguf.GGMLQuantizationType[kind])
        return torch.from_numpy(np.array(values, np.float32))

    def numbers(self, prefix: str) -> list[int]:
        return sorted(int(key.split(".")[1]) for key in self.metadata
                      if key.startswith(f"{prefix}."))


class HeadExit:
    """A T head of the file; without a name a logit lens on the same short list."""

    def __init__(self, target: Target, part: Part, name: str = "") -> None:
        norm_first = part.metadata.get("norm_first") == "1"
        self.head = THead(target.output_norm, target.shape.epsilon, norm_first)
        if name:
            self.head.load_state_dict({"transform": part.tensor(f"{name}.transform")})

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.head(hidden)


class AdapterExit:
    def __init__(self, target: Target, part: Part, layer: int) -> None:
        self.shape = target.shape.with_kv_heads(int(part.metadata["kv_heads"]))
        names = ("attn_norm", "q", "k", "v", "attn_out", "out_norm")
        tensors = {name: part.tensor(f"adapter.{layer}.{name}") for name in names}
        for name, heads in (("q", self.shape.heads), ("k", self.shape.kv_heads)):
            tensors[name] = permute_rows(tensors[name], heads, self.shape.rope_dims)
        self.adapter = Adapter(self.shape, tensors, tensors["out_norm"])

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(len(hidden))[None]
        context = Context(self.shape, positions, torch.ones_like(positions), torch.float32)
        return self.adapter(hidden[None], context)[0]


class Exit:
    """What stands after a layer, its logit lens, and the head of its short list. It is judged by
    the token `ahead` places after the next one."""

    def __init__(self, target: Target, part: Part, layer: int, module, ahead: int = 0) -> None:
        self.layer, self.module, self.ahead = layer, module, ahead
        self.lens = HeadExit(target, part)
        tokens = part.tensors["tokens"]
        self.short = ShortList(tokens, target.vocab_size)
        self.head = target.head(tokens)

    def judged(self, answer, module) -> dict[str, torch.Tensor]:
        hidden = torch.from_numpy(answer.hidden(self.layer).astype(np.float32))
        rows = slice(answer.prompt_tokens - 1, len(answer) - 1 - self.ahead)
        said = torch.from_numpy(
            answer.tokens[answer.prompt_tokens + self.ahead:].astype(np.int64))
        return judge(module(hidden)[rows], self.head, self.short.places[said][:, None])

    def figures(self, answers: list) -> dict[str, dict[str, float]]:
        judged = [self.judged(answer, self.module) for answer in answers]
        bare = [row for row, answer in zip(judged, answers) if not loops(answer)]
        lens = [self.judged(answer, self.lens) for answer in answers]
        return {"all": joined(judged), "no loops": joined(bare), "lens": joined(lens)}


def joined(judged: list[dict[str, torch.Tensor]]) -> dict[str, float]:
    nothing = judge(torch.zeros(0, 1), torch.zeros(1, 1), torch.zeros(0, 1))
    return table_row({key: torch.cat([row[key] for row in (nothing, *judged)])
                      for key in nothing})


def exits_of(target: Target, folder: Path) -> dict[str, Exit]:
    """By name, in the order of their layers."""
    found = []
    if (folder / "heads.safetensors").is_file():
        part = Part(folder / "heads.safetensors")
        found += [(layer, f"T head after {layer}",
                   Exit(target, part, layer, HeadExit(target, part, f"exit.{layer}")))
                  for layer in part.numbers("exit")]
        found += [(target.layers, f"{ahead} ahead",
                   Exit(target, part, target.layers, HeadExit(target, part, f"ahead.{ahead}"),
                        ahead))
                  for ahead in part.numbers("ahead")]
    if (folder / "adapter.safetensors").is_file():
        part = Part(folder / "adapter.safetensors")
        found += [(layer, f"adapter after {layer}",
                   Exit(target, part, layer, AdapterExit(target, part, layer)))
                  for layer in part.numbers("adapter")]
    return {name: made for _, name, made in sorted(found, key=lambda row: row[:2])}


@torch.no_grad()
def main() -> int:
    torch.set_num_threads(1)
    target = Target(Path(sys.argv[1]))
    exits = exits_of(target, Path(sys.argv[2]))
    layers = {made.layer for made in exits.values()}
    report = []
    for folder in sys.argv[3:]:
        answers = Shards([Path(folder)], layers).answers
        report.append({name: made.figures(answers) for name, made in exits.items()})
    json.dump(report, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
