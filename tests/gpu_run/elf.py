"""What an ELF file asks of the machine that it runs on. Uses readelf and ldd of the packing machine."""

import re
import subprocess
from pathlib import Path

# glibc's own libraries, and the driver's: every machine that can run the archive has them.
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
DRIVER = {"libcuda.so.1"}


def _readelf(option: str, path: Path) -> str:
    return subprocess.run(["readelf", "--wide", option, str(path)], capture_output=True, text=True,
                          check=True).stdout


def is_elf(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needed(path: Path) -> list:
    """Names of the libraries that `path` is linked to."""
    return re.findall(r"\(NEEDED\).*\[(.+?)\]", _readelf("--dynamic", path))


def search_path(path: Path) -> list:
    """Folders of RPATH and RUNPATH, "$ORIGIN" as it stands there."""
    entries = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*?)\]", _readelf("--dynamic", path))
    return [folder for entry in entries for folder in entry.split(":") if folder]


def glibc_version(path: Path) -> tuple:
    """The oldest glibc that has every symbol that `path` uses, as (2, 34)."""
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", _readelf("--version-info", path))
    return max(((int(major), int(minor)) for major, minor in versions), default=(2, 0))


def from_elsewhere(path: Path) -> set:
    """Names that `path` is linked to and that an archive has to bring along."""
    return set(needed(path)) - GLIBC - DRIVER


def located(path: Path) -> dict:
    """Name to path of every library that the loader of this machine finds for `path`."""
    said = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
    return {name: Path(where) for name, where in re.findall(r"^\s*(\S+) => (/\S+)", said, re.M)}
