"""Prompts about code: functions to complete, to write, to explain and to correct; SQL, shell.

The raw form (a signature with a docstring and nothing else) is a share of its own: that is how
code benches ask. Their own functions are never used; see code_functions.py and code.txt.
"""

import re
from random import Random

from .code_functions import Function, make_function, stub
from .word_lists import article, lines, words

WEIGHTS = {"stub": 34, "write": 26, "sentence": 12, "class": 5, "sql": 5, "shell": 4, "explain": 9,
           "topic": 5}
TASK_STUBS = ['    """{task_upper}."""', '    """ {task_upper}.\n    """',
              "    ''' {task_upper}.\n    '''", '    """This function {task}.\n    """',
              "    # {task}"]
IMPORTS = ["import math\n", "from typing import List\n", "from collections import Counter\n"]
MISTAKES = [(" > ", " < "), (" < ", " >= "), ("== 0", "== 1"), ("!= 0", "== 0"),
            ("v.append(x", "v.append(v"), ("return ", "    return "), ("v = []", "v = {}"),
            ("sum(v)", "sum(x)"), ("sorted(v)", "v.sort()")]


def code_of(function: Function) -> str:
    return "\n".join([function.signature, *("    " + line for line in function.body())])


def broken(function: Function, rng: Random) -> str:
    """The function with one small mistake."""
    code = code_of(function)
    old, new = rng.choice([edit for edit in MISTAKES if edit[0] in code])
    head, _, tail = code.rpartition(old)
    return head + new + tail


def _task_words(rng: Random) -> dict[str, str]:
    signature, _, task = rng.choice(lines("code.txt")["tasks"]).partition(" | ")
    return {"signature": signature, "task": task, "name": signature.partition("(")[0],
            "task_upper": task[0].upper() + task[1:]}


def _words(rng: Random) -> dict[str, str]:
    def pick(section: str) -> str:
        return rng.choice(words(f"code_{section}"))

    name, _, methods = pick("class").partition(": ")
    table, table2 = rng.sample(words("code_table"), 2)
    return {"class": name, "methods": methods, "table": table, "table2": table2,
            "class_words": article(re.sub(r"(?<=[a-z])([A-Z])", r" \1", name).lower()),
            "column": pick("number_column"), "column2": pick("column"),
            "number": str(rng.randint(2, 50)), "suffix": pick("suffix"),
            "port": str(rng.choice([80, 443, 3000, 5432, 8000, 8080])),
            "pattern": pick("pattern"), "element": pick("element"), "concept": pick("concept"),
            "error": pick("error"), "language": pick("language")}


def _function_words(rng: Random) -> dict[str, str]:
    function = make_function(rng)
    value = function.value(function.arguments[0])
    return {"sentence": function.sentence, "name": function.name,
            "call": function.call(function.arguments[0]), "value": str(value),
            "value!r": repr(value), "stub": stub(function, rng), "body": code_of(function),
            "bug": broken(function, rng)}


def _fill(template: str, made: dict[str, str]) -> str:
    return re.sub(r"\{([a-z_0-9!]+)\}", lambda match: made[match.group(1)],
                  template.replace("\\n", "\n"))


def task_stub(rng: Random) -> str:
    """A task of code.txt as a signature with a docstring."""
    made = _task_words(rng)
    return _fill("def {signature}:\n" + rng.choice(TASK_STUBS) + "\n", made)


def raw_stub(rng: Random) -> str:
    """A signature with a docstring, sometimes behind imports or a helper."""
    text = task_stub(rng) if rng.random() < 0.25 else stub(make_function(rng), rng)
    lead = rng.random()
    if lead < 0.2:
        text = rng.choice(IMPORTS) + "\n\n" + text
    elif lead < 0.3:
        text = code_of(make_function(rng)) + "\n\n\n" + text
    return rng.choice(["", "", "\n"]) + text


def code_prompt(rng: Random) -> tuple[str, str]:
    """(kind, prompt)."""
    kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if kind == "stub":
        return kind, raw_stub(rng)
    template = rng.choice(lines("code.txt")[kind])
    made = _words(rng)
    made.update(_task_words(rng) if kind == "write" else _function_words(rng))
    return kind, _fill(template, made)
