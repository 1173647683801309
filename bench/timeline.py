#!/usr/bin/env python3
"""A stretch of a trace (paceline run --trace, simulate --trace) as a time line: a row per stage, a
box per job, a line from each proposal to the verdict about its root.

    bench/timeline.py TRACE.json --from-ms 120 --ms 40 -o line.svg    # a picture
    bench/timeline.py TRACE.json --from-ms 120 --ms 40 -o line.tsv    # for bench/charts.py

Without --from-ms it begins with the second verdict. Python's standard library only.
"""

import argparse
import json
import sys

from svg_chart import COLOURS, document, line, number, words

COLUMNS = ("kind", "stage", "to", "begin_ms", "end_ms", "rows")
JOBS = {"prefill": COLOURS[5], "verify": COLOURS[0], "draft": COLOURS[2], "exit": COLOURS[4]}
LEFT, WIDTH, TOP, ROW, BOX = 110, 830, 60, 46, 22  # pixels
LABEL_WIDTH = 14  # narrower boxes are not labelled with their rows


def read_trace(path):
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
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


def jobs_of(events, begin, end):
    """(kind, event) of the jobs that overlap the stretch: "verify 12" is a job of batch 12."""
    for event in events:
        if event["ph"] == "X" and event.get("cat") == "job":
            kind = event["name"].split()[0]
            if kind in JOBS and event["ts"] + event["dur"] >= begin and event["ts"] <= end:
                yield kind, event


def proposals_of(events, begin, end):
    """Pairs (start, finish) of the proposals that lie inside the stretch."""
    starts = {e["id"]: e for e in events if e["ph"] == "s" and e["name"] == "proposal"}
    for event in events:
        if event["ph"] != "f" or event["name"] != "proposal" or event["id"] not in starts:
            continue
        start = starts[event["id"]]
        if begin <= start["ts"] and event["ts"] <= end:
            yield start, event


def records_of(events, names, begin, length):
    """The stretch as records with the keys COLUMNS: jobs first, then proposals."""
    end = begin + length

    def ms(ts):
        return f"{(min(max(ts, begin), end) - begin) / 1000.0:.3f}"

    def stage(event):
        return str(names.get(event["pid"], event["pid"]))

    found = [
        (
            kind,
            stage(event),
            "-",
            ms(event["ts"]),
            ms(event["ts"] + event["dur"]),
            str(event.get("args", {}).get("rows", "-")),
        )
        for kind, event in jobs_of(events, begin, end)
    ]
    found += [
        ("proposal", stage(start), stage(finish), ms(start["ts"]), ms(finish["ts"]), "-")
        for start, finish in proposals_of(events, begin, end)
    ]
    return [dict(zip(COLUMNS, record)) for record in found]


def legend():
    out = []
    for index, (name, colour) in enumerate(JOBS.items()):
        out.append(f'<rect x="{LEFT + 90 * index}" y="12" width="14" height="14" fill="{colour}"/>')
        out.append(words(LEFT + 90 * index + 20, 24, name))
    left = LEFT + 90 * len(JOBS)
    return out + [
        line(left, 19, left + 14, 19, "axis"),
        words(left + 20, 24, "from a proposal to the verdict about its root"),
    ]


def draw(records):
    """The SVG text of records with the keys COLUMNS."""
    stages = list(dict.fromkeys(record["stage"] for record in records))
    length = max(float(record["end_ms"]) for record in records)
    middle = {stage: TOP + ROW * index for index, stage in enumerate(stages)}

    def x(ms):
        return LEFT + WIDTH * float(ms) / length

    body = legend()
    for stage, y in middle.items():
        body += [words(8, y + 4, stage), line(LEFT, y, LEFT + WIDTH, y, "grid")]
    for record in records:
        left, right, y = x(record["begin_ms"]), x(record["end_ms"]), middle[record["stage"]]
        if record["kind"] == "proposal":
            to = middle[record["to"]]
            edge = BOX / 2 if to > y else -BOX / 2
            body.append(line(left, y + edge, right, to - edge, "axis"))
            continue
        body.append(
            f'<rect x="{number(left)}" y="{number(y - BOX / 2)}" width="{number(right - left)}" '
            f'height="{BOX}" fill="{JOBS[record["kind"]]}"/>'
        )
        if record["rows"] != "-" and right - left > LABEL_WIDTH:
            body.append(
                words(
                    (left + right) / 2,
                    y + 4,
                    record["rows"],
                    ' text-anchor="middle" style="fill:#fff"',
                )
            )
    bottom = TOP + ROW * len(stages) - 8
    for tick in range(11):
        body.append(
            words(
                LEFT + WIDTH * tick / 10, bottom, f"{length * tick / 10:g}", ' text-anchor="middle"'
            )
        )
    body.append(words(8, bottom, "milliseconds"))
    return document(LEFT + WIDTH + 20, bottom + 12, body)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("trace")
    parser.add_argument("--from-ms", type=float, help="begin, from the trace's first event")
    parser.add_argument("--ms", type=float, default=40.0, help="length of the stretch")
    parser.add_argument("-o", "--output", required=True, help="FILE.svg or FILE.tsv")
    options = parser.parse_args()
    events, names = read_trace(options.trace)
    records = records_of(events, names, begin_of(events, options.from_ms), options.ms * 1000.0)
    if not records:
        sys.exit(f"{options.trace}: no job in this stretch; choose another --from-ms")
    table = ["\t".join(COLUMNS), *("\t".join(record.values()) for record in records)]
    text = "\n".join(table) + "\n" if options.output.endswith(".tsv") else draw(records)
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"{options.output}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
