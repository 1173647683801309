"""Where the programs and files of a run lie: an unpacked archive, or a checkout and its build folder."""

import json
from pathlib import Path

from contents import KINDS, MANIFEST, PROGRAMS
from steps import Failure, Skip


class Place:
    """`root` holds tests/, bench/ and configs/; programs are in root/bin, or in `build`."""

    def __init__(self, root: Path, build: Path = None):
        self.root = root
        self._build = build
        self.manifest = {}
        if (root / MANIFEST).is_file():
            self.manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        self.kind = self.manifest.get("kind", "gpu")
        if self.kind not in KINDS:
            raise Failure(f"{root / MANIFEST}: kind = '{self.kind}', known are {', '.join(KINDS)}")

    @property
    def packed(self) -> bool:
        return bool(self.manifest)

    def program(self, name: str) -> Path:
        """Raises Skip, with the reason, where it is not there."""
        known = next(program for program in PROGRAMS if program.name == name)
        if self.packed:
            path = self.root / "bin" / name
            reason = f"{name} is not in this archive ({self.kind})"
        elif not known.built(self.kind):
            raise Skip(f"{name} does not exist for the emulated device")
        else:
            path = self._build / known.built(self.kind)
            reason = f"{path.name} is not in {self._build}: the build has no CUDA, or was not made"
        if not path.is_file():
            raise Skip(reason)
        return path

    def programs(self) -> list:
        """Paths of all programs that are there."""
        there = []
        for program in PROGRAMS:
            try:
                there.append(self.program(program.name))
            except Skip:
                continue
        return there
