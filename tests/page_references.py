"""Checks that the pages name files, folders and functions that exist. Used by tests/lint.

Checked in README.md and docs/*.md:

    path                  `actors/target/dispatcher.cpp`, `bench/results/`: a file or a folder
    stem                  `actors/target/dispatcher`: at least one file of that name, any suffix
    path:function         `actors/target/dispatcher.cpp:Dispatcher::propose`: each name of the chain
                          occurs in the file (or in one of the files of a stem), the last one as a
                          function, a type or a constant
    [text](target)        a file beside the page
    ```cpp path           a block that shows a file: it equals the file

A word counts as a path if it begins with a top-level folder of the tree and a slash; folders that
builds make (build/) are not checked. Names with placeholders (`*`, `<`) are left out.
"""

import re
from pathlib import Path

PATH = r"(?:[\w.+-]+/)+[\w.+-]*"
NAME = r"~?\w+(?:::~?\w+)*"
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def reference_pattern(folders: list[str]) -> re.Pattern[str]:
    """A path below one of `folders`, with the function behind a colon if there is one."""
    tops = "|".join(re.escape(folder) for folder in sorted(folders))
    return re.compile(rf"(?<![\w/.~$<-])((?:{tops})/(?:{PATH})?[\w.+-]*)(\*|<)?(?::({NAME}))?")


def files_of(root: Path, name: str) -> list[Path]:
    """The files that a path or stem means; a folder means itself."""
    path = root / name
    if path.exists():
        return [path]
    if not path.parent.is_dir() or not path.name:
        return []
    return [file for file in sorted(path.parent.glob(path.name + ".*")) if file.is_file()]


def defines(text: str, chain: str) -> bool:
    """Whether a source names all of `chain`, the last as a function, a type or a constant."""
    *owners, last = chain.split("::")
    if not all(re.search(rf"\b{re.escape(owner)}\b", text) for owner in owners):
        return False
    name = re.escape(last)
    kinds = "class|struct|enum|enum class|concept|namespace|using|def"
    defined = rf"(?<!\w){name}\s*\(|\b(?:{kinds})\s+{name}\b|\bconstexpr\b[^;\n]*\s{name}\b"
    return re.search(defined, text) is not None


def check_reference(root: Path, name: str, function: str | None) -> str:
    """What is wrong with one reference, or ""."""
    files = files_of(root, name)
    if not files:
        return f"{name} does not exist"
    if function is None:
        return ""
    sources = [file for file in files if file.is_file()]
    if not sources:
        return f"{name}:{function} names a function of a folder"
    if any(defines(file.read_text(errors="replace"), function) for file in sources):
        return ""
    return f"{name} has no {function}"


def check_blocks(root: Path, text: str) -> list[tuple[int, str]]:
    """Blocks that differ from the file that they show: line and message."""
    return [(text.count("\n", 0, block.start()) + 1, f"the block differs from {block[1]}")
            for block in BLOCK.finditer(text)
            if not (root / block[1]).is_file() or (root / block[1]).read_text() != block[2]]


def check_page(root: Path, page: Path, folders: list[str]) -> list[str]:
    """The findings of one page, as file:line: message."""
    pattern = reference_pattern(folders)
    text = page.read_text()
    found = [f"{page.relative_to(root)}:{number}: {what}" for number, what in check_blocks(root, text)]
    for number, line in enumerate(text.split("\n"), 1):
        wrong = [check_reference(root, match[1].rstrip("."), match[3])
                 for match in pattern.finditer(line) if not match[2]]
        wrong += [f"{target} does not exist beside the page" for target in LINK.findall(line)
                  if "://" not in target and not (page.parent / target).exists()]
        found += [f"{page.relative_to(root)}:{number}: {what}" for what in wrong if what]
    return found


def check_pages(root: Path, files: list[Path]) -> list[str]:
    """The findings of README.md and docs/*.md; `files` are the files of the tree."""
    names = [file.relative_to(root) for file in files]
    folders = sorted({name.parts[0] for name in names if len(name.parts) > 1})
    pages = [name for name in names
             if str(name) == "README.md" or (name.parent == Path("docs") and name.suffix == ".md")]
    return [finding for page in pages for finding in check_page(root, root / page, folders)]
