#!/usr/bin/env python3
"""What a 70B target would do on 4 and 8 GPUs as segments, as ranks of one stage, and as both: simulated.

    bench/projections_groups.py --out bench/results/projections-groups.tsv [--paceline PROGRAM]

Nothing here is measured. Passes, hops, acceptance and plain decoding are those of projections.py. A stage on n
GPUs (docs/multi-gpu.md) reads and computes what its largest share is, and exchanges four times a layer:

    attention   ceil(KV heads / n) of the KV heads; everything else 1 / n
    exchange    4 x (barrier + bytes that a GPU sends / bandwidth): heads, inner states and twice the input of
                the next product, bf16, each GPU its part to all others
    barrier     the link's latency: NVLink 3.5 us, PCIe 8 us. Not measured: --barrier has another one

The draft has a GPU of its own, so the target has 3 or 7. `draft beside` has it on a GPU of the target: its passes
and the target's take turns, as the method's do.
"""

import argparse
import math
import pathlib
import sys
import tempfile

import projections
from projections import CARDS, KERNELS_A_LAYER, LINKS, PAIRS, pass_seconds, shape_of, weights_of

EXCHANGES = 4
# Layout: GPUs altogether, segments, GPUs of each. A method with batches in flight has one for each segment.
LAYOUTS = [("segments", 4, 3, 1), ("ranks", 4, 1, 3), ("ranks, draft beside", 4, 1, 4), ("both", 5, 2, 2),
           ("segments", 8, 7, 1), ("ranks", 8, 1, 7), ("both", 8, 2, 3), ("ranks, draft beside", 8, 1, 8)]
# An exit stands between two segments.
METHODS = [("plain", "autoregressive-segments"), ("taking turns", "speculative"), ("PEARL", "pearl"), ("FOLD", "fold")]
TURNS = ("plain", "taking turns")
# Of their authors: gain over their own plain decoding, or tokens/s.
PAPERS = {("70b+1b", "FOLD"): "FOLD 3.60, 4.09 (3 H100)", ("70b+8b", "FOLD"): "FOLD 2.92, 3.05 (3 H100)",
          ("70b+1b", "PEARL"): "SSD up to 5 (4 + 1 H100); SwiftSpec 348 tokens/s (8 Hopper)"}


def shares(weights, shape, gpus):
    """Weights of a layer on the GPU that has most of them."""
    dim, heads, kv = (int(shape[key]) for key in ("dim", "heads", "kv_heads"))
    head_dim = int(shape.get("head_dim", dim // heads))
    qkv = dim * head_dim * (heads + 2 * kv)
    return qkv * math.ceil(kv / gpus) / kv + (weights - qkv) / gpus


def exchange_seconds(shape, gpus, rows, link, barrier):
    """Of a layer."""
    if gpus == 1:
        return 0.0
    dim, heads = int(shape["dim"]), int(shape["heads"])
    q_dim = int(shape.get("head_dim", dim // heads)) * heads
    sent = 2 * rows * (q_dim + int(shape["ffn_dim"]) + 2 * dim) / gpus * (gpus - 1)
    return EXCHANGES * barrier + sent / LINKS[link][1]


def layer_seconds(shape, gpus, rows, card, link, barrier):
    layer, _ = weights_of(shape)
    return (pass_seconds(shares(layer, shape, gpus), rows, KERNELS_A_LAYER, card) +
            exchange_seconds(shape, gpus, rows, link, barrier))


def head_seconds(shape, gpus, rows, card, link, barrier):
    _, head = weights_of(shape)
    logits = 4 * rows * int(shape["vocab_size"]) * (gpus - 1) / gpus  # float32, to the first GPU
    return pass_seconds(head / gpus, rows, 2, card) + (0 if gpus == 1 else 2 * barrier + logits / LINKS[link][1])


def cost_table(target, draft, gpus, card, link, barrier):
    """With the target on `gpus` GPUs a stage."""
    def seconds(model, rows):
        of = (shape_of(model), gpus if model == target else 1, rows, card, link, barrier)
        return layer_seconds(*of), head_seconds(*of)

    return projections.cost_table(target, (target, draft), card, link, seconds)


def runs(options):
    """(pair, link, layout, GPUs, segments, GPUs a stage, method, configuration)"""
    for pair in options.pairs:
        for link in options.links:
            for layout, gpus, segments, ranks in LAYOUTS:
                for method, configuration in METHODS:
                    if layout == "ranks, draft beside" and method not in TURNS:
                        continue
                    if configuration == "fold" and segments < 2:
                        continue
                    yield pair, link, layout, gpus, segments, ranks, method, configuration


def project(options, folder):
    projector = projections.Projector(options, folder)
    costs = pathlib.Path(folder) / "costs.tsv"
    records, plains = [], {}
    for pair, link, layout, gpus, segments, ranks, method, configuration in runs(options):
        target, draft, holds = PAIRS[pair]
        barrier = options.barrier * 1e-6 if options.barrier else LINKS[link][0]
        if (pair, link) not in plains:
            costs.write_text(cost_table(target, draft, 1, options.card, link, barrier))
            plains[pair, link] = projector.rate(pair, "plain", METHODS[0][1], holds, 1, 0, (0.5, 0.5), costs)
        costs.write_text(cost_table(target, draft, ranks, options.card, link, barrier))
        batches = 1 if method in TURNS else segments
        for acceptance in options.acceptance:
            rate = projector.rate(pair, method, configuration, segments, batches, 0 if method == "plain" else 1,
                                  (acceptance, options.exit_accuracy), costs)
            records.append([pair, link, layout, str(gpus), f"{segments} x {ranks}", method,
                            "-" if method == "plain" else f"{acceptance:g}", f"{rate:.1f}",
                            f"{rate / plains[pair, link]:.2f}", PAPERS.get((pair, method), "-")])
            print("\t".join(records[-1]), file=sys.stderr, flush=True)
            if method == "plain":
                break
    return records


def write(options, records):
    head = [f"# what: simulated tokens/s of one request of a 70B target on 4 and 8 GPUs of {options.card}, from data "
            "sheets; nothing here was measured",
            f"# command: bench/projections_groups.py --out FILE --first {options.first} -n {options.n}" +
            (f" --barrier {options.barrier:g}" if options.barrier else ""),
            f"# commit: {projections.commit()}", f"# date: {projections.today()}",
            f"# machine: simulated {options.card}, 0.75 of its bandwidth, 1.3 us a kernel, a barrier of " +
            (f"{options.barrier:g} us" if options.barrier else "the link's latency (NVLink 3.5 us, PCIe 8 us)") +
            f"; an exit is right in {options.exit_accuracy:g} of the cases",
            "# columns: shape is segments x GPUs of each; gain is over plain decoding on the two GPUs that hold the "
            "target; papers: what its authors report",
            "\t".join(["pair", "link", "layout", "gpus", "shape", "method", "acceptance", "tokens_per_s", "gain",
                       "papers"])]
    projections.write_table(options.out, head, records)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--paceline", default=projections.ROOT / "build/release/paceline")
    parser.add_argument("--card", choices=CARDS, default="H100-SXM")
    parser.add_argument("--pairs", type=lambda text: text.split(","), default=["70b+1b", "70b+8b"])
    parser.add_argument("--links", type=lambda text: text.split(","), default=list(LINKS))
    parser.add_argument("--acceptance", type=lambda text: [float(word) for word in text.split(",")], default=[0.6, 0.8])
    parser.add_argument("--exit-accuracy", type=float, default=0.6)
    parser.add_argument("--barrier", type=float, help="microseconds; default: the link's latency")
    parser.add_argument("--first", type=int, default=4)
    parser.add_argument("-n", type=int, default=256)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(options, project(options, folder))


if __name__ == "__main__":
    main()
