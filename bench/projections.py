#!/usr/bin/env python3
"""What pipelines would do with models and GPUs that are not here: simulated, from data sheets.

    bench/projections.py --out bench/results/projections.tsv [--paceline PROGRAM] [--pairs 70b+1b]

Nothing here is measured. The actors are the real ones; the text is an oracle's, of which a draft's and
an exit's first choices are right as often as --acceptance says (launch/simulate/oracle_backend.hpp); the
time of a pass is the larger of the time to read its weights and the time of its products:

    layers   max(bytes / (BANDWIDTH x 0.75), 2 x weights x rows / (FLOPS x 0.5)) + kernels x 1.3 us
    hop      2 us, and for hidden states (float32) the link's latency and bytes / its bandwidth

0.75 of the bandwidth is what the fastest published single-stream decoders reach (78 % on an H100); 1.3 us
a kernel is the gap between two kernels of a graph. A cost table measured on a device can take the place
of the sheet (--costs; `paceline_cuda_bench --costs`).

Plain decoding is that of the same target on as few GPUs as hold it, one request. Every GPU is a device of
its own; a target's layers are shared evenly, with as many batches in flight as the row says.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import sweep_configs
from draft_sources_rows import EAGLE2_TREE

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Card: bytes/s, dense bf16 FLOP/s, bytes of memory (data sheets of NVIDIA).
CARDS = {"H100-SXM": (3.35e12, 989e12, 80e9), "A100-SXM": (2.039e12, 312e12, 80e9),
         "A800": (2.039e12, 312e12, 80e9),
         "A6000": (768e9, 154.8e12, 48e9)}
# Link: seconds before the first byte, bytes/s. NVLink: 3.5 us is a send of nccl-tests between two H100s.
LINKS = {"nvlink": (3.5e-6, 250e9), "pcie": (8e-6, 25e9)}
MESSAGE_SECONDS = 2e-6
BANDWIDTH_REACHED, FLOPS_REACHED = 0.75, 0.5
KERNELS_A_LAYER, KERNEL_SECONDS = 6, 1.3e-6
ROWS = [1, 2, 4, 8, 16, 32, 64]

# Pair: target, draft, GPUs that hold the target in bf16.
PAIRS = {"8b+1b": ("llama-8b", "llama-1b", 1),
         "70b+1b": ("llama-70b", "llama-1b", 2),
         "70b+8b": ("llama-70b", "llama-8b", 2)}
# Row: method, target GPUs beyond those that hold it (at least its segments), batches in flight, draft GPUs.
METHODS = [
    ("taking turns", "speculative", 0, 1, 1),
    ("assisted generation", "speculative-adaptive", 0, 1, 1),
    ("EAGLE-2's tree, a draft of one layer", "speculative", 0, 1, 1),
    ("PEARL", "pearl", 0, 1, 1),
    ("FOLD, its two target GPUs", "fold", 0, 1, 1),
    ("FOLD, two batches", "fold", 0, 2, 1),
    ("hybrid", "hybrid", 0, 1, 1),
    ("hybrid, two batches", "hybrid", 0, 2, 1),
    ("four stages", "four-stages", 0, 1, 2),
    ("AdaDecode", "adadecode-parallel", 0, 1, 0),
]
# Rows with settings of their own. A draft of one layer has the target's shape, its cost is that of a layer and the head.
SETTINGS = {"EAGLE-2's tree, a draft of one layer": [*EAGLE2_TREE, "schedule.controller=off"]}
SEGMENTS_MIN = {"fold": 2, "hybrid": 2, "four-stages": 2, "adadecode-parallel": 2}
# On eight GPUs the target has all that the drafts leave, and as many batches in flight.
WIDE = [("PEARL, 7 target GPUs", "pearl", 7, 7, 1), ("FOLD, 7 target GPUs", "fold", 7, 7, 1),
        ("hybrid, 7 target GPUs", "hybrid", 7, 7, 1)]
# What the papers report for these pairs, tokens/s over their own plain decoding (H100, transformers):
# FOLD, table 1 (GSM8K, HumanEval); AdaDecode, table 1 (Llama-3.1-8B: XSum, HumanEval, GSM8K).
PAPERS = {("70b+1b", "PEARL"): "3.30, 3.73", ("70b+1b", "FOLD, its two target GPUs"): "3.60, 4.09",
          ("70b+8b", "PEARL"): "2.87, 2.85", ("70b+8b", "FOLD, its two target GPUs"): "2.92, 3.05",
          ("70b+1b", "assisted generation"): "2.52, 3.08", ("70b+8b", "assisted generation"): "1.96, 2.06",
          ("70b+1b", "EAGLE-2's tree, a draft of one layer"): "2.46, 3.13",
          ("70b+8b", "EAGLE-2's tree, a draft of one layer"): "2.46, 3.13",
          ("8b+1b", "taking turns"): "1.07, 1.42, 1.37",
          ("8b+1b", "AdaDecode"): "1.14, 1.51, 1.48 (one GPU)"}


def one_layer(name):
    """The name of the shape that is one layer of this one."""
    return f"{name}-one-layer"


def shape_of(name):
    """The numbers of a shape's file."""
    if name.endswith(one_layer("")):
        return {**shape_of(name.removesuffix(one_layer(""))), "name": name, "layers": "1"}
    shape = {}
    for line in (ROOT / "configs/shapes" / f"{name}.toml").read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = (part.strip() for part in line.split("=", 1))
            shape[key] = value.strip('"')
    return shape


def weights_of(shape):
    """Weights of a layer and of the head."""
    dim, heads, kv = (int(shape[key]) for key in ("dim", "heads", "kv_heads"))
    head_dim = int(shape.get("head_dim", dim // heads))
    attention = dim * head_dim * (2 * heads + 2 * kv)
    return attention + 3 * dim * int(shape["ffn_dim"]), dim * int(shape["vocab_size"])


def pass_seconds(weights, rows, kernels, card):
    bandwidth, flops, _ = CARDS[card]
    read = 2 * weights / (bandwidth * BANDWIDTH_REACHED)
    return max(read, 2 * weights * rows / (flops * FLOPS_REACHED)) + kernels * KERNEL_SECONDS


def cost_table(target, models, card, link, seconds=None):
    """Records as simulate reads them, for hidden states of `target`. `seconds(model, rows)`: of a layer, of the head;
    without it of one GPU."""
    latency, bandwidth = LINKS[link]

    def of_one_gpu(model, rows):
        layer, head = weights_of(shape_of(model))
        return pass_seconds(layer, rows, KERNELS_A_LAYER, card), pass_seconds(head, rows, 2, card)

    lines = [f"# From data sheets, not measured: {card}, {link}.",
             "stage\tfingerprint\tlayers\trows\tcontext\tthreads\tneighbours\tseconds"]
    for model in models:
        layers = int(shape_of(model)["layers"])
        for rows in ROWS:
            layer, head = (seconds or of_one_gpu)(model, rows)
            lines.append(f"layers\t{model}:bf16\t{layers}\t{rows}\t0\t0\t0\t{layers * layer:.9f}")
            lines.append(f"head\t{model}:bf16\t0\t{rows}\t0\t0\t0\t{head:.9f}")
    for rows in ROWS:
        size = 4 * int(shape_of(target)["dim"]) * rows
        lines.append(f"hop\t-\t0\t{rows}\t0\t0\t0\t{MESSAGE_SECONDS + latency + size / bandwidth:.9f}")
    return "\n".join(lines) + "\n"


class Projector:
    def __init__(self, options, folder):
        self.options = options
        self.folder = pathlib.Path(folder)
        self.configs = sweep_configs.Folder(folder, options.paceline)
        self.shapes = {}

    def shape_file(self, name):
        """The shape with a small vocabulary and narrow states: an oracle needs no more, and time
        comes from the table."""
        if name not in self.shapes:
            small = {"dim": 64, "heads": 1, "kv_heads": 1, "head_dim": 64, "ffn_dim": 64,
                     "vocab_size": 512, "context_length": 65536}
            path = self.folder / f"{name}.toml"
            shape = {**shape_of(name), **small}
            text = [f'{key} = "{value}"' if key in ("name", "type") else f"{key} = {value}"
                    for key, value in shape.items()]
            path.write_text("\n".join(text) + "\n")
            self.shapes[name] = path
        return self.shapes[name]

    def rate(self, pair, name, method, segments, batches, drafts, accuracy, costs):
        """Tokens per simulated second."""
        target, draft, _ = PAIRS[pair]
        settings = SETTINGS.get(name, [])
        draft = one_layer(target) if settings else draft
        out = self.folder / "run.json"
        command = [self.options.paceline, "simulate", "--random", self.shape_file(target),
                   "--dtype", "bf16", "--costs", costs, "-n", self.options.n,
                   "--first", self.options.first, "--parts", "none",
                   "--acceptance", accuracy[0], "--exit-accuracy", accuracy[1], "--json", out]
        if method == "adadecode-parallel":  # has its exits, and two segments, as it is
            command += ["--method", method]
        else:
            command += ["--config", self.configs.file(method, segments, batches)]
        if drafts:
            command += ["--draft-model", self.shape_file(draft)]
        command += [word for setting in settings for word in ("--set", setting)]
        if method == "speculative" and not settings:  # the fairest: the best length of its drafts
            command += ["--sweep", "draft.gamma=2,4,6,8,12"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
        return max(run["tokens_per_second"] for run in json.loads(out.read_text()))


def rows_of(pair):
    """(name, method, segments, batches, draft GPUs) of a pair."""
    holds = PAIRS[pair][2]
    for name, method, more, batches, drafts in METHODS:
        yield name, method, max(holds + more, SEGMENTS_MIN.get(method, 1)), batches, drafts
    if holds > 1:
        for name, method, segments, batches, drafts in WIDE:
            yield name, method, segments, batches, drafts


def project(options, folder):
    projector = Projector(options, folder)
    records = []
    for pair in options.pairs:
        target, draft, holds = PAIRS[pair]
        for link in options.links:
            costs = pathlib.Path(options.costs) if options.costs else pathlib.Path(folder) / "costs.tsv"
            if not options.costs:
                costs.write_text(cost_table(target, [target, draft, one_layer(target)], options.card, link))
            plain = projector.rate(pair, "plain", "autoregressive-segments", holds, 1, 0, (0.5, 0.5), costs)
            for name, method, segments, batches, drafts in rows_of(pair):
                if name in SETTINGS and one_layer(target) not in costs.read_text():
                    print(f"{name} is left out: {costs} has no record of {one_layer(target)}", file=sys.stderr)
                    continue
                for acceptance in options.acceptance:
                    accuracy = (acceptance, options.exit_accuracy)
                    rate = projector.rate(pair, name, method, segments, batches, drafts, accuracy, costs)
                    records.append((pair, link, name, segments + drafts, acceptance, plain, rate,
                                    rate / plain, PAPERS.get((pair, name), "-")))
                    print("\t".join(text_of(records[-1])), file=sys.stderr, flush=True)
                    if not drafts:
                        break  # no draft: its acceptance does not matter
    return records


def text_of(record):
    pair, link, name, gpus, acceptance, plain, rate, gain, papers = record
    return [pair, link, name, str(gpus), f"{acceptance:g}", f"{plain:.1f}", f"{rate:.1f}",
            f"{gain:.2f}", papers]


def commit():
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                          check=False).stdout.strip() or "unknown"


def today():
    return subprocess.run(["date", "+%F"], capture_output=True, text=True, check=True).stdout.strip()


def write_table(path, head, records):
    """A file of bench/results: lines of a head, the last of them the names of the columns, and rows of texts."""
    pathlib.Path(path).write_text("\n".join([*head, *("\t".join(row) for row in records)]) + "\n", encoding="utf-8")


def write(options, records):
    head = ["# what: simulated tokens/s of one request with models and GPUs from data sheets; "
            "nothing here was measured",
            f"# command: bench/projections.py --out FILE --first {options.first} -n {options.n}",
            f"# commit: {commit()}", f"# date: {today()}",
            f"# machine: simulated {options.card}, 0.75 of its bandwidth, 1.3 us a kernel; an exit is "
            f"right in {options.exit_accuracy:g} of the cases, independent of the draft",
            "# columns: gain is tokens_per_s over plain (the target on the GPUs that hold it); papers: "
            "gains that FOLD's and AdaDecode's authors report over their own plain decoding",
            "\t".join(["pair", "link", "method", "gpus", "acceptance", "plain", "tokens_per_s",
                       "gain", "papers"])]
    write_table(options.out, head, map(text_of, records))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline")
    parser.add_argument("--costs", help="a measured table instead of the data sheet's")
    parser.add_argument("--card", choices=CARDS, default="H100-SXM")
    parser.add_argument("--pairs", type=lambda text: text.split(","), default=list(PAIRS))
    parser.add_argument("--links", type=lambda text: text.split(","), default=list(LINKS))
    parser.add_argument("--acceptance", type=lambda text: [float(word) for word in text.split(",")],
                        default=[0.6, 0.7, 0.8, 0.9])
    parser.add_argument("--exit-accuracy", type=float, default=0.6)
    parser.add_argument("--first", type=int, default=4)
    parser.add_argument("-n", type=int, default=256)
    options = parser.parse_args()
    for pair in options.pairs:
        if pair not in PAIRS:
            parser.error(f"--pairs: '{pair}' is none of {', '.join(PAIRS)}")
    with tempfile.TemporaryDirectory() as folder:
        write(options, project(options, folder))


if __name__ == "__main__":
    main()
