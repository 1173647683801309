#!/usr/bin/env python3
"""Draws every chart of the pages from the tables in bench/results into docs/pictures.

    bench/charts.py            draws all charts, and removes pictures that are no longer drawn
    bench/charts.py --check    changes nothing: names each picture that differs from what its table
                               gives, and exits with 1 if there is one; tests/lint runs this

A chart is a function from its tables to SVG text, listed in CHARTS under the name of its picture.
Python's standard library only.
"""

import argparse
import pathlib
import sys

import timeline
from svg_chart import Panel, chart

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "bench/results"
PICTURES = ROOT / "docs/pictures"
RULES = {
    "constant-d": "constant D",
    "product": "product of probabilities",
    "marginal": "probability of the last token",
    "probe": "product of probe scores",
    "probe-marginal": "probe score of the last token",
}


def records_of(name):
    """The records of TABLES/name.tsv as dictionaries."""
    lines = [
        line.split("\t")
        for line in (TABLES / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def grouped(records, name, x, y):
    """{name of a record: [(x, y), ...] in order of x} of three functions of a record."""
    lines = {}
    for record in records:
        lines.setdefault(name(record), []).append((float(x(record)), float(y(record))))
    return {key: sorted(points) for key, points in lines.items()}


def draft_training():
    titles = {
        "loss": "training loss",
        "heldout_top1": "held-out text: top-1",
        "heldout_acceptance_length": "held-out text: acceptance length",
    }
    panels = []
    for measure, title in titles.items():
        records = [
            record for record in records_of("draft-training") if record["measure"] == measure
        ]
        values = [float(record["value"]) for record in records]
        low = 0.0 if measure == "loss" else min(values) - 0.05 * max(values)
        panels.append(
            Panel(
                title,
                "million tokens trained on",
                "",
                grouped(records, lambda r: r["draft"], lambda r: r["tokens"], lambda r: r["value"]),
                x_range=(0, 11),
                y_range=(low, 1.05 * max(values)),
                markers=measure != "loss",
            )
        )
    return chart(panels, columns=3, plot=(250, 190))


def draft_depths():
    sets = {"humaneval": "HumanEval", "mt_bench": "MT-bench", "gsm8k": "GSM8K"}
    records = records_of("draft-depths")
    lines = {
        title: sorted((float(r["pass_ms"]), float(r[key])) for r in records)
        for key, title in sets.items()
    }
    return chart(
        [Panel("Drafts of two, four and six layers", "a pass, ms", "acceptance length", lines)]
    )


def sweep(setting, x_title):
    """A panel for each set of prompts of simulated-sweeps.tsv."""

    def draw():
        records = [
            record for record in records_of("simulated-sweeps") if record["setting"] == setting
        ]
        panels = []
        for prompts in dict.fromkeys(record["set"] for record in records):
            # Older tables say wave for a batch.
            lines = grouped(
                [record for record in records if record["set"] == prompts],
                lambda r: r["method"].replace("one wave", "one batch").replace("waves", "batches"),
                lambda r: r["value"],
                lambda r: r["tokens_per_s"],
            )
            ticks = tuple(sorted({x for points in lines.values() for x, _ in points}))
            panels.append(
                Panel(prompts, x_title, "tokens per simulated second", lines, x_ticks=ticks)
            )
        return chart(panels, columns=2, plot=(340, 220))

    return draw


def accounting():
    records = [r for r in records_of("self-speculation-accounting") if r["over"] == "plain"]
    lines = grouped(
        records,
        lambda r: f"{r['paper']}, {r['model']}",
        lambda r: r["paper_gain"],
        lambda r: r["simulated"],
    )
    return chart(
        [
            Panel(
                "Speed-up over plain decoding; grey: 10 % around equality",
                "paper",
                "simulated",
                lines,
                x_range=(0.7, 1.8),
                y_range=(0.7, 1.8),
                joined=False,
                diagonal=0.1,
            )
        ],
        plot=(460, 320),
    )


def setting_of(record, key):
    return dict(word.split("=", 1) for word in record["settings"].split() if "=" in word).get(
        key, ""
    )


def stop_rules():
    """M over the drafted tokens of a round, a panel for each exit and way of choosing tokens."""
    panels = []
    for sampling, suffix in (("greedy", ""), ("drawn", "-sampled")):
        for exit_layer, title, table in (
            ("10", "exit 10, trained head", ""),
            ("15", "exit 15, trained head", ""),
            ("8", "exit 8, early-exit target", "-early-exit"),
        ):
            records = [
                r
                for r in records_of(f"self-speculation-counts{table}{suffix}")
                if r["section"] in RULES and setting_of(r, "exit") == exit_layer
            ]
            lines = grouped(
                records,
                lambda r: RULES[r["section"]],
                lambda r: r["drafted_per_round"],
                lambda r: r["M"],
            )
            panels.append(
                Panel(
                    f"{title}, {sampling}",
                    "drafted tokens a round",
                    "M",
                    {name: lines[name] for name in RULES.values() if name in lines},
                    x_ticks=(1, 2, 4, 8),
                    x_range=(0.9, 12),
                    y_range=(1.3, 1.9),
                    x_log=True,
                )
            )
    return chart(panels, columns=3, plot=(250, 190))


def skip_sets():
    records = [
        r
        for r in records_of("skip-sets-programme")
        if r["distance"] == "-" and r["right"] != "-" and not r["kind"].startswith("small")
    ]
    lines = grouped(records, lambda r: r["kind"], lambda r: r["skipped"], lambda r: r["right"])
    ticks = tuple(sorted({x for points in lines.values() for x, _ in points}))
    return chart(
        [
            Panel(
                "The same token as the whole model",
                "skipped layers of 30",
                "share of the places",
                lines,
                x_ticks=ticks,
                y_range=(0.0, 1.0),
            )
        ]
    )


CHARTS = {
    "draft-depths": draft_depths,
    "draft-training": draft_training,
    "self-speculation-accounting": accounting,
    "self-speculation-rules": stop_rules,
    "simulated-draft-cost": sweep(
        "draft pass, in passes of the target", "a pass of the draft, in passes of the target"
    ),
    "simulated-exit-layer": sweep("exit layer", "layer of the exit"),
    "simulated-target-devices": sweep("target devices", "target devices"),
    "skip-sets": skip_sets,
    "timeline": lambda: timeline.draw(records_of("timeline")),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    drawn = {PICTURES / f"{name}.svg": draw() for name, draw in CHARTS.items()}
    there = {path: path.read_text(encoding="utf-8") for path in PICTURES.glob("*")}
    different = sorted(
        path for path in drawn.keys() | there.keys() if drawn.get(path) != there.get(path)
    )
    for path in different:
        name = path.relative_to(ROOT)
        if options.check:
            print(
                f"{name}:1: "
                + ("differs from its table" if path in drawn else "no chart of CHARTS")
                + ": run bench/charts.py"
            )
        elif path in drawn:
            path.write_text(drawn[path], encoding="utf-8")
            print(f"{name}: {len(drawn[path].splitlines())} lines")
        else:
            path.unlink()
            print(f"{name}: removed, nothing draws it")
    return 1 if different and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
