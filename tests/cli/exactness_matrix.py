#!/usr/bin/env python3
"""Whatever the method, its text is plain decoding's: all pairs of settings, over many prompts.

    tests/cli/exactness_matrix.py                     64 prompts of 256 tokens: hours
    tests/cli/exactness_matrix.py --whole --first 8 -n 32 --kills 2 -t 1
                                                      all combinations, see below: thousands of rows
    tests/cli/exactness_matrix.py --first 8 -n 64     a quick look
    tests/cli/exactness_matrix.py --list              the rows, and the pairs that cannot be
    tests/cli/exactness_matrix.py --rows 3 17         these rows alone

Two tables are run, each of them a covering array (exactness_rows.py). The matrix: every method,
greedy and seeded, bf16, int8 and 4-bit, 1, 2 and 4 processes, 1, 8 and 32 answers at once, a KV
cache of whole contexts for all, for 2 and for 1.2, prompts of their own and such that begin alike
(each of them twice), processes killed or not, plain text, log probabilities, penalties or JSON by a schema, the draft as
the method has it or the model itself (always right, if in time). The edges: every method in every case of CASES. Each row
is a `paceline check`, which decodes all prompts plainly first. Methods with a datastore get one of the prompts' texts. A
row that differs, fails or does not end is printed with its command; its configuration is kept. Exit code 1 if there was
one.

With --whole no selection is made: each method with each sampling, number of requests, wish (log probabilities, penalties,
schema), with kills and without, and with a cache that preempts answers and without. The other settings take their values
in turn. `tests/cli/exactness_test.py`, which CI runs, has the two covering arrays on a small model.
"""

import argparse
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from exactness_rows import (PROCESSES, Abilities, Factors, Row, check_covering, covering_array,
                            has_datastore, has_draft, impossible, processes_max, reshaped)
from paceline_cli import BINARY, demo_model, environment

PROMPTS = Path(__file__).resolve().parent / "exactness_prompts.jsonl"
SAMPLING = {"greedy": [], "seeded": ["--temp", "0.8", "--top-p", "0.95"]}
REQUESTS = ["1", "8", "32"]
CACHES = {"whole": 0.0, "2": 2.0, "1.2": 1.2}  # contexts of CONTEXT tokens that have room; 0: all
CONTEXT = 512
PENALTIES = ["--repeat-penalty", "1.3", "--presence-penalty", "0.2", "--frequency-penalty", "0.1"]
SCHEMA = Path(__file__).resolve().parent / "exactness_schema.json"
WANTS = {"text": [], "log probabilities": ["--logprobs", "3"], "penalties": PENALTIES,
         "a JSON schema": ["--json-schema", str(SCHEMA)]}
PREFIX = ("You are the clerk of a small library. A book of the first shelf is lent for two weeks, one "
          "of the second for four, and a late book costs two coins a day. ")
END_TOKEN = 2  # <|im_end|> of the demo model and of the fixture

# Options of `check` in the cases that others get wrong; "stop text" is a `run`.
CASES = {
    "one token": ["-n", "1"],
    "two tokens": ["-n", "2"],
    "context full": ["-c", "120", "-n", "200"],
    "penalties": [*SAMPLING["seeded"], *PENALTIES],
    "end token": ["--temp", "1", "--logit-bias", f"{END_TOKEN}=9"],
    "prompt of one token": ["--temp", "0.8"],
    "stop text": [],
    "stalls": ["--stalls", "2"],
    "slow process": ["--delay", "p0:80"],  # the draft's, where it has one of its own
}
SHORT_PROMPTS = ["a", "Why?", "one two three one two three one two", "Count: 1, 2, 3, 4, 5, 6"]
ONE_TOKEN_PROMPTS = ["a", "b", "!", "0"]


@dataclass
class Task:
    """What all rows have in common."""

    model: str
    raw_model: str  # the same without its chat template: prompts are read as they are
    folder: Path  # configurations and answers
    kv_token_bytes: int  # of the model, as `check` keeps keys and values
    first: int = 64  # prompts of each row; as many as its requests, if these are more
    tokens: int = 256  # of so many tokens
    kills: int = 8
    threads: int = 0  # of each process; 0: all cores
    seed: int = 0  # of the first row; each has its own
    timeout: float = 7200.0

    def options(self) -> list[str]:
        return ["-t", str(self.threads)] if self.threads else []


@dataclass
class Outcome:
    command: list[str]
    seconds: float
    wrong: str  # what differed or failed; "" if nothing
    figures: dict


def methods() -> list[str]:
    listed = subprocess.run([BINARY, "run", "--list-methods", "all"], capture_output=True, text=True,
                            check=True)
    names = [line.split()[0] for line in listed.stdout.splitlines() if not line.startswith(" ")]
    return sorted(name for name in names if name != "plain")


def toml_of(method: str) -> str:
    """The method's settings with those that its file extends."""
    return subprocess.run([BINARY, "run", "--method", method, "--print-config"], capture_output=True, text=True,
                          check=True).stdout


def matrix_factors(names: list[str]) -> Factors:
    return {"method": names, "sampling": list(SAMPLING), "dtype": ["bf16", "int8", "q4"],
            "processes": PROCESSES, "requests": REQUESTS, "cache": list(CACHES),
            "prompts": ["own", "alike"], "kills": ["no", "yes"], "draft": ["own", "itself"],
            "wants": list(WANTS)}


def edge_factors(names: list[str]) -> Factors:
    return {"method": names, "case": list(CASES), "processes": PROCESSES,
            "requests": REQUESTS[:2], "draft": ["own", "itself"]}


def whole_rows(names: list[str], can: Abilities) -> list[Row]:
    """Every combination of what the title of --whole says; the other factors take their values in turn."""
    factors = matrix_factors(names)
    crossed = {"method": names, "sampling": factors["sampling"], "requests": factors["requests"],
               "wants": [wish for wish in WANTS if wish != "text"], "kills": factors["kills"],
               "cache": ["whole", "1.2"]}
    turns = {name: itertools.count() for name in factors if name not in crossed}
    rows = []
    for values in itertools.product(*crossed.values()):
        row = dict(zip(crossed, values))
        for name, turn in turns.items():
            possible = [value for value in factors[name]
                        if not impossible((("method", row["method"]), (name, value)), can)]
            row[name] = possible[next(turn) % len(possible)]
        rows.append({name: row[name] for name in factors})
    return rows


def abilities(names: list[str]) -> Abilities:
    return Abilities(frozenset(name for name in names if has_draft(toml_of(name))),
                     {name: processes_max(toml_of(name)) for name in names})


def table(factors: Factors) -> tuple[list[Row], dict]:
    rows, never = covering_array(factors, abilities(factors["method"]))
    check_covering(factors, rows, never)
    return rows, never


def row_text(row: Row) -> str:
    return "  ".join(f"{name}={value}" for name, value in row.items())


def datastore(task: Task) -> str:
    """Of the texts of all prompts, made once."""
    path = task.folder / "prompts.store"
    if not path.exists():
        subprocess.run([BINARY, "datastore", "-m", task.model, str(PROMPTS), "-o", str(path)], capture_output=True,
                       check=True, env=environment())
    return str(path)


def config_of(row: Row, name: str, task: Task) -> list[str]:
    path = task.folder / f"{name}.toml"
    text = toml_of(row["method"])
    store = datastore(task) if has_datastore(text) else ""
    path.write_text(reshaped(text, int(row["processes"]), task.threads, store))
    draft = ["--draft-model", task.model] if row["draft"] == "itself" else []
    return ["--config", str(path), *draft]


def prompts_file(prompts: list[str], name: str, task: Task) -> str:
    path = task.folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts))
    return str(path)


def kv_token_bytes(model: str) -> int:
    """From what `check` says of a size that is too small."""
    said = subprocess.run([BINARY, "check", "-m", model, "--method", "autoregressive", "-c", str(CONTEXT),
                           "--kv-memory", "1"], capture_output=True, text=True, check=False, env=environment())
    found = re.search(r"(\d+) bytes each", said.stderr)
    if not found:
        sys.exit(f"exactness_matrix.py: {said.stderr.strip()}")
    return int(found.group(1))


def cache_options(row: Row, task: Task) -> list[str]:
    contexts = CACHES[row["cache"]]
    if not contexts:
        return []
    return ["-c", str(CONTEXT), "--kv-memory", str(int(contexts * CONTEXT * task.kv_token_bytes))]


def alike_prompts(first: int, task: Task) -> str:
    lines = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    prompts = [PREFIX + line["prompt"] for line in lines[:max(first // 2, 1)]]
    return prompts_file([prompt for prompt in prompts for _ in range(2)], "alike", task)


def matrix_command(row: Row, index: int, task: Task) -> list[str]:
    kills = task.kills if row["kills"] == "yes" else 0
    first = max(task.first, int(row["requests"]))  # so many answers are decoded at once
    prompts = alike_prompts(first, task) if row["prompts"] == "alike" else str(PROMPTS)
    return [BINARY, "check", "-m", task.model, *config_of(row, f"matrix-{index}", task),
            *task.options(), "--dtype", row["dtype"], *SAMPLING[row["sampling"]],
            "--seed", str(task.seed + index), "--prompts", prompts, "--first", str(first),
            "-n", str(task.tokens), "--requests", row["requests"], "--kills", str(kills),
            *WANTS[row["wants"]], *cache_options(row, task)]


def edge_command(row: Row, index: int, task: Task) -> list[str]:
    case, name = row["case"], f"edge-{index}"
    model, prompts = task.model, str(PROMPTS)
    if case == "prompt of one token":
        model, prompts = task.raw_model, prompts_file(ONE_TOKEN_PROMPTS, name, task)
    elif case == "context full":
        prompts = prompts_file(SHORT_PROMPTS, name, task)
    own = CASES[case]
    tokens = [] if "-n" in own else ["-n", str(task.tokens)]
    return [BINARY, "check", "-m", model, *config_of(row, name, task), *task.options(), *own,
            *tokens, "--seed", str(task.seed + index), "--prompts", prompts, "--first", str(task.first),
            "--requests", row["requests"]]


def run(command: list[str], task: Task) -> tuple[int | None, str, str]:
    """Exit code (None: it did not end in time), stdout, stderr."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=task.timeout, check=False,
                              env=environment())
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace"), "it did not end"
    return (done.returncode, done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"))


def processes_in(placement: str) -> int:
    """How many processes the table of the placement names, one line a stage."""
    rows = [line.split() for line in placement.splitlines()]
    return len({row[1] for row in rows if len(row) > 3 and row[3] == "cpu"})


def run_check(command: list[str], row: Row, task: Task) -> Outcome:
    """Runs a check. Its exit code is not believed alone: answers and processes are counted."""
    answer = task.folder / "check.json"
    answer.unlink(missing_ok=True)
    begun = time.monotonic()
    # -v: with the table of the stages.
    code, out, err = run([*command, "-v", "--json", str(answer)], task)
    seconds = time.monotonic() - begun
    written = answer.read_text() if answer.exists() else ""
    if code is None or not written:  # the file is opened first, and written last
        return Outcome(command, seconds, f"exit code {code}: {err.strip()[-2000:]}", {})
    figures = json.loads(written)
    empty = [p["id"] for p in figures["prompts"] if p["tokens"] == 0]
    wrong = ""
    if code != 0 or not figures["equal"]:
        lines = [line for line in out.splitlines()
                 if any(word in line for word in ("instead of", "no answer", "equality"))]
        wrong = "\n".join([f"exit code {code}", *lines, err.strip()[-2000:]])
    elif empty:
        wrong = f"answers without a token: {empty}"
    elif "names no file" in err:
        wrong = f"a datastore was left out: {err.strip()}"
    elif processes_in(err) != int(row["processes"]):
        wrong = f"{processes_in(err)} processes instead of {row['processes']}: {err.strip()}"
    return Outcome(command, seconds, wrong, figures)


def run_stop(row: Row, index: int, task: Task) -> Outcome:
    """A stop text that begins and ends in the middle of the answer, across tokens."""
    prompt = "one two three four one two three four one two three four one two"
    common = [BINARY, "run", "-m", task.model, "-p", prompt, "-n", str(min(task.tokens, 64)),
              *task.options(), *(SAMPLING["seeded"] if index % 2 else []),
              "--seed", str(task.seed + index)]
    method = config_of(row, f"edge-{index}", task)
    begun = time.monotonic()
    code, text, err = run(common, task)
    place = max(1, len(text) // 2)
    stop = ["--stop", text[place:place + 5]]
    answers = []
    for command in ([*common, *stop], [*common, *stop, *method]):
        ids = task.folder / "ids.json"
        ids.unlink(missing_ok=True)
        code, said, err = run([*command, "--ids", str(ids)], task)
        answers.append((code, said, ids.read_text() if ids.exists() else err))
    wrong = ""
    if answers[0] != answers[1]:
        wrong = f"{answers[1]} instead of {answers[0]}"
    elif code != 0 or not len(answers[0][1]) < len(text):
        wrong = f"exit code {code}; the text did not stop at {stop[1]!r}: {err.strip()[-1000:]}"
    return Outcome([*common, *stop, *method], time.monotonic() - begun, wrong, {})


def case_happened(case: str, outcome: Outcome, task: Task) -> str:
    """Why the run did not test what it is there for; "" if it did."""
    counts = [p["tokens"] for p in outcome.figures.get("prompts", [])]
    if not counts:
        return ""
    if case == "context full" and not all(count < 200 for count in counts):
        return f"no answer filled the context: {counts}"
    if case == "stalls" and outcome.figures["stalls"] == 0:
        return "nothing was stopped"
    if case == "end token" and not any(1 < count < task.tokens for count in counts):
        return f"no answer ended at an end token after the first one: {counts}"
    return ""


def run_row(row: Row, index: int, task: Task) -> Outcome:
    if row.get("case") == "stop text":
        return run_stop(row, index, task)
    if "case" not in row:
        outcome = run_check(matrix_command(row, index, task), row, task)
        if not outcome.wrong and row["kills"] == "yes" and outcome.figures["kills"] == 0:
            outcome.wrong = "nothing was killed"
        return outcome
    outcome = run_check(edge_command(row, index, task), row, task)
    outcome.wrong = outcome.wrong or case_happened(row["case"], outcome, task)
    return outcome


def summary(outcome: Outcome) -> str:
    figures = outcome.figures
    if not figures:
        return f"{outcome.seconds:6.1f} s"
    tokens = sum(p["tokens"] for p in figures["prompts"])
    return (f"{outcome.seconds:6.1f} s  {len(figures['prompts'])} answers, {tokens} tokens, "
            f"{figures['kills']} kills, {figures['replays']} replays, {figures['preemptions']} preemptions")


def write_raw_model(model: str, target: Path) -> str:
    """A copy of the file whose chat template nobody finds: one letter of its key is another."""
    key = b"tokenizer.chat_template"
    shutil.copyfile(model, target)
    with open(target, "r+b") as file:
        at = file.read(64 << 20).index(key)
        file.seek(at + len(key) - 1)
        file.write(b"_")
    return str(target)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=demo_model(), help="default: the demo model")
    parser.add_argument("--first", type=int, default=64, help="prompts of each row, at least as many as its requests")
    parser.add_argument("-n", type=int, default=256, help="most tokens of each answer")
    parser.add_argument("--kills", type=int, default=8, help="in each row that has kills")
    parser.add_argument("-t", "--threads", type=int, default=0, help="of each process; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the first row")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds for a row")
    parser.add_argument("--table", choices=["matrix", "edges", "both"], default="both")
    parser.add_argument("--whole", action="store_true", help="every combination instead of a selection")
    parser.add_argument("--rows", type=int, nargs="+", help="these rows alone, by number")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    names = methods()
    if options.whole:
        tables = {"whole": (whole_rows(names, abilities(names)), {})}
    else:
        tables = {"matrix": table(matrix_factors(names)), "edges": table(edge_factors(names))}
    if options.table != "both" and not options.whole:
        tables = {options.table: tables[options.table]}
    if options.list:
        for name, (rows, never) in tables.items():
            for index, row in enumerate(rows):
                print(f"{name} {index:3}  {row_text(row)}")
            for (one, a), (other, b) in sorted(never):
                print(f"{name}: never {one}={a} with {other}={b}: "
                      f"{never[(one, a), (other, b)]}")
        return 0
    if not options.model:
        sys.exit("exactness_matrix.py: no model: give -m FILE, or run launch/fetch_model")
    folder = Path(tempfile.mkdtemp(prefix="paceline-exactness-"))
    task = Task(options.model, write_raw_model(options.model, folder / "raw.gguf"), folder,
                kv_token_bytes(options.model), options.first, options.n, options.kills, options.threads, options.seed,
                options.timeout)
    wrong = ran = 0
    for name, (rows, _) in tables.items():
        for index, row in enumerate(rows):
            if options.rows and index not in options.rows:
                continue
            outcome = run_row(row, index, task)
            ran += 1
            print(f"{name} {index:3}  {'WRONG' if outcome.wrong else 'equal'}  {row_text(row)}  "
                  f"{summary(outcome)}", flush=True)
            if outcome.wrong:
                wrong += 1
                print(f"  {shlex.join(outcome.command)}\n  {outcome.wrong}", flush=True)
    print(f"{ran} rows, {wrong} of them wrong")
    os.unlink(task.raw_model)
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
