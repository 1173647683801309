"""What the scripts that measure peers share: shapes, counts of bytes and operations, and a report.

The report is that of paceline_cuda_bench (report.hpp): lines of a head, Markdown tables as soon as they
are measured, and one JSON file. A figure that means what one of the bench means has its name:

    batch.wall.seconds.ROWS.CONTEXT   a batch with a greedy token for each row, as its caller waits for it
    batch.share.ROWS.CONTEXT          bytes of weights and cache over time and --bandwidth, where that is given
    batch.ratio.ROWS.CONTEXT          over the batch of one row
    prefill.wall.seconds.ROWS        a prompt in batches of so many rows
    prefill.share.ROWS               its operations over time and --flops, where that is given

Python's standard library only.
"""

import json
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

QUERY = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"


@dataclass
class Shape:
    """What model/weights/synthetic/synthetic_model.hpp reads: the keys of a file of configs/shapes."""

    layers: int
    dim: int
    heads: int
    ffn_dim: int
    vocab_size: int
    name: str = "random"
    kv_heads: int = 0  # heads
    head_dim: int = 0  # dim / heads
    context_length: int = 8192
    tied_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5
    type: str = "bf16"

    def __post_init__(self):
        self.kv_heads = self.kv_heads or self.heads
        self.head_dim = self.head_dim or self.dim // self.heads

    @property
    def family(self) -> str:
        """The architecture whose layers look like this, by its name in GGUF and in transformers."""
        return "qwen3" if self.qk_norm else "qwen2" if self.qkv_bias else "llama"

    @property
    def q_dim(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        return self.kv_heads * self.head_dim

    def layer_matrices(self) -> dict[str, tuple[int, int]]:
        """(outputs, inputs) by the name of GGUF."""
        return {"attn_q": (self.q_dim, self.dim), "attn_k": (self.kv_dim, self.dim),
                "attn_v": (self.kv_dim, self.dim), "attn_output": (self.dim, self.q_dim),
                "ffn_gate": (self.ffn_dim, self.dim), "ffn_up": (self.ffn_dim, self.dim),
                "ffn_down": (self.dim, self.ffn_dim)}

    def layer_weights(self) -> int:
        return sum(outputs * inputs for outputs, inputs in self.layer_matrices().values())

    def batch_bytes(self, rows: int, context: int) -> float:
        """Of weights and of keys and values that a batch reads, all of two bytes each."""
        weights = self.layers * self.layer_weights() + self.vocab_size * self.dim
        return 2.0 * (weights + 2 * self.kv_dim * self.layers * (context + rows))

    def prefill_operations(self, tokens: int) -> float:
        """Two for each weight of a layer, four for each number of q and each key that it sees."""
        keys = tokens * (tokens + 1) / 2
        return self.layers * (2.0 * self.layer_weights() * tokens + 4.0 * self.q_dim * keys)


def read_shape(path: Path) -> Shape:
    with open(path, "rb") as file:
        try:
            return Shape(**tomllib.load(file))
        except (TypeError, tomllib.TOMLDecodeError) as wrong:
            sys.exit(f"{path}: {wrong}")


def card(index: int = 0) -> str:
    if not shutil.which("nvidia-smi"):
        return "no nvidia-smi"
    asked = subprocess.run(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader", "-i", str(index)],
                           capture_output=True, text=True, check=False)
    lines = asked.stdout.splitlines()
    return lines[0] if asked.returncode == 0 and lines else "nvidia-smi says nothing"


def microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.1f}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def share_of(part: float, whole: float | None) -> str:
    """`part` as a share of `whole`; "-" where the whole is not known."""
    return percent(part / whole) if whole else "-"


def add_card_options(parser) -> None:
    """What shares are of. There is no default: another card's rates would make wrong shares."""
    parser.add_argument("--bandwidth", type=float, help="of a copy on the card, bytes/s; without it no shares of it")
    parser.add_argument("--flops", type=float, help="of the card's data sheet, dense bf16; without it no shares of it")


class Report:
    """Prints as it goes, so a run that is cut short has shown what it had."""

    def __init__(self):
        self.head: dict[str, str] = {}
        self.figures: dict[str, float] = {}
        self.tables: list[dict] = []

    def begin(self, on_gpu: bool, index: int = 0) -> None:
        self.say("command", shlex.join(sys.argv))
        self.say("date", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
        self.say("card", card(index) if on_gpu else "none: these times are of a test")

    def say(self, name: str, value: str) -> None:
        self.head[name] = value
        print(f"{name}: {value}", flush=True)

    def add(self, title: str, header: list[str], rows: list[list[str]]) -> None:
        print(f"\n### {title}\n")
        for cells in (header, ["---"] + ["---:"] * (len(header) - 1), *rows):
            print("| " + " | ".join(cells) + " |")
        sys.stdout.flush()
        self.tables.append({"title": title, "header": header, "rows": rows})

    def write(self, path: Path | None) -> None:
        if path is not None:
            everything = {**self.head, "figures": dict(sorted(self.figures.items())), "tables": self.tables}
            path.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
