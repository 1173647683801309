"""The training prompts: files of the user's, own templates and questions the target wrote.

Everything is fixed by a seed. The order is a fair mix: any prefix has about the SHARES of maths,
code and general prompts. No two prompts are equal.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from .code_prompts import code_prompt
from .general_prompts import general_prompt
from .maths_prompts import maths_prompt
from .prompts import Exclusion, is_held_out, read_rows, read_texts
from .word_lists import topics

SHARES = {"maths": 0.25, "code": 0.25, "general": 0.5}
OWN = {"maths": maths_prompt, "code": code_prompt, "general": general_prompt}
SUBJECTS = ("science", "technology", "history", "places", "food", "health", "work", "hobbies",
            "nature", "society", "arts")  # sections of topics.txt that questions are asked about
TASKS = tuple("Compare Create Describe Design Discuss Explain Find Give List Make Name Plan "
              "Summarize Suggest Tell Translate Write".split())  # how a task begins
TRIES_MAX = 200  # equal ones in a row before a generator is empty
OWN_HELD_OUT = 200  # own prompts of the held-out side
LETTERS = (12, 2000)  # of a prompt
MBPP_FORMS = ["{text}", "You are an expert Python programmer, and here is your task: {text} "
              "Your code should pass these tests:\n\n{tests}",
              "{signature}\n    \"\"\"{text}\n{examples}    \"\"\"\n"]


@dataclass(frozen=True)
class Prompt:
    id: str
    source: str  # gsm8k, mbpp, a file's stem, own-KIND, target
    text: str

    def row(self) -> dict[str, str]:
        return {"id": self.id, "source": self.source, "prompt": self.text}


def kind_of(source: str, text: str) -> str:
    """Which of the SHARES a prompt of a file counts to."""
    name = source.lower()
    if "gsm" in name or "math" in name:
        return "maths"
    if "mbpp" in name or "code" in name or re.search(r"^\s*def |\bPython\b|\bfunction\b", text):
        return "code"
    return "general"


def mbpp_prompts(row: dict, text: str, name: str) -> list[Prompt]:
    """A task in its wordings: as it is, with tests, and as a signature to complete."""
    tests = row.get("test_list") or []
    called = re.search(r"\w+(?=\()", " ".join(tests).removeprefix("assert"))
    signature = called and re.search(rf"^def {called.group()}\([^)\n]*\):",
                                     row.get("code", "").replace("\r", ""), re.M)
    examples = [re.sub(r"^assert\s+(.*?)\s*==\s*(.*)$", r"    >>> \1\n    \2\n", test)
                for test in tests[:2] if "==" in test]
    made = {"text": text, "tests": "\n".join(tests), "examples": "".join(examples),
            "signature": signature and signature.group()}
    forms = [MBPP_FORMS[0], *([MBPP_FORMS[1]] if tests else []),
             *([MBPP_FORMS[2]] if signature else [])]
    return [Prompt(f"{name}/{i}", "mbpp", form.format(**made)) for i, form in enumerate(forms)]


def file_prompts(path: Path) -> Iterator[tuple[bool, list[Prompt]]]:
    """(held out, wordings) of each row of a file. The side is decided by the task's own text."""
    for number, (row, text) in enumerate(zip(read_rows(path), read_texts(path))):
        text = text.strip()
        name = f"{path.stem}/{row.get('task_id', row.get('id', number))}"
        if "test_list" in row and "code" in row:
            made = mbpp_prompts(row, text, name)
        else:
            source = row.get("source") or ("gsm8k" if path.stem.startswith("gsm8k") else path.stem)
            made = [Prompt(name, source, text)]
        yield is_held_out(text), made


def own_prompts(kind: str, rng: Random, seen: set[str], held_out: bool = False) -> Iterator[Prompt]:
    """New prompts of a kind, of one side of the split, until its templates have no more."""
    number = tries = 0
    while tries < TRIES_MAX:
        sort, text = OWN[kind](rng)
        tries += 1
        if text in seen or is_held_out(text) != held_out:
            continue
        seen.add(text)
        yield Prompt(f"own-{kind}/{number}", f"own-{kind}-{sort}", text)
        number, tries = number + 1, 0


class Filter:
    """Drops what a bench uses, what is too short or long, and what came before; counts why."""

    def __init__(self, exclusion: Exclusion, seen: set[str]) -> None:
        self.exclusion, self.seen = exclusion, seen
        self.dropped = {"excluded": 0, "length": 0, "repeated": 0}

    def keeps(self, prompt: Prompt) -> bool:
        reason = ("repeated" if prompt.text in self.seen
                  else "length" if not LETTERS[0] <= len(prompt.text.strip()) <= LETTERS[1]
                  else "excluded" if self.exclusion.hits(prompt.text) else "")
        if reason:
            self.dropped[reason] += 1
            return False
        self.seen.add(prompt.text)
        return True


def mix(pools: dict[str, list[Prompt]], count: int, seed: int) -> list[Prompt]:
    """`count` prompts, each of the kind that is furthest behind its share."""
    for kind, pool in pools.items():
        Random(f"{seed} {kind}").shuffle(pool)
    taken = dict.fromkeys(pools, 0)
    mixed: list[Prompt] = []
    while len(mixed) < count:
        left = [kind for kind in pools if taken[kind] < len(pools[kind])]
        if not left:
            break
        kind = min(left, key=lambda k: (taken[k] + 0.5) / SHARES[k])
        mixed.append(pools[kind][taken[kind]])
        taken[kind] += 1
    return mixed


@dataclass
class Made:
    train: list[Prompt]
    held_out: dict[str, list[Prompt]]  # by file stem, "own" for own ones; one wording of each task
    dropped: dict[str, int]


def make(files: Iterable[Path], exclusion: Exclusion, count: int, seed: int) -> Made:
    """Training prompts, `count` of them if there are so many, and the files' held-out ones.

    A pool of a kind is filled with the files' prompts first and with own ones behind them.
    """
    held_out: dict[str, list[Prompt]] = {}
    own_seen: set[str] = set()
    filtered = Filter(exclusion, set())
    pools: dict[str, list[Prompt]] = {kind: [] for kind in SHARES}
    for path in files:
        for held, made in file_prompts(path):
            if held:
                held_out.setdefault(path.stem.removesuffix("_train"), []).append(made[0])
                own_seen |= {prompt.text for prompt in made}
                continue
            for prompt in filter(filtered.keeps, made):
                pools[kind_of(prompt.source, prompt.text)].append(prompt)
    for kind, share in SHARES.items():
        wanted = round(count * share)
        for prompt in own_prompts(kind, Random(f"{seed} own {kind}"), own_seen):
            if len(pools[kind]) >= wanted:
                break
            if filtered.keeps(prompt):
                pools[kind].append(prompt)
    held_out["own"] = mix({kind: list(islice(own_prompts(kind, Random(f"{seed} held out {kind}"),
                                                         set(), True), OWN_HELD_OUT))
                           for kind in SHARES}, OWN_HELD_OUT, seed)
    return Made(mix(pools, count, seed), held_out, filtered.dropped)


def question_requests(count: int, seed: int) -> list[Prompt]:
    """Prompts that make the target write questions, one per topic and wording."""
    forms = ["Write ten questions that a person may ask about {}.",
             "Write ten different tasks about {} that somebody may give to an assistant.",
             "List ten things that people often want to know about {}, each as a question."]
    texts = [form.format(topic) for section in SUBJECTS for topic in topics()[section]
             for form in forms]
    Random(seed).shuffle(texts)
    return [Prompt(f"ask/{number}", "ask", text) for number, text in enumerate(texts[:count])]


def questions_in(answers: Iterable[str], keeps: Callable[[Prompt], bool]) -> list[Prompt]:
    """The lines of the target's answers that are questions or tasks of their own."""
    found: list[Prompt] = []
    for line in (line for answer in answers for line in answer.splitlines()):
        numbered = re.match(r"\s*(?:\d+[.)]|[-*])\s+(.+)", line)
        if not numbered:
            continue
        text = re.sub(r"[*_`]{2,}", "", numbered.group(1)).strip().strip('"')
        asks = text.endswith("?") or (text.endswith(".") and text.startswith(TASKS))
        if not asks or not 4 <= len(text.split()) <= 40 or is_held_out(text):
            continue
        prompt = Prompt(f"target/{len(found)}", "target", text)
        if keeps(prompt):
            found.append(prompt)
    return found
