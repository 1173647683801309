"""Safetensors files as numpy arrays that lie in a read-only memory map: nothing is copied.

An array stays valid as long as somebody holds it. Errors name the file, the field and the value.
"""

import json
import mmap
import struct
from pathlib import Path

import numpy as np

HEADER_BYTES_MAX = 100_000_000
TYPES = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "I64": np.int64, "U8": np.uint8}


class TensorMap:
    """One file: `metadata` (text to text), `names` and `tensor(name)`."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        with open(self.path, "rb") as file:
            size = file.seek(0, 2)
            if size < 8:
                raise ValueError(f"{self.path}: {size} bytes are no safetensors file")
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        length = struct.unpack("<Q", self.bytes[:8])[0]
        if length > min(HEADER_BYTES_MAX, size - 8):
            raise ValueError(f"{self.path}: a header of {length} bytes in a file of {size}")
        try:
            header = json.loads(self.bytes[8:8 + length])
        except ValueError as error:
            raise ValueError(f"{self.path}: the header is not JSON: {error}") from None
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self.entries = header
        self.data_begin = 8 + length

    @property
    def names(self) -> list[str]:
        return list(self.entries)

    def tensor(self, name: str, kind: str, dims: int) -> np.ndarray:
        """The tensor of that name; it must have this type and so many dimensions."""
        entry = self.entries.get(name)
        if entry is None:
            raise ValueError(f"{self.path}: no tensor '{name}'; it has {', '.join(self.names)}")
        shape, (begin, end) = entry["shape"], entry["data_offsets"]
        if entry["dtype"] != kind or len(shape) != dims:
            raise ValueError(f"{self.path}: tensor '{name}' is {entry['dtype']} {shape}, not "
                             f"{kind} with {dims} dimensions")
        count = int(np.prod(shape, dtype=np.int64))
        size = count * np.dtype(TYPES[kind]).itemsize
        if begin < 0 or end - begin != size or self.data_begin + end > len(self.bytes):
            raise ValueError(f"{self.path}: tensor '{name}' {shape} cannot lie at {begin} to {end}")
        return np.frombuffer(self.bytes, TYPES[kind], count,
                             self.data_begin + begin).reshape(shape)
