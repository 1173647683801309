"""Prompt sets of the benches: the project's own, HumanEval and MT-bench in their original files."""

import argparse
import gzip
import itertools
import json
import pathlib
import tempfile

OWN = pathlib.Path(__file__).resolve().parent / "prompts"
# Spec-Bench's tasks, each of 80 questions; MT-bench's categories are one task there.
SPEC_BENCH_TASKS = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")
MT_BENCH_CATEGORIES = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
# Of stories: who, where, what happens, what it is about.
STORY_PARTS = (
    ("a small dog named Max", "a girl named Lily", "an old fox", "a boy who cannot sleep", "two sisters", "a red train"),
    ("in a garden", "by the sea", "in a snowy forest", "at the market", "in a quiet town"),
    ("finds a lost key", "wants to help a friend", "finds a strange stone", "makes a mistake and says sorry"),
    ("being brave", "sharing", "telling the truth", "being patient"))


def add_options(parser):
    parser.add_argument("--humaneval", type=pathlib.Path, help="HumanEval.jsonl or .jsonl.gz")
    parser.add_argument("--mt-bench", type=pathlib.Path, help="mt_bench_question.jsonl")
    parser.add_argument("--gsm8k", type=pathlib.Path, help="a file of GSM8K problems")
    parser.add_argument("--mbpp", type=pathlib.Path, help="a file of MBPP tasks")
    parser.add_argument("--spec-bench", type=pathlib.Path,
                        help="Spec-Bench's question.jsonl: a set for each of its six tasks")
    parser.add_argument("--by-category", action="store_true", help="a set for each category of --mt-bench")
    parser.add_argument("--stories", type=int, default=0, help="so many story prompts from templates, as one more set")
    parser.add_argument("--prompts", type=pathlib.Path, action="append", default=[],
                        help="any other file that paceline check reads")
    parser.add_argument("--own", action=argparse.BooleanOptionalAction, default=True,
                        help="the project's own prompts (bench/prompts)")
    parser.add_argument("--first", type=int, default=0, help="so many prompts of each set; 0: all")


def lines_of(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig") as file:
        return [line for line in file if line.strip()]


def text_of(line):
    """What is asked, as launch/load/prompt_sets.hpp defines it; not of a conversation, which has no single text."""
    row = json.loads(line)
    for key in ("prompt", "turns", "question", "text"):
        if key in row:
            text = row[key] if isinstance(row[key], str) else row[key][0]
            if isinstance(text, str):
                return text
    raise SystemExit(f"a prompt without text: {line[:80]}")


def spec_bench(path):
    """{"Spec-Bench TASK": lines} of a file of Spec-Bench's form: question_id, category, turns."""
    sets = {f"Spec-Bench {task}": [] for task in SPEC_BENCH_TASKS}
    for number, line in enumerate(lines_of(path), 1):
        row = json.loads(line)
        turns = row.get("turns") if isinstance(row, dict) else None
        if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
            raise SystemExit(f"{path}: line {number}: no list of texts 'turns'")
        task = "mt_bench" if row.get("category") in MT_BENCH_CATEGORIES else row.get("category")
        if task not in SPEC_BENCH_TASKS:
            raise SystemExit(f"{path}: line {number}: category {row.get('category')!r} is none of Spec-Bench's: "
                             f"{', '.join((*SPEC_BENCH_TASKS[1:], *MT_BENCH_CATEGORIES))}")
        sets[f"Spec-Bench {task}"].append(line)
    return {name: lines for name, lines in sets.items() if lines}


def by_category(path):
    """{"MT-bench CATEGORY": lines}, in the order of the file."""
    sets = {}
    for line in lines_of(path):
        sets.setdefault(f"MT-bench {json.loads(line)['category']}", []).append(line)
    return sets


def stories(count):
    """Story prompts in the manner of TinyStories, all different; the same for the same count."""
    every = list(itertools.product(*STORY_PARTS))
    if count > len(every):
        raise SystemExit(f"--stories: there are {len(every)} of them")
    step = 101  # has no factor of their number, so that any of the first ones differ in all parts
    return [json.dumps({"id": f"story-{i + 1}", "prompt": f"Write a short story for young children about {who} {where} "
                        f"who {what}. The story should be about {moral}."})
            for i, (who, where, what, moral) in enumerate(every[i * step % len(every)] for i in range(count))]


def spread(lines, count):
    """`count` of the lines, evenly over the file: its beginning may be of one kind."""
    if not count or count >= len(lines):
        return lines
    return [lines[i * len(lines) // count] for i in range(count)]


def chosen(options):
    """{name: a file of the prompts that were chosen}; the files go with the returned folder."""
    sets = {}
    if options.own:
        sets["own"] = [line for path in sorted(OWN.glob("*.jsonl")) for line in lines_of(path)]
    for name, path in (("HumanEval", options.humaneval), ("MT-bench", options.mt_bench),
                       ("GSM8K", options.gsm8k), ("MBPP", options.mbpp)):
        if path and name == "MT-bench" and options.by_category:
            sets |= by_category(path)
        elif path:
            sets[name] = lines_of(path)
    if options.spec_bench:
        sets |= spec_bench(options.spec_bench)
    if options.stories:
        sets["stories"] = stories(options.stories)
    for path in options.prompts:
        sets[path.stem] = lines_of(path)
    files, folder = {}, tempfile.TemporaryDirectory(prefix="paceline-prompts-")
    for name, lines in sets.items():
        file = pathlib.Path(folder.name) / f"{name}.jsonl"
        file.write_text("".join(line.rstrip("\n") + "\n" for line in spread(lines, options.first)))
        files[name] = file
    return files, folder
