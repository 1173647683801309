"""Fixture models with more layers: what exits, deferred layers and four segments need.

A GGUF file is written anew with copies of its layers after its own. What the copies add to the
residual stream is made smaller, so an exit or a draft of the first layers is often right, as in a
trained model, and sometimes wrong.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

ALIGNMENT = 32
UINT32, STRING, ARRAY = 4, 8, 9
VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
Q8_0, Q8_0_BYTES = 8, 34  # a scale in f16, then 32 bytes
CHAT_TEMPLATE = "tokenizer.chat_template"


@dataclass
class Tensor:
    name: str
    head: bytes  # dimensions and type, as they stand in the file
    kind: int
    data: bytes


class Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, form: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.take(self.number("<Q")).decode()

    def skip_value(self, kind: int) -> None:
        if kind == STRING:
            self.take(self.number("<Q"))
        elif kind == ARRAY:
            inner, count = self.number("<I"), self.number("<Q")
            for _ in range(count):
                self.skip_value(inner)
        else:
            self.take(VALUE_BYTES[kind])


def text_bytes(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def read_tensors(reader: Reader, count: int) -> list[Tensor]:
    heads = []
    for _ in range(count):
        name, begin = reader.text(), reader.at
        reader.take(8 * reader.number("<I"))
        kind = reader.number("<I")
        heads.append((name, reader.data[begin:reader.at], kind, reader.number("<Q")))
    base = -(-reader.at // ALIGNMENT) * ALIGNMENT
    ends = sorted(head[3] for head in heads) + [len(reader.data) - base]
    return [Tensor(name, head, kind, reader.data[base + at:base + ends[ends.index(at) + 1]])
            for name, head, kind, at in heads]


def shrunk(tensor: Tensor, factor: float) -> bytes:
    """A Q8_0 matrix times `factor`."""
    assert tensor.kind == Q8_0, f"{tensor.name} is not stored as Q8_0"
    data = bytearray(tensor.data)
    for at in range(0, len(data) - Q8_0_BYTES + 1, Q8_0_BYTES):
        struct.pack_into("<e", data, at, struct.unpack_from("<e", data, at)[0] * factor)
    return bytes(data)


def grown(tensors: list[Tensor], layers: int, factor: float) -> list[Tensor]:
    """The tensors of a model of `layers` layers, the first ones unchanged."""
    own = 1 + max(int(t.name.split(".")[1]) for t in tensors if t.name.startswith("blk."))
    added = []
    for layer in range(own, layers):
        for tensor in tensors:
            if not tensor.name.startswith(f"blk.{layer % own}."):
                continue
            kind = tensor.name.split(".", 2)[2]
            adds = kind in ("attn_output.weight", "ffn_down.weight")
            added.append(Tensor(f"blk.{layer}.{kind}", tensor.head, tensor.kind,
                                shrunk(tensor, factor) if adds else tensor.data))
    return tensors + added


def write_deeper(source: str, target: Path, layers: int, *, factor: float = 0.25,
                 chat: bool = True) -> str:
    """Writes `target`; without `chat` the model has no chat template: prompts are read as they
    are, so one of a single token is possible. Returns the path."""
    reader = Reader(Path(source).read_bytes())
    assert reader.take(4) == b"GGUF", f"{source} is not a GGUF file"
    version, tensor_count, value_count = (reader.number(f) for f in ("<I", "<Q", "<Q"))
    values = []
    for _ in range(value_count):
        begin, key = reader.at, reader.text()
        kind = reader.number("<I")
        reader.skip_value(kind)
        if key.endswith(".block_count"):
            values.append(text_bytes(key) + struct.pack("<II", UINT32, layers))
        elif chat or key != CHAT_TEMPLATE:
            values.append(reader.data[begin:reader.at])
    tensors = grown(read_tensors(reader, tensor_count), layers, factor)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + b"".join(values)
    data = b""
    for tensor in tensors:
        head += text_bytes(tensor.name) + tensor.head + struct.pack("<Q", len(data))
        data += tensor.data + bytes(-len(tensor.data) % ALIGNMENT)
    target.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
    return str(target)
