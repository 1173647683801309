"""Runs of `paceline simulate` that self_speculation.py and its studies count, and their tables."""

import json
import pathlib
import subprocess
import sys
import tempfile

from self_speculation_cases import LAYERS


def words_of(options, method, settings, more=()):
    """`method` may be the file of a configuration. A setting without a table's name is one of [self_draft]."""
    words = ["-m", options.model, "--config" if str(method).endswith(".toml") else "--method", method,
             "-n", str(options.n), *options.words]
    named = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()]
    for word in [*named, *more]:
        words += ["--set", word if "." in word.split("=")[0] else f"self_draft.{word}"]
    # A tree that is not wanted: chains, as far as the method drafts.
    if settings.get("tree") == "none":
        words += ["--set", "schedule.shape=chain"]
    return words


def settings_text(settings):
    return " ".join(f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}"
                    for key, value in settings.items()) or "as configured"


def simulate(options, words, folder, prompts=None):
    """(the report of one pipeline, its jobs) of `paceline simulate` with these words, on all prompts or a file."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        report, trace = pathlib.Path(own) / "report.json", pathlib.Path(own) / "trace.json"
        command = [options.paceline, "simulate", "--costs", options.costs, "--prompts",
                   prompts or pathlib.Path(folder) / "all.jsonl", "--json", report, "--trace", trace, *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
        return json.loads(report.read_text())[0], jobs_of(trace)


def jobs_of(trace):
    """The jobs in a trace file."""
    events = json.loads(pathlib.Path(trace).read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    return [event for event in events if event.get("ph") == "X" and event.get("cat") == "job"]


def layer_rows(figures, jobs, settings):
    """Layer-rows of drafts and verification, and of the optimiser. A verified row goes on where its draft
    stopped being the target; of a skip set only the layers that are always kept count as such."""
    verified = figures["candidates"] + figures["batches"]
    drafted = sum(job["args"]["rows"] * job["args"]["layers"] for job in jobs
                  if job["name"].startswith("draft"))
    reused = figures["draft_rows"] * settings.get("exit", 1)
    optimised = sum(job["args"]["rows"] * job["args"]["layers"] for job in jobs
                    if job["name"].split()[0] in ("optimise", "job"))
    return verified * LAYERS - reused + drafted, optimised


def write_table(options, columns, rows):
    text = "".join("\t".join(row) + "\n" for row in [columns, *rows])
    options.out.write_text(text, encoding="utf-8")
