"""Configures a build folder and builds the programs of contents.PROGRAMS in it."""

import re
import shutil
import subprocess
from pathlib import Path

from contents import PROGRAMS

# Of an archive: cards of compute capability 9.0, wgmma included. A list as CMake takes it.
PACKED_ARCHITECTURES = "90a-real"


class BuildError(Exception):
    """What could not be configured or compiled, with the last lines."""


def _run(command: list, log: Path) -> str:
    with open(log, "ab") as file:
        file.write(("$ " + " ".join(map(str, command)) + "\n").encode())
        file.flush()
        begin = file.tell()
        code = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=file,
                              stderr=subprocess.STDOUT, check=False).returncode
    text = log.read_bytes()[begin:].decode(errors="replace")
    if code != 0:
        last = [line for line in text.splitlines() if line.strip()][-12:]
        raise BuildError("\n".join([f"{command[0]} {command[1]}: exit code {code}, all of it in {log}", *last]))
    return text


def cached(build: Path, name: str) -> str:
    """A variable of the folder's CMake cache; empty if it is not there."""
    cache = build / "CMakeCache.txt"
    if not cache.is_file():
        return ""
    found = re.search(rf"^{name}:\w+=(.*)$", cache.read_text(encoding="utf-8"), re.M)
    return found.group(1) if found else ""


def has_nvcc(build: Path) -> bool:
    return "nvcc" in cached(build, "CMAKE_CUDA_COMPILER")


def configure(root: Path, build: Path, architectures: str) -> str:
    """Release, with tests. `architectures`: of CMAKE_CUDA_ARCHITECTURES; empty: what the build has by itself."""
    build.mkdir(parents=True, exist_ok=True)
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    wanted = [f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"] if architectures else []
    text = _run(["cmake", *generator, "-S", root, "-B", build, "-DCMAKE_BUILD_TYPE=Release", *wanted],
                build / "configure.log")
    said = re.findall(r"^-- (CUDA:.*)$", text, re.M)
    return said[-1] if said else ""


def compile_programs(build: Path, kind: str, jobs: str) -> list:
    """Builds what the folder knows of the programs of `kind`; returns the names of their targets."""
    targets = [Path(program.built(kind)).name for program in PROGRAMS if program.built(kind)]
    known = _run(["cmake", "--build", build, "--target", "help"], build / "compile.log")
    # Ninja's list leaves out a program whose file is in the top folder, but not what its objects wait for.
    lead = r"(^|\s|/|cmake_object_order_depends_target_)"
    targets = [name for name in targets if re.search(rf"{lead}{re.escape(name)}(:|\s|$)", known, re.M)]
    if targets:
        _run(["cmake", "--build", build, "-j", jobs, "--target", *targets], build / "compile.log")
    return targets
