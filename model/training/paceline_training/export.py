"""paceline-train export: the part files that `paceline run` loads, from the checkpoints of runs.

    paceline-train export --run RUN -o draft-small.safetensors --type q8_0
    paceline-train export --run EXITS --run AHEAD -o heads.safetensors
    paceline-train export --run LORA -o early-exit.safetensors

What kind of part it is follows from the run; heads and adapters of several runs go into one file
if they agree about the short list. The format is described in docs/trained-parts.md: safetensors
with metadata that names the target, quantised matrices as U8 rows in GGUF's block layouts, rows of
q and k in the order of the target's own file. A file is written under another name and renamed.
"""

import argparse
import os
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.numpy import save_file

from .ahead_tree import read_tree
from .lora import FUSED
from .rounding import ROUNDED
from .target import LAYER_NAMES, unpermute_rows

FORMAT = "parts-1"
QUANTISED = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_1": gguf.GGMLQuantizationType.Q4_1}
PLAIN = {"f32": np.float32, "f16": np.float16}
EAGLE_BYTES_MAX = 15_000_000
DEFAULT_TYPE = {"draft": "q8_0", "eagle": "q8_0", "heads": "f16", "adapter": "f16", "lora": "f16",
                "probe": "f32"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", type=Path, action="append", required=True, metavar="RUN",
        help="the folder of a run; heads, adapters and probes may come from several")
    add("-o", "--out", type=Path, required=True, metavar="FILE", help="the part file to write")
    add("--type", choices=[*QUANTISED, *PLAIN],
        help="of the matrices (what --quantise said in training; else drafts and residual heads "
        "q8_0, other heads and adapters f16)")
    add("--name", default="", help="what the part is called (the file's name)")
    add("--licence", default="Apache-2.0", help="of the part (%(default)s)")


class PartWriter:
    """Tensors and metadata of one file in the making."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rounded_in_training = False
        self.tensors: dict[str, np.ndarray] = {}
        self.metadata: dict[str, str] = {}
        self.errors: list[float] = []

    def vector(self, name: str, values: torch.Tensor) -> None:
        self.tensors[name] = values.detach().float().numpy().copy()

    def transform(self, name: str, values: torch.Tensor) -> None:
        """[dim, dim] in float16 whatever the file's type: it is small, and worth it."""
        self.tensors[name] = values.detach().half().numpy().copy()

    def matrix(self, name: str, values: torch.Tensor) -> None:
        """[outputs, inputs] in the type of the file.

        Raises ValueError where a quantised row would not be whole blocks.
        """
        values = values.detach().float()
        if self.rounded_in_training:
            # What was trained is these numbers; the quantiser below finds them again.
            values = ROUNDED[self.kind](values)
        exact = values.numpy()
        if self.kind in PLAIN:
            # A float16 saturates: what is beyond its range is a guess anyway, infinity is none.
            limit = np.finfo(PLAIN[self.kind]).max
            stored = np.clip(exact, -limit, limit).astype(PLAIN[self.kind])
            back = stored.astype(np.float32)
        else:
            block = gguf.GGML_QUANT_SIZES[QUANTISED[self.kind]][0]
            if exact.shape[1] % block:
                raise ValueError(f"tensor '{name}': {exact.shape[1]} inputs are no multiple of "
                                 f"{block}, as --type {self.kind} needs")
            stored = quantised(exact, self.kind)
            back = gguf.quants.dequantize(stored, QUANTISED[self.kind])
            self.metadata[f"type.{name}"] = self.kind.upper()
        self.errors.append(float(np.linalg.norm(back - exact) / max(np.linalg.norm(exact), 1e-30)))
        self.tensors[name] = stored

    def tokens(self, tokens: list[int]) -> None:
        self.tensors["tokens"] = np.array(tokens, np.int32)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        save_file({name: np.ascontiguousarray(t) for name, t in self.tensors.items()}, part,
                  metadata=self.metadata)
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)  # save_file() lets nobody else read
        os.replace(part, path)


def quantised(matrix: np.ndarray, kind: str) -> np.ndarray:
    """uint8 [outputs, bytes per row] in GGUF's blocks of 32."""
    if kind == "q4_1":
        return quantised_q4_1(matrix)
    return gguf.quants.quantize(matrix.astype(np.float32), QUANTISED[kind])


def quantised_q4_1(matrix: np.ndarray) -> np.ndarray:
    """Blocks of 32 as d, m (float16) and 32 numbers of 4 bits, value = d q + m.

    The ends of a block's range are pulled in by a few shares and d, m fitted by least squares;
    the best of these errs less than d and m from smallest and largest value alone.
    """
    outputs, inputs = matrix.shape
    x = matrix.reshape(-1, 32).astype(np.float32)
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    best_error = np.full((len(x), 1), np.inf, np.float32)
    best = [np.zeros_like(low), low, np.zeros_like(x)]
    for share in (1.0, 0.95, 0.9, 0.85, 0.8):
        middle, half = (low + high) / 2, (high - low) / 2 * share
        d = np.maximum(2 * half / 15, 1e-12)
        q = np.clip(np.round((x - (middle - half)) / d), 0, 15)
        centred = q - q.mean(1, keepdims=True)
        spread = (centred**2).sum(1, keepdims=True)
        d = np.where(spread > 0, (centred * x).sum(1, keepdims=True) / np.maximum(spread, 1e-9), 0)
        d = d.astype(np.float16).astype(np.float32)
        m = (x.mean(1, keepdims=True) - d * q.mean(1, keepdims=True))
        m = m.astype(np.float16).astype(np.float32)
        error = ((d * q + m - x)**2).sum(1, keepdims=True)
        better = error < best_error
        best_error = np.where(better, error, best_error)
        best = [np.where(better, new, old) for new, old in zip((d, m, q), best)]
    d, m, q = best
    q = q.astype(np.uint8)
    packed = q[:, :16] | (q[:, 16:] << 4)
    blocks = np.concatenate([d.astype(np.float16).view(np.uint8),
                             m.astype(np.float16).view(np.uint8), packed], 1)
    return blocks.reshape(outputs, inputs // 32 * 20)


def _shape_metadata(part: dict) -> dict[str, str]:
    return {key: str(part[key]) for key in ("dim", "heads", "kv_heads", "head_dim")}


def _stored_rows(part: dict, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """q and k in the order of the target's file."""
    return tensors | {"q": unpermute_rows(tensors["q"], part["heads"], part["rope_dims"]),
                      "k": unpermute_rows(tensors["k"], part["kv_heads"], part["rope_dims"])}


def _attention_tensors(part: dict, state: dict, prefix: str) -> dict[str, torch.Tensor]:
    rows = [part["heads"] * part["head_dim"]] + [part["kv_heads"] * part["head_dim"]] * 2
    q, k, v = state[f"{prefix}.qkv"].split(rows)
    return _stored_rows(part, {"attn_norm": state[f"{prefix}.norm.weight"], "q": q, "k": k, "v": v,
                               "attn_out": state[f"{prefix}.out"]})


def _add(file: PartWriter, prefix: str, tensors: dict[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        (file.vector if tensor.dim() == 1 else file.matrix)(f"{prefix}.{name}", tensor)


def add_draft(file: PartWriter, part: dict, state: dict) -> None:
    if part["features"]:
        raise ValueError("a draft with --features has no part file")
    file.metadata |= _shape_metadata(part) | {"layers": str(part["layers"]),
                                              "ffn_dim": str(part["ffn_dim"])}
    for index in range(part["layers"]):
        prefix = f"layers.{index}"
        gate, up = state[f"{prefix}.gate_up"].chunk(2)
        _add(file, prefix, _attention_tensors(part, state, f"{prefix}.attention") | {
            "ffn_norm": state[f"{prefix}.norm.weight"], "gate": gate, "up": up,
            "down": state[f"{prefix}.down"]})
    file.vector("output_norm", state["output_norm.weight"])
    if part.get("transform"):
        file.transform("transform", state["transform"])


def add_eagle(file: PartWriter, part: dict, state: dict) -> None:
    file.metadata |= _shape_metadata(part) | {"layers": "1", "ffn_dim": str(part["ffn_dim"])}
    gate, up = state["layer.gate_up"].chunk(2)
    _add(file, "layers.0", _attention_tensors(part, state, "layer.attention") | {
        "ffn_norm": state["layer.norm.weight"], "gate": gate, "up": up,
        "down": state["layer.down"]})
    file.vector("output_norm", state["output_norm.weight"])
    file.matrix("fuse", state["fuse"])
    if part["feature_layers"]:
        file.metadata["feature_layers"] = ",".join(map(str, part["feature_layers"]))
        file.matrix("join", state["join"])


def add_heads(file: PartWriter, part: dict, state: dict) -> None:
    if part["full"]:
        raise ValueError("heads with --full have no part file")
    if part["ahead"] != list(range(1, len(part["ahead"]) + 1)):
        raise ValueError(f"look-ahead heads {part['ahead']}: a part file has 1 to N, without gaps")
    file.metadata |= {"dim": str(part["dim"]), "norm_first": str(int(part["norm_first"]))}
    for kind, numbers in (("exit", part["exits"]), ("ahead", part["ahead"])):
        for number in numbers:
            file.metadata[f"{kind}.{number}"] = "1"
            file.matrix(f"{kind}.{number}.transform", state[f"{kind}_{number}.transform"])
    if part.get("ahead_block"):
        file.metadata["ahead_block"] = part["ahead_block"]


def add_tree(file: PartWriter, part: dict, folder: Path) -> None:
    """The fixed tree that a run of look-ahead heads has measured at its end."""
    if part["part"] != "heads" or not part["ahead"]:
        return
    tree = read_tree(folder)
    if tree is not None:
        file.metadata["ahead_tree"] = tree
    elif part.get("ahead_block"):
        raise ValueError("no ahead_tree.json: the run has not come to its end, where it measures "
                         "the tree; start it again with the same --out")


def add_adapter(file: PartWriter, part: dict, state: dict) -> None:
    file.metadata |= _shape_metadata(part)
    for layer in part["exits"]:
        file.metadata[f"adapter.{layer}"] = "1"
        _add(file, f"adapter.{layer}",
             _attention_tensors(part, state, f"{layer}.attention")
             | {"out_norm": state[f"{layer}.output_norm.weight"]})


def add_lora(file: PartWriter, part: dict, state: dict) -> None:
    """A and B by the GGUF file's tensor names; rows of B of q and k in the file's order."""
    if file.kind not in PLAIN:
        raise ValueError(f"--type {file.kind}: low-rank updates are stored in f16 or f32")
    rank = part["rank"]
    file.metadata |= {"dim": str(part["dim"]), "layers": str(part["layers"]), "rank": str(rank),
                      "alpha": f"{part['alpha']:g}", "exit": str(part["exit"]),
                      "exits": ",".join(map(str, part["exits"]))}
    heads = {"q": part["heads"], "k": part["kv_heads"]}
    for layer in range(part["layers"]):
        for fused, names in FUSED.items():
            prefix = f"layers.{layer}.matrices.{fused}"
            for index, (name, a) in enumerate(zip(names, state[f"{prefix}.a"].split(rank))):
                b = state[f"{prefix}.b.{index}"]
                if name in heads:
                    b = unpermute_rows(b, heads[name], part["rope_dims"])
                file.matrix(f"blk.{layer}.{LAYER_NAMES[name]}.lora_a", a)
                file.matrix(f"blk.{layer}.{LAYER_NAMES[name]}.lora_b", b)


def add_probe(file: PartWriter, part: dict, state: dict) -> None:
    file.metadata |= {"dim": str(part["dim"])} | {
        key: part[key] for key in ("lora", "heads") if part[key]}
    for name in part["probes"]:
        file.vector(f"{name}.v", state[f"{name}.v"])
        file.vector(f"{name}.b", state[f"{name}.b"])


ADD = {"draft": add_draft, "eagle": add_eagle, "heads": add_heads, "adapter": add_adapter, "lora": add_lora,
       "probe": add_probe}


def read_run(folder: Path) -> dict:
    path = folder / "checkpoint.pt"
    if not path.is_file():
        raise ValueError(f"{folder}: no checkpoint.pt: not the folder of a run")
    return torch.load(path, map_location="cpu", weights_only=True)


def check_together(runs: list[dict], folders: list[Path]) -> None:
    """Raises ValueError unless one file can hold all of them."""
    first = runs[0]
    if len(runs) > 1 and first["part"]["part"] in ("draft", "eagle", "lora"):
        raise ValueError(f"{folders[1]}: a file of kind {first['part']['part']} holds one run")
    for folder, run in zip(folders[1:], runs[1:]):
        for key in ("part", "tokens", "norm_first", "kv_heads", "ahead_block"):
            if run["part"].get(key) != first["part"].get(key):
                raise ValueError(f"{folder}: its {key} is not that of {folders[0]}")
        if run["target"] != first["target"]:
            raise ValueError(f"{folder}: its target is {run['target']}, that of {folders[0]} "
                             f"{first['target']}")


def run(options) -> int:
    runs = [read_run(folder) for folder in options.run]
    check_together(runs, options.run)
    kind = runs[0]["part"]["part"]
    trained_as = {run.get("quantise", "none") for run in runs} - {"none"}
    # The numbers of a residual head do not stand beside the ones of a diagonal.
    plain = "q8_0" if runs[0]["part"].get("ahead_block") else DEFAULT_TYPE[kind]
    file = PartWriter(options.type or min(trained_as, default=plain))
    if trained_as - {file.kind}:
        raise ValueError(f"{options.run[0]}: trained through the rounding of "
                         f"{min(trained_as - {file.kind})}, --type is {file.kind}")
    for folder, checkpoint in zip(options.run, runs):
        file.rounded_in_training = checkpoint.get("quantise", "none") != "none"
        try:
            ADD[kind](file, checkpoint["part"], checkpoint["module"])
            add_tree(file, checkpoint["part"], folder)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from None
    if "tokens" in runs[0]["part"]:
        file.tokens(runs[0]["part"]["tokens"])
    file.metadata |= {
        "paceline.format": FORMAT, "paceline.part": kind, "paceline.target": runs[0]["target"],
        "paceline.name": options.name or options.out.stem, "licence": options.licence,
        "matrices": file.kind.upper(),
        "steps": " ".join(str(r["step"]) for r in runs),
        "trained_tokens": " ".join(str(r["tokens"]) for r in runs),
        "seed": " ".join(str(r["seed"]) for r in runs),
    }
    size = sum(tensor.nbytes for tensor in file.tensors.values())
    if kind == "eagle" and size > EAGLE_BYTES_MAX:
        raise ValueError(f"{options.out}: {size} bytes, an EAGLE part has at most "
                         f"{EAGLE_BYTES_MAX}; --type q8_0 or a shorter --tokens list is smaller")
    file.write(options.out)
    print(f"{options.out}: {kind}, {options.out.stat().st_size} bytes, matrices in {file.kind} "
          f"(largest relative error {max(file.errors, default=0):.4f})", file=sys.stderr)
    return 0
