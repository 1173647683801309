"""A root folder with nothing but glibc, bash and python3, and a command that runs in it.

For tests of what an archive brings along: a library of the machine that is not in the archive is not
there either. Debian's layout; needs root, or a kernel that lends user namespaces.
"""

import os
import shutil
import subprocess
from pathlib import Path

import elf

# What Python's own modules of the runner are linked to: ctypes, hashlib, lzma, zlib and their like.
PYTHON_LIBRARIES = ("_ctypes", "_hashlib", "_lzma", "_bz2", "_json")
OMITTED = ("test", "tests", "idlelib", "tkinter", "lib2to3", "site-packages", "dist-packages", "__pycache__",
            "ensurepip", "turtledemo", "pydoc_data")


def _copy_with_libraries(source: Path, root: Path, target: str) -> None:
    to = root / target.lstrip("/")
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, to)
    for name, path in elf.located(source).items():
        library = root / "lib/x86_64-linux-gnu" / name
        if not library.exists():
            shutil.copy(path.resolve(), library)


def make(root: Path) -> None:
    """Fills `root`. Raises FileNotFoundError where this machine has no /usr/bin/python3 or bash."""
    python = Path("/usr/bin/python3").resolve()
    version = python.name  # python3.11
    for folder in ("lib/x86_64-linux-gnu", "lib64", "bin", "usr/bin", "proc", "dev/shm", "tmp", "etc"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    _copy_with_libraries(python, root, "/usr/bin/python3")
    _copy_with_libraries(Path("/bin/bash").resolve(), root, "/bin/bash")
    for name in sorted(elf.GLIBC):
        place = "lib64" if name.startswith("ld-") else "lib/x86_64-linux-gnu"
        source = Path("/lib64" if name.startswith("ld-") else "/lib/x86_64-linux-gnu") / name
        if source.exists():
            shutil.copy(source.resolve(), root / place / name)
    shutil.copytree(f"/usr/lib/{version}", root / "usr/lib" / version, symlinks=False,
                    ignore=shutil.ignore_patterns(*OMITTED), ignore_dangling_symlinks=True)
    for module in PYTHON_LIBRARIES:
        for source in Path(f"/usr/lib/{version}/lib-dynload").glob(f"{module}.*.so"):
            _copy_with_libraries(source, root, str(source))
    (root / "dev/null").touch()


def why_not() -> str:
    """Why no command can be run in such a root here; empty if one can."""
    tried = subprocess.run([*_unshare(), "true"], capture_output=True, text=True, check=False) \
        if shutil.which("unshare") else None
    if tried is None:
        return "no unshare on this machine"
    return "" if tried.returncode == 0 else f"unshare: {tried.stderr.strip()}"


def _unshare() -> list:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--mount", "--pid", "--net", "--fork", "--kill-child"]


def run(root: Path, command: list, seconds: float) -> subprocess.CompletedProcess:
    """Runs `command` with `root` as its root, no network, processes of its own; stdout and stderr as text."""
    script = ('mount -t proc proc "$0/proc" && mount --bind /dev/null "$0/dev/null" && '
              'exec chroot "$0" /usr/bin/env -i PATH=/usr/bin:/bin "$@"')
    if not (root / "usr/bin/env").exists():
        _copy_with_libraries(Path("/usr/bin/env"), root, "/usr/bin/env")
    return subprocess.run([*_unshare(), "bash", "-c", script, str(root), *command], capture_output=True, text=True,
                          errors="replace", check=False, timeout=seconds)
