"""Makes an archive that a bare machine runs: programs, their libraries, fixtures, shapes, configurations.

    paceline-gpu/run            bash and python3 are all it asks for
    paceline-gpu/manifest.json  kind, commit, architectures, oldest glibc, the model's parts
    paceline-gpu/bin, lib       programs, stripped; shared libraries but glibc's and the driver's
    paceline-gpu/tests, bench, configs    as in a checkout
"""

import json
import lzma
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import elf
import split
from build import PACKED_ARCHITECTURES
from contents import MANIFEST, PROGRAMS, data_files

TOP = "paceline-gpu"
BYTES_MAX = 20 << 20
ORIGIN = "$ORIGIN/../lib"


class PackError(Exception):
    """Why there is no archive."""


def commit_of(root: Path) -> str:
    """The checkout's commit, with a + after it where files differ; "unknown" without git."""
    asked = subprocess.run(["git", "describe", "--always", "--abbrev=10", "--dirty=+"], cwd=root,
                           capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else "unknown"


def copy_programs(build: Path, kind: str, folder: Path) -> list:
    """The programs of `kind`, stripped, by their names in an archive. Returns where they came from."""
    sources = []
    (folder / "bin").mkdir(parents=True)
    for program in PROGRAMS:
        if not program.built(kind):
            continue
        source = build / program.built(kind)
        if not source.is_file():
            raise PackError(f"{source} is not there: the build has no {'CUDA' if kind == 'gpu' else 'tests'}, "
                            "or was not made")
        target = folder / "bin" / program.name
        subprocess.run(["strip", "--strip-all", "-o", str(target), str(source)], check=True)
        target.chmod(0o755)
        sources.append(source)
    return sources


def carry_libraries(sources: list, folder: Path) -> list:
    """Copies every library that `sources` need, and that those need. Returns their names."""
    (folder / "lib").mkdir()
    waiting, carried = list(sources), []
    while waiting:
        file = waiting.pop()
        found = elf.located(file)
        for name in sorted(elf.from_elsewhere(file)):
            if name in carried:
                continue
            if name not in found:
                raise PackError(f"{file} needs {name}, which is not on this machine")
            target = folder / "lib" / name
            shutil.copyfile(found[name].resolve(), target)
            subprocess.run(["strip", "--strip-unneeded", str(target)], check=True)
            carried.append(name)
            waiting.append(found[name])
    return carried


def check_libraries(folder: Path) -> tuple:
    """The oldest glibc that runs all of it. Raises PackError for what would not be found elsewhere."""
    inside = {path.name for path in (folder / "lib").iterdir()}
    oldest = (2, 0)
    for path in sorted([*(folder / "bin").iterdir(), *(folder / "lib").iterdir()]):
        missing = elf.from_elsewhere(path) - inside
        if missing:
            raise PackError(f"{path.name} needs {', '.join(sorted(missing))}, which is not in the archive")
        wrong = [entry for entry in elf.search_path(path) if not entry.startswith("$ORIGIN")]
        if wrong:
            raise PackError(f"{path.name} looks for libraries in {wrong[0]}, a folder of this machine")
        if path.parent.name == "bin" and elf.from_elsewhere(path) and ORIGIN not in elf.search_path(path):
            raise PackError(f"{path.name} does not look for libraries in {ORIGIN}")
        oldest = max(oldest, elf.glibc_version(path))
    return oldest


def bundle(model: Path, trained: Path, to: Path) -> None:
    """One tar of the model and, if given, a folder of trained parts."""
    with tarfile.open(to, "w") as tar:
        tar.add(model, arcname=model.name, filter=_plain)
        for part in sorted(trained.glob("*.safetensors")) if trained else []:
            tar.add(part, arcname=f"share/paceline/pretrained/{trained.name}/{part.name}", filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of the machine that packs: no owner, no time."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = 0
    return entry


def write_archive(folder: Path, out: Path) -> None:
    half = out.with_name(out.name + ".half")
    # Programs share most of their code: a window over all of them has it once. Preset 1 takes 13 s instead of 8, for 4 %.
    window = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 128 << 20}]
    with lzma.open(half, "wb", filters=window) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, arcname=f"{TOP}/{path.relative_to(folder)}", recursive=False, filter=_plain)
    os.replace(half, out)


def pack(root: Path, build: Path, kind: str, architectures: str, out: Path, model: Path = None,
         trained: Path = None, part_bytes: int = 0) -> dict:
    """Writes `out`, and beside it OUT.model.00, .01, ... if there is a model. Returns the manifest."""
    with tempfile.TemporaryDirectory(prefix="paceline-pack-") as temporary:
        folder = Path(temporary) / TOP
        sources = copy_programs(build, kind, folder)
        libraries = carry_libraries(sources, folder)
        oldest = check_libraries(folder)
        for path in data_files(root):
            target = folder / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        shutil.copy(root / "tests/gpu_run/run.sh", folder / "run")
        manifest = {"kind": kind, "commit": commit_of(root), "architectures": architectures,
                    "glibc": ".".join(map(str, oldest)), "libraries": sorted(libraries)}
        out.parent.mkdir(parents=True, exist_ok=True)
        if model is not None:
            whole = Path(temporary) / "model.tar"
            bundle(model, trained, whole)
            manifest["model"] = {"file": model.name,
                                 "cut": split.cut(whole, f"{out.name}.model", part_bytes, out.parent)}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        write_archive(folder, out)
    # Code for further cards is the caller's choice, and size.
    if architectures in ("", PACKED_ARCHITECTURES) and out.stat().st_size > BYTES_MAX:
        raise PackError(f"{out} has {out.stat().st_size / (1 << 20):.1f} MiB, more than {BYTES_MAX >> 20}")
    return manifest
