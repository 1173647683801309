#!/usr/bin/env python3
"""Writes unicode_tables.cpp and compatibility_table.cpp: what the Hugging Face tokenizers library knows of Unicode.

The library mixes three Unicode versions (its regex engine, Rust's standard library for Digits,
and an older crate for NFC), so the tables are not taken from any one version of the standard:
every code point is put through the library itself. Needs `pip install tokenizers`; the version
that was asked is written into the table's head.

    python3 make_unicode_tables.py > unicode_tables.cpp
    python3 make_unicode_tables.py compatibility > compatibility_table.cpp
"""

import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
COLUMNS_MAX = 100
LETTER, NUMBER, NUMERIC, SPACE, UPPER, LOWER, PUNCTUATION = 1, 2, 4, 8, 16, 32, 64
nfc = normalizers.NFC().normalize_str
nfd = normalizers.NFD().normalize_str
nfkd = normalizers.NFKD().normalize_str


def matched_by(regex):
    """The code points that the library's regex engine matches with `regex`."""
    split = pre_tokenizers.Split(Regex(regex), "removed")
    found = set()
    for start in range(0, len(CODE_POINTS), 2000):
        chunk = CODE_POINTS[start : start + 2000]
        kept = set()
        for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, chunk))):
            kept.update(range(begin, end))
        found.update(c for i, c in enumerate(chunk) if i not in kept)
    return found


def digits():
    """The code points that pre_tokenizers.Digits cuts off one by one."""
    split = pre_tokenizers.Digits(individual_digits=True)
    found = set()
    for start in range(0, len(CODE_POINTS), 1000):
        chunk = CODE_POINTS[start : start + 1000]
        for _, (begin, end) in split.pre_tokenize_str("".join("a" + chr(c) for c in chunk)):
            if begin % 2 == 1 and end == begin + 1:
                found.add(chunk[begin // 2])
    return found


def ranges(values):
    """[(first, last, value)] for the dict code point -> value, runs of one value merged."""
    out = []
    for c in sorted(values):
        if out and out[-1][1] == c - 1 and out[-1][2] == values[c]:
            out[-1] = (out[-1][0], c, values[c])
        else:
            out.append((c, c, values[c]))
    return out


def classes():
    values = {}
    for members, bit in (
        (matched_by(r"\p{L}"), LETTER),
        (matched_by(r"\p{N}"), NUMBER),
        (digits(), NUMERIC),
        (matched_by(r"\s"), SPACE),
        (matched_by(r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"), UPPER),
        (matched_by(r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"), LOWER),
        (matched_by(r"\p{P}"), PUNCTUATION),
    ):
        for c in members:
            values[c] = values.get(c, 0) | bit
    return values


def combining_classes():
    """Canonical combining classes, told from how the library orders a mark against others.

    One mark of each class, the oldest, serves as a yardstick; a mark that is ordered neither
    before nor after a yardstick, but is moved by another one, shares its class.
    """

    def after(c, mark):
        return nfd("x" + chr(c) + mark) == "x" + mark + chr(c)

    def before(c, mark):
        return nfd("x" + mark + chr(c)) == "x" + chr(c) + mark

    def known(c):
        return nfd(chr(c)) == chr(c) and (after(c, "\u0334") or before(c, "\u0345"))

    yardsticks = {}
    for c in CODE_POINTS:
        ccc = unicodedata.combining(chr(c))
        if ccc and ccc not in yardsticks and known(c):
            yardsticks[ccc] = chr(c)
    for low, high in zip(sorted(yardsticks), sorted(yardsticks)[1:]):
        if not after(ord(yardsticks[high]), yardsticks[low]):
            sys.exit(f"the library does not order the yardsticks {low} and {high}")

    values = {}
    for c in filter(known, CODE_POINTS):
        same = [
            k for k, m in yardsticks.items() if chr(c) == m or not (after(c, m) or before(c, m))
        ]
        if len(same) != 1:
            sys.exit(f"U+{c:04X} has no class among the yardsticks: {same}")
        values[c] = same[0]
    return values


def decompositions():
    """{c: (first, second or 0, does the pair compose again)}, Hangul syllables left out."""
    values = {}
    for c in CODE_POINTS:
        whole = nfd(chr(c))
        if whole == chr(c) or 0xAC00 <= c <= 0xD7A3:
            continue
        parts = [int(p, 16) for p in unicodedata.decomposition(chr(c)).split()]
        if not 1 <= len(parts) <= 2 or "".join(nfd(chr(p)) for p in parts) != whole:
            sys.exit(f"U+{c:04X} decomposes in an unknown way")
        composes = nfc(chr(c)) == chr(c)
        values[c] = (parts[0], parts[1] if len(parts) == 2 else 0, composes)
    return values


def rows(entries):
    line = "   "
    for entry in entries:
        if len(line) + 1 + len(entry) > COLUMNS_MAX:
            print(line)
            line = "   "
        line += " " + entry
    print(line)


def print_head():
    print("// Generated by make_unicode_tables.py from the Hugging Face tokenizers library")
    print(f"// {tokenizers.__version__}; do not edit.")


def print_compatibility():
    """What NFKD makes of a character where it is not what NFD makes of it."""
    print_head()
    print("// Long because it has every character that stands for others.")
    print('#include "model/tokenizer/unicode_tables.hpp"\n')
    print("namespace paceline::unicode {\nnamespace {\n\n// clang-format off")
    print("constexpr Compatibility kCompatibilityTable[] = {")
    entries = [(c, nfkd(chr(c))) for c in CODE_POINTS if nfkd(chr(c)) != nfd(chr(c))]
    rows(
        [
            f'{{0x{c:X}, U"' + "".join(f"\\x{ord(part):X}" for part in text) + '"},'
            for c, text in entries
        ]
    )
    print("};\n// clang-format on\n\n}  // namespace\n")
    print("std::span<const Compatibility> compatibilities() {\n    return kCompatibilityTable;\n}")
    print("\n}  // namespace paceline::unicode")


def main():
    if sys.argv[1:] == ["compatibility"]:
        return print_compatibility()
    print_head()
    print("// Long because it is the Unicode character database, as ranges.")
    print('#include "model/tokenizer/unicode_tables.hpp"\n')
    print("namespace paceline::unicode {\nnamespace {\n\n// clang-format off")
    print("constexpr ClassRange kClassRangeTable[] = {")
    rows([f"{{0x{a:X}, 0x{b:X}, {v}}}," for a, b, v in ranges(classes())])
    print("};\n")
    print("constexpr CombiningRange kCombiningRangeTable[] = {")
    rows([f"{{0x{a:X}, 0x{b:X}, {v}}}," for a, b, v in ranges(combining_classes())])
    print("};\n")
    print("constexpr Decomposition kDecompositionTable[] = {")
    rows(
        [
            f"{{0x{c:X}, 0x{a:X}, 0x{b:X}, {int(composes)}}},"
            for c, (a, b, composes) in sorted(decompositions().items())
        ]
    )
    print("};\n// clang-format on\n\n}  // namespace\n")
    for entry, name, table in (
        ("ClassRange", "class_ranges", "kClassRangeTable"),
        ("CombiningRange", "combining_ranges", "kCombiningRangeTable"),
        ("Decomposition", "decompositions", "kDecompositionTable"),
    ):
        print(f"std::span<const {entry}> {name}() {{\n    return {table};\n}}")
    print("\n}  // namespace paceline::unicode")


if __name__ == "__main__":
    main()
