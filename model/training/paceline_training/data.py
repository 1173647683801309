"""Makes the prompts and lets the target answer them: `paceline-train data`.

Everything lies below --work: prompts/train.jsonl and prompts/*heldout.jsonl, and for every part
answers/NAME-greedy and answers/NAME-sampled (temperature 1) with the shards and the prompts they
answer. Run the same command again after an interruption: what is there stays as it is.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from .make_prompts import Filter, Prompt, make, question_requests, questions_in
from .prompts import Exclusion, read_rows, write_rows
from .shards import Shards
from .short_list import always_kept, coverage, token_list

__all__ = ["add_arguments", "run", "token_list"]

LIST_SIZES = (4096, 6144, 8192)
QUESTIONS = "target-questions"  # prompts and answers of the step that makes the target ask


@dataclass(frozen=True)
class Part:
    """So many of the training prompts, in order, and the layers whose residuals are kept."""

    name: str
    count: int
    hidden: str

    @staticmethod
    def parse(word: str) -> "Part":
        name, _, rest = word.partition(":")
        count, _, hidden = rest.partition(":")
        if not name or "/" in name or not count.isdigit() or not int(count):
            raise argparse.ArgumentTypeError(f"'{word}' is not NAME:COUNT or NAME:COUNT:LAYERS")
        return Part(name, int(count), hidden)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--work", type=Path, required=True, help="folder of everything that is made")
    add("--prompts", type=Path, action="append", default=[], metavar="FILE",
        help="JSONL with prompts of yours (prompt, turns, question or text); repeatable")
    add("--exclude", type=Path, action="append", default=[], metavar="FILE",
        help="JSONL with prompts of benches and tests: never trained on; repeatable")
    add("--count", type=int, default=40000, help="training prompts in all (default: 40000)")
    add("--seed", type=int, default=1)
    add("--ask", type=int, default=0, metavar="N",
        help="first let the target write questions about N topics, and use them as prompts")
    add("--remake", action="store_true", help="make the prompts again even if they are there")
    add("--prompts-only", action="store_true", help="stop when the prompts are there")
    add("-m", "--model", type=Path, help="the target, a GGUF file")
    add("--paceline", default="paceline", metavar="PROGRAM")
    add("--part", type=Part.parse, action="append", default=[], metavar="NAME:COUNT[:LAYERS]",
        help="answers of the next COUNT training prompts; LAYERS such as 15,20,30: their "
             "residuals are kept (dim * 2 bytes a token and layer); repeatable")
    add("--held-out", type=int, default=200, metavar="N",
        help="answers to N prompts of each held-out file (default: 200)")
    add("--held-out-hidden", default="", metavar="LAYERS")
    add("--samples", type=int, default=1, help="answers at temperature 1 per prompt; 0: none")
    add("-n", "--max-tokens", type=int, default=256)
    add("--requests", type=int, default=32, help="answers at a time")
    add("--top", type=int, default=16, help="tokens kept of each distribution")
    add("--shard-size", type=int, default=500)
    add("-t", "--threads", type=int, default=0, help="0: as many as the program takes by itself")


def run(options: argparse.Namespace) -> int:
    if not options.prompts_only and options.model is None:
        raise ValueError("--model: the target that answers is missing (or give --prompts-only)")
    folder = options.work / "prompts"
    if options.remake or not (folder / "train.jsonl").is_file():
        make_files(options, folder)
    rows = read_rows(folder / "train.jsonl")
    held_out = {path.stem: read_rows(path) for path in sorted(folder.glob("*-heldout.jsonl"))}
    print_counts("training prompts", rows)
    for name, found in held_out.items():
        print_counts(name, found)
    if options.prompts_only:
        return 0
    for name, found in held_out.items():
        answer_both(options, Part(name, options.held_out, options.held_out_hidden), found)
    begin = 0
    for part in options.part:
        if begin + part.count > len(rows):
            print(f"paceline-train data: part {part.name} asks for prompts {begin} to "
                  f"{begin + part.count}, there are {len(rows)}", file=sys.stderr)
        answer_both(options, part, rows[begin:])
        begin += part.count
    if options.part and held_out:
        print_coverage(options, list(held_out))
    return 0


def make_files(options: argparse.Namespace, folder: Path) -> None:
    exclusion = Exclusion(options.exclude)
    files = list(options.prompts)
    if options.ask:
        files.append(ask_target(options, exclusion, folder))
    made = make(files, exclusion, options.count, options.seed)
    held_out: list[Prompt] = []
    for stem, prompts in made.held_out.items():
        write_rows(folder / f"{stem}-heldout.jsonl", (prompt.row() for prompt in prompts))
        held_out += prompts[:options.held_out]
    Random(options.seed).shuffle(held_out)
    write_rows(folder / "heldout.jsonl", (prompt.row() for prompt in held_out))
    # Last: that it is there says that all of them are.
    write_rows(folder / "train.jsonl", (prompt.row() for prompt in made.train))
    reasons = ", ".join(f"{count} {reason}" for reason, count in made.dropped.items())
    print(f"prompts left out: {reasons} (excluded: they share 13 words with an excluded prompt)")


def print_counts(what: str, rows: list[dict]) -> None:
    counts = Counter(row["source"] for row in rows)
    print(f"{len(rows)} {what}: " + ", ".join(f"{n} {s}" for s, n in counts.most_common()))


def ask_target(options: argparse.Namespace, exclusion: Exclusion, folder: Path) -> Path:
    """A file of prompts that the target wrote."""
    path = folder / f"{QUESTIONS}.jsonl"
    if path.is_file() and not options.remake:
        return path
    if options.model is None:
        raise ValueError("--ask: needs --model")
    rows = [prompt.row() for prompt in question_requests(options.ask, options.seed)]
    answers = options.work / "answers" / QUESTIONS
    # A small model asks nonsense at temperature 1, and about the same things when it is greedy.
    generate(options, answers, rows, "", ["--temp", "0.7", "--top-p", "0.9"])
    filtered = Filter(exclusion, set())
    found = questions_in(texts_of(options, Shards([answers])), filtered.keeps)
    write_rows(path, (prompt.row() for prompt in found))
    print(f"{len(found)} prompts written by the target on {len(rows)} topics")
    return path


def texts_of(options: argparse.Namespace, shards: Shards) -> Iterator[str]:
    """What the answers say, by the program's own tokenizer."""
    for answer in shards.answers:
        ids = answer.tokens[answer.prompt_tokens:]
        if not len(ids):
            continue
        shown = subprocess.run([options.paceline, "tokenize", "-m", str(options.model), "--decode",
                                "--", json.dumps(ids.tolist())], capture_output=True, check=False)
        if shown.returncode:
            raise ValueError(f"{options.paceline} tokenize --decode: exit {shown.returncode}: "
                             + shown.stderr.decode(errors="replace").strip())
        yield shown.stdout.decode(errors="replace")


def answer_both(options: argparse.Namespace, part: Part, rows: list[dict]) -> None:
    """Greedy answers, and --samples of temperature 1, to the first prompts of `rows`."""
    answers = options.work / "answers"
    chosen = rows[:part.count]
    if not chosen:
        return
    generate(options, answers / f"{part.name}-greedy", chosen, part.hidden, ["--temp", "0"])
    if options.samples:
        generate(options, answers / f"{part.name}-sampled", chosen, part.hidden,
                 ["--temp", "1", "--seed", str(options.seed), "--samples", str(options.samples)])


def generate(options: argparse.Namespace, folder: Path, rows: list[dict], hidden: str,
             sampling: list[str]) -> None:
    """Runs `paceline generate`, which goes on where it was interrupted."""
    prompts = folder / "prompts.jsonl"
    if prompts.is_file() and read_rows(prompts) != rows:
        raise ValueError(f"{folder}: answers to other prompts are there; choose another name for "
                         "the part, or delete them")
    write_rows(prompts, rows)
    command = [options.paceline, "generate", "-m", str(options.model), "--prompts", str(prompts),
               "-o", str(folder), "-n", str(options.max_tokens), "--requests",
               str(options.requests), "--top", str(options.top), "--shard-size",
               str(options.shard_size), *sampling]
    command += ["--hidden", hidden] if hidden else []
    command += ["-t", str(options.threads)] if options.threads else []
    print(f"{folder.name}: {len(rows)} prompts", flush=True)
    try:
        code = subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        raise ValueError(f"--paceline: there is no program '{options.paceline}'") from None
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise ValueError(f"{' '.join(command)}: exit {code}")


def print_coverage(options: argparse.Namespace, held_out: list[str],
                   keep: Callable[[Path], list[int]] = always_kept) -> None:
    """How much of the held-out answers a short list of the training answers can say."""
    answers = options.work / "answers"
    kinds = ["greedy"] + (["sampled"] if options.samples else [])
    train = Shards([answers / f"{part.name}-{kind}" for part in options.part for kind in kinds])
    unseen = Shards([answers / f"{name}-{kind}" for name in held_out for kind in kinds])
    print(f"{len(train.answers)} training answers of {train.lengths.sum()} tokens with prompts")
    kept = keep(options.model)
    for size in LIST_SIZES:
        if len(kept) < size <= train.vocab_size:
            share = coverage(unseen, token_list(train, size, kept))
            print(f"a short list of {size} tokens covers {100 * share:.1f} % of held-out answers")
