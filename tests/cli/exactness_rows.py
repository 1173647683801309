"""What the exactness tests run: covering arrays of settings, and pipelines in other shapes.

A covering array holds every pair of values of every two factors in at least one row. It is made by
a greedy algorithm on a fixed seed, so the rows are the same everywhere. A configuration is brought
to a number of processes by splitting its segments and by naming who shares a process; everything
else in it stays. Pure.
"""

import itertools
import random
import re
from dataclasses import dataclass

Row = dict[str, str]
Factors = dict[str, list[str]]
Pair = tuple[tuple[str, str], tuple[str, str]]  # (factor, value) twice

SEED = 20
CANDIDATES = 40  # rows that are drawn for each one that is taken
PROCESSES = ["1", "2", "4"]
# Kills follow each other faster than anywhere else: the limit on restarts is not under test.
SUPERVISION = ("\n[supervision]\nrestarts_max = 100000\nrestart_period_s = 1\nbackoff_ms = [0]\n"
               "recovery_limit_s = 120\n")


# --- covering arrays ---------------------------------------------------------------------------

@dataclass(frozen=True)
class Abilities:
    """What not every method can."""

    drafting: frozenset[str]  # methods with a draft, which a model could take the place of
    processes_max: dict[str, int]  # of methods that cannot be split into any number


def impossible(pair: Pair, can: Abilities) -> str:
    """Why the pair cannot be in any row; "" if it can."""
    values = dict(pair)
    if values.get("draft") == "itself" and values.get("method", "") not in can.drafting | {""}:
        return "the method has no draft that a model could take the place of"
    most = can.processes_max.get(values.get("method", ""), 4)
    if int(values.get("processes", "1")) > most:
        return f"the first segment drafts with more layers than one of {values['processes']} has"
    return ""


def pairs_of(factors: Factors) -> set[Pair]:
    return {((one, a), (other, b)) for one, other in itertools.combinations(factors, 2)
            for a in factors[one] for b in factors[other]}


def pairs_in(row: Row) -> set[Pair]:
    return set(itertools.combinations(row.items(), 2))


def completed(pair: Pair, factors: Factors, can: Abilities, uncovered: set[Pair],
              draw: random.Random) -> Row | None:
    """A row around a pair: each further factor takes the value that covers most; ties by lot."""
    fixed = dict(pair)
    order = [name for name in factors if name not in fixed]
    draw.shuffle(order)
    for name in order:
        best, most = [], -1
        for value in factors[name]:
            new = [tuple(sorted([(name, value), known], key=lambda p: list(factors).index(p[0])))
                   for known in fixed.items()]
            if any(impossible(p, can) for p in new):
                continue
            gain = sum(p in uncovered for p in new)
            best = best + [value] if gain == most else [value] if gain > most else best
            most = max(most, gain)
        if not best:
            return None
        fixed[name] = draw.choice(best)
    return {name: fixed[name] for name in factors}


def covering_array(factors: Factors, can: Abilities) -> tuple[list[Row], dict[Pair, str]]:
    """Rows that hold every pair that is possible, and the others with the reason."""
    draw = random.Random(SEED)
    reasons = {pair: impossible(pair, can) for pair in pairs_of(factors)}
    never = {pair: reason for pair, reason in reasons.items() if reason}
    uncovered = set(reasons) - set(never)
    rows = []
    while uncovered:
        candidates = [completed(draw.choice(sorted(uncovered)), factors, can, uncovered, draw)
                      for _ in range(CANDIDATES)]
        row = max((c for c in candidates if c), key=lambda c: len(pairs_in(c) & uncovered))
        uncovered -= pairs_in(row)
        rows.append(row)
    return rows, never


def check_covering(factors: Factors, rows: list[Row], never: dict[Pair, str]) -> None:
    """Counts again, from the rows alone: each pair is in a row or cannot be, and never both."""
    held = set().union(*(pairs_in(row) for row in rows))
    missing = pairs_of(factors) - held - set(never)
    assert not missing, f"pairs that no row holds: {sorted(missing)}"
    assert not held & set(never), f"impossible, but there: {sorted(held & set(never))}"


# --- shapes of a pipeline ----------------------------------------------------------------------

def tables_of(toml: str) -> list[tuple[str, list[str]]]:
    """The tables of a configuration in order, each with its lines; comments are left out."""
    tables = []
    for line in toml.splitlines():
        line = re.sub(r"\s+#.*|^#.*", "", line).strip()
        if line.startswith("["):
            tables.append((line.strip("[]"), []))
        elif line:
            tables[-1][1].append(line)
    return tables


def value_in(lines: list[str], key: str, default: str = "") -> str:
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip() == key:
            return value.strip().strip('"')
    return default


def has_draft(toml: str) -> bool:
    return any(name == "draft" for name, _ in tables_of(toml))


def has_datastore(toml: str) -> bool:
    return any(name == "draft" and "datastore" in value_in(lines, "source").split("+") for name, lines in tables_of(toml))


def processes_max(toml: str) -> int:
    """Into how many processes a method can be split whose first segment drafts for itself."""
    own = [lines for name, lines in tables_of(toml) if name == "self_draft"]
    if not own:
        return 4
    if value_in(own[0], "source", "exit") == "skip":
        return 1
    exit_at = float(value_in(own[0], "exit", "0.2667"))
    return 1 if exit_at >= 1 else int(1 / exit_at)


def segment_stages(stages: list[list[str]], count: int) -> list[str]:
    """The roles and exits of `count` segments in place of those of a configuration."""
    segments = [s for s in stages if value_in(s, "role") not in ("draft", "correct")]
    if value_in(segments[0], "role") == "early-verify":
        roles = ["early-verify"] + ["segment"] * (count - 2) + ["final-verify"]
        return [f'role = "{role}"\n' for role in roles]
    exits = any(value_in(s, "exit") == "true" for s in segments)
    return ['role = "segment"\n' + ("exit = true\n" if exits and i + 1 < count else "")
            for i in range(count)]


def reshaped(toml: str, processes: int, threads: int = 0, store: str = "") -> str:
    """The same method over so many processes; at least as many segments as it had. `store`: its datastore.

    One process: everybody in it. More: those who draft have the first ones (the draft and correct
    share it if there are fewer than four), the segments the others, in their order."""
    tables = tables_of(toml)
    for name, lines in tables:
        if store and name == "draft":
            lines.append(f'datastore = "{store}"')
    stages = [lines for name, lines in tables if name == "stage"]
    drafters = [value_in(s, "role") for s in stages if value_in(s, "role") in ("draft", "correct")]
    own = sum(int(value_in(s, "segments", "1")) for s in stages) - len(drafters)
    of_drafters = 0 if not drafters or processes == 1 else len(drafters) if processes > 3 else 1
    of_segments = max(1, processes - of_drafters)
    count = max(own, of_segments)
    limit = f"threads = {threads}\n" if threads else ""

    def stage(name: str, body: str, process: int) -> str:
        # Those who share a process share its threads: the first one says how many.
        share = limit if process not in seen else ""
        seen.add(process)
        return f'[[stage]]\nname = "{name}"\n{body}process = "p{process}"\n{share}\n'

    seen: set[int] = set()
    text = "".join(f"[{name}]\n" + "\n".join(lines) + "\n\n" for name, lines in tables
                   if name not in ("stage", "supervision"))
    for i, role in enumerate(drafters):
        text += stage(role, f'role = "{role}"\n', min(i, max(0, of_drafters - 1)))
    for i, body in enumerate(segment_stages(stages, count)):
        text += stage(f"segment-{i + 1}", body, of_drafters + i * of_segments // count)
    return text + SUPERVISION
