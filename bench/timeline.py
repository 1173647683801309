#!/usr/bin/env python3
"""Draws a stretch of a trace (paceline run --trace, simulate --trace) as an SVG time line: a row per
stage, a box per job, an arrow from each proposal to the verdict that judged it.

    bench/timeline.py TRACE.json --from-ms 120 --ms 40 -o docs/timeline.svg

Without --from-ms it begins with the second verdict. Nothing to install.
"""

import argparse
import json
import sys

from chart import COLOURS, escaped

LEFT, RIGHT, TOP, ROW, BOX = 120, 20, 46, 46, 22
WIDTH = 980
JOBS = {"prefill": 5, "verify": 0, "draft": 2, "exit": 4}


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
    """The kind of job: "verify 12" is one of wave 12."""
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
    height = TOP + ROW * len(shown) + 40

    def x(ts):
        inside = min(max(ts, begin), end)
        return LEFT + (inside - begin) / length * (WIDTH - LEFT - RIGHT)

    def y(pid):
        return TOP + ROW * row_of[pid] + (ROW - BOX) / 2

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
    legend = LEFT
    for name, colour in JOBS.items():
        out.append(f'<rect x="{legend}" y="12" width="14" height="14" fill="{COLOURS[colour]}"/>')
        out.append(f'<text x="{legend + 20}" y="24">{name}</text>')
        legend += 100
    out.append(f'<text x="{legend}" y="24">arrow: from a proposal to the verdict about it</text>')
    for pid in shown:
        middle = y(pid) + BOX / 2
        out.append(f'<text x="8" y="{middle + 4:.1f}">{escaped(names.get(pid, pid))}</text>')
        out.append(f'<line x1="{LEFT}" y1="{middle:.1f}" x2="{WIDTH - RIGHT}" y2="{middle:.1f}" '
                   f'stroke="#dddddd"/>')
    for event in boxes(events, begin, end):
        left, right = x(event["ts"]), x(event["ts"] + event["dur"])
        rows = event.get("args", {}).get("rows", "")
        out.append(f'<rect x="{left:.1f}" y="{y(event["pid"]):.1f}" '
                   f'width="{max(right - left, 0.8):.1f}" height="{BOX}" '
                   f'fill="{COLOURS[JOBS[job_of(event)]]}"/>')
        if right - left > 18:
            out.append(f'<text x="{(left + right) / 2:.1f}" y="{y(event["pid"]) + 15:.1f}" '
                       f'fill="white" text-anchor="middle">{escaped(rows)}</text>')
    for start, finish in arrows(events, begin, end):
        out.append(f'<line x1="{x(start["ts"]):.1f}" y1="{y(start["pid"]):.1f}" '
                   f'x2="{x(finish["ts"]):.1f}" y2="{y(finish["pid"]) + BOX:.1f}" '
                   f'stroke="#555555" stroke-width="0.7"/>')
    bottom = TOP + ROW * len(shown) + 16
    for tick in range(0, 11):
        at = LEFT + tick / 10 * (WIDTH - LEFT - RIGHT)
        out.append(f'<text x="{at:.1f}" y="{bottom + 12}" text-anchor="middle">'
                   f'{length / 1000.0 * tick / 10:.1f}</text>')
    out.append(f'<text x="8" y="{bottom + 12}">milliseconds</text></svg>')
    return "\n".join(out) + "\n"


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
