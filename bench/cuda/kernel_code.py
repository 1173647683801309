#!/usr/bin/env python3
"""What a compiler made of the kernels: registers, memory and instructions, as a Markdown table.

    bench/cuda/kernel_code.py                          # of build/*/ the newest paceline_cuda_bench or libpaceline_cuda.a
    bench/cuda/kernel_code.py FILE --only 'gemm_batch<(BF16|Int8)' --arch sm_90a

Needs cuobjdump (CUDA toolkit) and c++filt (binutils); no GPU. Columns: registers of a thread, static shared memory of
a block in bytes, local memory of a thread in bytes (stack and spilled registers), instructions without padding, those
of them on tensor cores, bytes of code. Nothing here is a time: that takes a device (paceline_cuda_bench).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HEADERS = [*sorted((ROOT / "model" / "kernels" / "cuda").rglob("*.hpp")), ROOT / "model" / "weights" / "packed_type.hpp"]
BUILT = ("bench/cuda/paceline_cuda_bench", "model/kernels/cuda/libpaceline_cuda.a")
HEADER = ["kernel", "registers", "shared", "local", "instructions", "tensor core", "bytes"]


class Problem(Exception):
    """Something that the user can mend; its text says how."""


def find_tool(name: str, given: str | None = None) -> str:
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    choices = [given] if given else [shutil.which(name), *(f"{folder}/bin/{name}" for folder in folders if folder)]
    for choice in choices:
        if choice and os.access(choice, os.X_OK):
            return choice
    where = given or "PATH and the CUDA toolkit's bin"
    raise Problem(f"no {name} in {where}" + ("; name one with --cuobjdump FILE" if name == "cuobjdump" else ""))


def default_file() -> Path:
    found = [path for name in BUILT for path in ROOT.glob(f"build/*/{name}")]
    if not found:
        raise Problem("nothing is built: cmake --build build/release --target paceline_cuda_bench, or name a file")
    return max(found, key=lambda path: path.stat().st_mtime)


def output_of(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Problem(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def read_resources(text: str) -> dict:
    """(arch, mangled name) -> registers, static shared memory, stack and local memory."""
    kernels, arch, name = {}, "", ""
    for line in text.splitlines():
        if match := re.match(r"arch = (\S+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function (\S+):$", line):
            name = match[1]
        elif name and "REG:" in line:
            used = {key: int(value) for key, value in re.findall(r"(\w+):(\d+)", line)}
            kernels[arch, name] = dict(registers=used["REG"], shared=used.get("SHARED", 0),
                                       local=used.get("STACK", 0) + used.get("LOCAL", 0))
            name = ""
    return kernels


def read_code(text: str) -> dict:
    """(arch, mangled name) -> instructions without padding, those on tensor cores, bytes."""
    kernels, arch, code = {}, "", None
    for line in text.splitlines():
        if match := re.match(r"arch = (\S+)", line):
            arch, code = match[1], None
        elif match := re.match(r"\s*Function : (\S+)", line):
            code = kernels.setdefault((arch, match[1]), dict(instructions=0, tensor=0, bytes=0))
        elif code is not None and (match := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ +)?([A-Z][A-Z0-9_]*)", line)):
            code["bytes"] = int(match[1], 16) + 16
            code["instructions"] += match[2] != "NOP"
            code["tensor"] += bool(re.fullmatch(r"[A-Z]*(MMA|GMMA)", match[2]))
    return kernels


def read_enums(headers: list) -> dict:
    """Names of the values of each `enum class` of the headers: demangled names have numbers only."""
    enums = {}
    for path in headers:
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        for name, body in re.findall(r"enum class (\w+)[^{;]*\{([^}]*)\}", text):
            enums[name] = [value.strip() for value in body.split(",") if value.strip()]
    return enums


def short_name(demangled: str, enums: dict) -> str:
    """'gemm_batch<BF16, 1, 2>'."""
    text = re.sub(r"paceline::(cuda::)?|attention::|tiled::|\(anonymous namespace\)::|^void ", "", demangled)

    def named(match):
        values = enums.get(match[1], [])
        return values[int(match[2])] if int(match[2]) < len(values) else match[2]

    text = re.sub(r"\((\w+)\)(\d+)", named, text)
    depth, end = 0, len(text)
    for i, letter in enumerate(text):  # the arguments begin at the first bracket outside of <>
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            end = i
            break
    return text[:end]


def table_of(resources: dict, code: dict, names: dict, only: str) -> dict:
    """arch -> rows of the table, by name; one for each kernel that both listings have."""
    tables = {}
    for key in sorted(resources.keys() & code.keys()):
        arch, mangled = key
        kernel = names[mangled]
        if not re.search(only, kernel):
            continue
        used, what = resources[key], code[key]
        tables.setdefault(arch, []).append(
            [kernel, used["registers"], used["shared"], used["local"], what["instructions"], what["tensor"],
             what["bytes"]])
    return {arch: sorted(rows) for arch, rows in tables.items()}


def markdown(rows: list) -> str:
    lines = ["| " + " | ".join(HEADER) + " |", "|---|" + "---:|" * (len(HEADER) - 1)]
    return "\n".join(lines + ["| " + " | ".join(f"`{cell}`" if i == 0 else f"{cell:,}"
                                                for i, cell in enumerate(row)) + " |" for row in rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, help="a program, library or object with CUDA code")
    parser.add_argument("--only", default="", metavar="REGEX", help="kernels whose short name contains it")
    parser.add_argument("--arch", help="such as sm_90a; default: all")
    parser.add_argument("--cuobjdump", metavar="FILE", help="default: that of PATH or of the CUDA toolkit")
    arguments = parser.parse_args()
    try:
        tool, filt = find_tool("cuobjdump", arguments.cuobjdump), find_tool("c++filt")
        file = arguments.file or default_file()
        if not file.is_file():
            raise Problem(f"{file} does not exist")
        resources = read_resources(output_of([tool, "-res-usage", str(file)]))
        code = read_code(output_of([tool, "-sass", str(file)]))
        mangled = sorted({name for _, name in resources})
        demangled = output_of([filt], "\n".join(mangled)).splitlines()
        enums = read_enums(HEADERS)
        names = {name: short_name(text, enums) for name, text in zip(mangled, demangled)}
        tables = table_of(resources, code, names, arguments.only)
        if arguments.arch:
            if arguments.arch not in tables:
                raise Problem(f"{file} has no such kernels for {arguments.arch}; it has {', '.join(tables) or 'none'}")
            tables = {arguments.arch: tables[arguments.arch]}
        if not tables:
            raise Problem(f"{file} has no kernels" + (f" like '{arguments.only}'" if arguments.only else ""))
    except Problem as problem:
        print(f"kernel_code.py: {problem}", file=sys.stderr)
        return 1
    for arch, rows in tables.items():
        print(f"{arch}:\n\n{markdown(rows)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
