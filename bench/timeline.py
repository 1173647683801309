#!/usr/bin/env python3
"""Draws a stretch of a trace (paceline run --trace, simulate --trace) as an SVG time line: a row per
stage, a box per job, an arrow from each proposal to the verdict that verified it.

    bench/timeline.py TRACE.json --from-ms 120 --ms 40 -o docs/timeline.svg

Without --from-ms it begins with the second verdict. Needs Matplotlib.
"""

import argparse
import json
import sys

from chart import COLOURS, svg_of  # first: it names Matplotlib where that is missing
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

BOX = 0.5  # height, of a row
TEXT_SHARE = 0.02  # of the time line: narrower boxes are not labelled
JOBS = {"prefill": COLOURS[5], "verify": COLOURS[0], "draft": COLOURS[2], "exit": COLOURS[4]}


def read_trace(path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    events = document["traceEvents"] if isinstance(document, dict) else document
    names = {}
    for event in events:
        if event["ph"] == "M" and event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
    return events, names


def begin_of(events, wanted_ms):
    """Microseconds on the trace's clock at which the picture begins."""
    first = min(event["ts"] for event in events if "ts" in event)
    if wanted_ms is not None:
        return first + wanted_ms * 1000.0
    verdicts = sorted(e["ts"] for e in events if e.get("cat") == "verdict")
    return verdicts[1] if len(verdicts) > 1 else first


def job_of(event):
    """The kind of job: "verify 12" is one of batch 12."""
    return event["name"].split()[0]


def boxes(events, begin, end):
    for event in events:
        if event["ph"] != "X" or event.get("cat") != "job" or job_of(event) not in JOBS:
            continue
        if event["ts"] + event["dur"] < begin or event["ts"] > end:
            continue
        yield event


def arrows(events, begin, end):
    """Pairs (start, finish) of the proposal arrows that lie inside."""
    starts = {e["id"]: e for e in events if e["ph"] == "s" and e["name"] == "proposal"}
    for event in events:
        if event["ph"] != "f" or event["name"] != "proposal" or event["id"] not in starts:
            continue
        start = starts[event["id"]]
        if begin <= start["ts"] and event["ts"] <= end:
            yield start, event


def draw(events, names, begin, length):
    end = begin + length
    shown = sorted({e["pid"] for e in boxes(events, begin, end)} |
                   {e["pid"] for pair in arrows(events, begin, end) for e in pair})
    row_of = {pid: row for row, pid in enumerate(shown)}

    def ms(ts):
        return (min(max(ts, begin), end) - begin) / 1000.0

    figure = Figure(figsize=(9.8, 1.2 + 0.5 * len(shown)))
    axes = figure.add_subplot()
    for event in boxes(events, begin, end):
        left, right = ms(event["ts"]), ms(event["ts"] + event["dur"])
        row = row_of[event["pid"]]
        axes.barh(row, right - left, left=left, height=BOX, color=JOBS[job_of(event)])
        if right - left > length / 1000.0 * TEXT_SHARE:
            axes.text((left + right) / 2, row, str(event.get("args", {}).get("rows", "")),
                      color="white", ha="center", va="center", fontsize=8)
    for start, finish in arrows(events, begin, end):
        axes.plot([ms(start["ts"]), ms(finish["ts"])],
                  [row_of[start["pid"]] - BOX / 2, row_of[finish["pid"]] + BOX / 2],
                  color="#555555", linewidth=0.7)
    axes.set(xlim=(0, length / 1000.0), ylim=(len(shown) - 0.5, -0.5), xlabel="milliseconds")
    axes.set_yticks(range(len(shown)), [str(names.get(pid, pid)) for pid in shown])
    axes.grid(axis="y", color="#dddddd")
    axes.set_axisbelow(True)
    handles = [Patch(color=colour, label=name) for name, colour in JOBS.items()]
    handles.append(Line2D([], [], color="#555555", linewidth=0.7,
                          label="from a proposal to the verdict about it"))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(handles), frameon=False)
    return svg_of(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("trace")
    parser.add_argument("--from-ms", type=float, help="begin, from the trace's first event")
    parser.add_argument("--ms", type=float, default=40.0, help="length of the stretch")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    events, names = read_trace(options.trace)
    picture = draw(events, names, begin_of(events, options.from_ms), options.ms * 1000.0)
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(picture)
    print(f"{options.output}: {len(picture)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
