"""Checks that the pages agree with the tree: files, functions, methods, data. Used by tests/lint.

Checked in README.md and docs/*.md:

    path                  `actors/segment/dispatcher.cpp`, `bench/results/`: a file or a folder
    stem                  `actors/segment/dispatcher`: at least one file of that name, any suffix
    path:function         `actors/segment/dispatcher.cpp:Dispatcher::propose`: each name of the chain
                          occurs in the file (or in one of the files of a stem), the last one as a
                          function, a type or a constant
    [text](target)        a file beside the page
    ```cpp path           a block that shows a file: it equals the file

Every method in configs/ has a section in docs/methods.md, and every bench/results/*.tsv names its command,
commit, date and machine, has rows of equal length and stands in the README beside it.

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
    """A path below one of `folders`, with the function after a colon if there is one."""
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


def check_methods(root: Path) -> list[str]:
    """Methods without a section. The cpu-*.toml are placements, not methods."""
    page = root / "docs/methods.md"
    if not page.is_file():
        return []
    sections = set(re.findall(r"(?m)^### (\S+)$", page.read_text()))
    methods = {file.stem for file in (root / "configs").glob("*.toml") if not file.stem.startswith("cpu-")}
    return ([f"docs/methods.md:1: no section '### {name}'" for name in sorted(methods - sections)]
            + [f"docs/methods.md:1: '### {name}' is not a method" for name in sorted(sections - methods)])


def check_results(root: Path) -> list[str]:
    """Data files without their conditions, with ragged rows, or that the README does not name."""
    folder = root / "bench/results"
    found = []
    for file in sorted(folder.glob("*.tsv")):
        name = file.relative_to(root)
        lines = file.read_text().splitlines()
        comments = [line for line in lines if line.startswith("# ")]
        found += [f"{name}:1: no line '# {key}: ...'" for key in ("command", "commit", "date", "machine")
                  if not any(line.startswith(f"# {key}: ") for line in comments)]
        columns = {line.count("\t") for line in lines[len(comments):]}
        if len(columns) != 1:
            found.append(f"{name}:1: rows of different length")
        if f"`{file.name}`" not in (folder / "README.md").read_text():
            found.append(f"bench/results/README.md:1: does not name {file.name}")
    return found


def check_pages(root: Path, files: list[Path]) -> list[str]:
    """All findings; `files` are the files of the tree."""
    names = [file.relative_to(root) for file in files]
    folders = sorted({name.parts[0] for name in names if len(name.parts) > 1})
    pages = [name for name in names
             if str(name) == "README.md" or (name.parent == Path("docs") and name.suffix == ".md")]
    found = [finding for page in pages for finding in check_page(root, root / page, folders)]
    return found + check_methods(root) + check_results(root)
