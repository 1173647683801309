"""Prompt files: reading, the split rule, and prompts that must not be trained on.

A prompt file has a JSON object per line. What is asked is the first of "prompt" (text), "messages" (of a
conversation the user's first message), "turns" (its first text), "question" and "text" that it has. The
program reads the same keys, and a conversation whole.

The split rule never changes: a prompt is held out when the first byte of the SHA-256 of its text
(stripped, UTF-8) is below HELD_OUT_BYTES, that is about one in ten. Text means the task as its
source states it, so all wordings of one task lie on the same side.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

HELD_OUT_BYTES = 26
SHARED_WORDS = 13  # a run of so many equal words makes two prompts the same task


def read_rows(path: Path) -> list[dict]:
    """The objects of a JSONL file, .gz or not. ValueError names file and line."""
    opener = gzip.open if path.suffix == ".gz" else open
    rows = []
    with opener(path, "rt", encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number}: a {type(row).__name__}, not an object")
            rows.append(row)
    return rows


def text_of(row: dict) -> str | None:
    """What a row asks; None for a row without any of the fields."""
    for key in ("prompt", "messages", "turns", "question", "text"):
        value = row.get(key)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = next((message.get("content") for message in value
                          if isinstance(message, dict) and message.get("role") == "user"), None)
        elif isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, str):
            return value
    return None


def read_texts(path: Path) -> list[str]:
    """What the rows of a file ask. ValueError for a row without any of the fields."""
    texts = []
    for number, row in enumerate(read_rows(path), 1):
        text = text_of(row)
        if text is None:
            raise ValueError(f"{path}: row {number} has none of prompt, messages, turns, question, text: "
                             f"{json.dumps(row)[:80]}")
        texts.append(text)
    return texts


def is_held_out(text: str) -> bool:
    return hashlib.sha256(text.strip().encode()).digest()[0] < HELD_OUT_BYTES


def word_runs(text: str) -> set[tuple[str, ...]]:
    """All runs of SHARED_WORDS words, lower case; a shorter text is one run of its own."""
    words = re.findall(r"\w+", text.lower())
    if len(words) <= SHARED_WORDS:
        return {tuple(words)} if words else set()
    return {tuple(words[i:i + SHARED_WORDS]) for i in range(len(words) - SHARED_WORDS + 1)}


class Exclusion:
    """Prompts that a bench uses. A prompt that shares a run of words with one is not trained on."""

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self.runs: set[tuple[str, ...]] = set()
        for path in paths:
            for text in read_texts(path):
                self.runs |= word_runs(text)

    def hits(self, text: str) -> bool:
        return not self.runs.isdisjoint(word_runs(text))


def write_rows(path: Path, rows: Iterable[dict]) -> None:
    """Under another name first: a file of this name is always whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with open(part, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    part.replace(path)
