"""The text files that templates are made of: sections of topics, words and templates.

A file has [header] lines, # comments, and bodies: items between semicolons, or a line each.
"""

import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@cache
def sections(name: str) -> dict[str, str]:
    """{header: body} of a file beside this module."""
    text = re.sub(r"^#.*\n", "", (HERE / name).read_text(encoding="utf-8"), flags=re.M)
    parts = re.split(r"^\[(.+)\]$", text, flags=re.M)
    return {header: body.strip() for header, body in zip(parts[1::2], parts[2::2])}


@cache
def items(name: str) -> dict[str, list[str]]:
    """{header: items} of a file whose bodies are items between semicolons."""
    return {header: [item.strip() for item in body.replace("\n", " ").split(";") if item.strip()]
            for header, body in sections(name).items()}


@cache
def lines(name: str) -> dict[str, list[str]]:
    """{header: lines} of a file whose bodies have an item per line."""
    return {header: body.split("\n") for header, body in sections(name).items()}


def topics() -> dict[str, list[str]]:
    return items("topics.txt")


def words(section: str) -> list[str]:
    return items("words.txt")[section]


@cache
def weighted(name: str) -> list[tuple[str, int, list[str]]]:
    """(kind, weight, templates) of a file with [kind weight] headers."""
    return [(header.split()[0], int(header.split()[1]), body)
            for header, body in lines(name).items()]


def article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun
