"""Cuts a large file into parts for several transfers, and joins them again.

The description of a cut, {"name", "bytes", "sha256", "parts": [{"name", "bytes", "sha256"}]}, travels in
the archive's manifest; parts travel beside it, in any folder, in any order.
"""

import hashlib
from pathlib import Path

BLOCK = 1 << 20
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class SplitError(Exception):
    """A size that is none, or parts that do not give the file; names file and value."""


def parse_size(text: str) -> int:
    """Bytes of "24M", "512K", "1G" or a plain number; powers of 1,024."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if not number.isdigit() or unit not in UNITS or int(number) == 0:
        raise SplitError(f"'{text}' is not a size: a whole number above 0, with K, M or G after it or nothing")
    return int(number) * UNITS[unit]


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def cut(source: Path, stem: str, part_bytes: int, folder: Path) -> dict:
    """Writes folder/STEM.00, STEM.01, ... and returns their description."""
    parts = []
    with open(source, "rb") as file:
        while True:
            part = folder / f"{stem}.{len(parts):02d}"
            left = part_bytes
            with open(part, "wb") as out:
                while left > 0 and (block := file.read(min(BLOCK, left))):
                    out.write(block)
                    left -= len(block)
            if left == part_bytes:
                part.unlink()
                break
            parts.append({"name": part.name, "bytes": part_bytes - left, "sha256": sha256_of(part)})
    return {"name": source.name, "bytes": source.stat().st_size, "sha256": sha256_of(source), "parts": parts}


def find_parts(wanted: dict, places: list) -> list:
    """The parts' paths in their order, looked for among files and in folders. Raises SplitError."""
    found = []
    for part in wanted["parts"]:
        candidates = [place / part["name"] if place.is_dir() else place for place in places]
        here = [path for path in candidates if path.name == part["name"] and path.is_file()]
        if not here:
            raise SplitError(f"{part['name']}: not among {', '.join(map(str, places))}")
        found.append(here[0])
    return found


def join(wanted: dict, places: list, folder: Path) -> Path:
    """folder/NAME from its parts; every part and the whole are checked. Raises SplitError."""
    paths = find_parts(wanted, places)
    for part, path in zip(wanted["parts"], paths):
        if path.stat().st_size != part["bytes"] or sha256_of(path) != part["sha256"]:
            raise SplitError(f"{path}: not the part that the manifest describes (sha256 {part['sha256']})")
    joined = folder / wanted["name"]
    with open(joined, "wb") as out:
        for path in paths:
            with open(path, "rb") as file:
                for block in iter(lambda: file.read(BLOCK), b""):
                    out.write(block)
    if joined.stat().st_size != wanted["bytes"] or sha256_of(joined) != wanted["sha256"]:
        raise SplitError(f"{joined}: joined, and yet not the file of the manifest (sha256 {wanted['sha256']})")
    return joined
