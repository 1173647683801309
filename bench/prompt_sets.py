"""Prompt sets of the benches: the project's own, HumanEval and MT-bench in their original files."""

import argparse
import gzip
import json
import pathlib
import tempfile

OWN = pathlib.Path(__file__).resolve().parent / "prompts"


def add_options(parser):
    parser.add_argument("--humaneval", type=pathlib.Path, help="HumanEval.jsonl or .jsonl.gz")
    parser.add_argument("--mt-bench", type=pathlib.Path, help="mt_bench_question.jsonl")
    parser.add_argument("--gsm8k", type=pathlib.Path, help="a file of GSM8K problems")
    parser.add_argument("--mbpp", type=pathlib.Path, help="a file of MBPP tasks")
    parser.add_argument("--prompts", type=pathlib.Path, action="append", default=[],
                        help="any other file that paceline check reads")
    parser.add_argument("--own", action=argparse.BooleanOptionalAction, default=True,
                        help="the project's own prompts (bench/prompts)")
    parser.add_argument("--first", type=int, default=0, help="so many prompts of each set; 0: all")


def lines_of(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [line for line in file if line.strip()]


def text_of(line):
    """What is asked, as launch/load/prompt_sets.hpp defines it."""
    row = json.loads(line)
    for key in ("prompt", "turns", "question", "text"):
        if key in row:
            return row[key] if isinstance(row[key], str) else row[key][0]
    raise SystemExit(f"a prompt without text: {line[:80]}")


def spread(lines, count):
    """`count` of the lines, evenly over the file: its beginning may be of one kind."""
    if not count or count >= len(lines):
        return lines
    return [lines[i * len(lines) // count] for i in range(count)]


def chosen(options):
    """{name: a file of the prompts that were chosen}; the files go with the returned folder."""
    folder = tempfile.TemporaryDirectory(prefix="paceline-prompts-")
    sets = {}
    if options.own:
        sets["own"] = [line for path in sorted(OWN.glob("*.jsonl")) for line in lines_of(path)]
    for name, path in (("HumanEval", options.humaneval), ("MT-bench", options.mt_bench),
                       ("GSM8K", options.gsm8k), ("MBPP", options.mbpp)):
        if path:
            sets[name] = lines_of(path)
    for path in options.prompts:
        sets[path.stem] = lines_of(path)
    files = {}
    for name, lines in sets.items():
        file = pathlib.Path(folder.name) / f"{name}.jsonl"
        file.write_text("".join(line.rstrip("\n") + "\n" for line in spread(lines, options.first)))
        files[name] = file
    return files, folder
