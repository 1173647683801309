"""A GGUF file with another number of tokens: what a sibling model with the same tokenizer looks like.

    cut(data, 480)      the first 480 tokens only; merges that make others are gone
    padded(data, 256)   256 tokens more that no tokenizer makes, as embeddings rounded up to a
                        multiple have. Their rows are the first tokens' own with twice the weight,
                        so that a model often prefers them: the worst that padding can do

Of files whose embedding is Q8_0 and tied, as tests/fixtures/models/tiny-chat.gguf is.
"""

import struct
from dataclasses import dataclass

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TEXT, ARRAY, Q8_0 = 8, 9, 8
BLOCK, BLOCK_BYTES = 32, 34  # a scale (fp16) and 32 weights
TOKENS, TYPES, MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"
UNUSED = 5


@dataclass
class Tensor:
    name: str
    shape: list[int]
    type: int
    data: bytes


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def scalar(self, form: str):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self) -> bytes:
        size = self.scalar("<Q")
        self.at += size
        return self.data[self.at - size:self.at]

    def value(self, kind: int):
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            inner = self.scalar("<I")
            return inner, [self.value(inner) for _ in range(self.scalar("<Q"))]
        return self.scalar(SCALARS[kind])


def write_text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def write_value(kind: int, value) -> bytes:
    if kind == TEXT:
        return write_text(value)
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(write_value(inner, item) for item in items)
    return struct.pack(SCALARS[kind], value)


def read(data: bytes) -> tuple[dict, list[Tensor]]:
    reader = Reader(data)
    assert reader.scalar("<I") == 0x46554747 and reader.scalar("<I") == 3
    tensors, keys = reader.scalar("<Q"), reader.scalar("<Q")
    fields = {}
    for _ in range(keys):
        name = reader.text().decode()
        kind = reader.scalar("<I")
        fields[name] = (kind, reader.value(kind))
    found = []
    for _ in range(tensors):
        name = reader.text().decode()
        shape = [reader.scalar("<Q") for _ in range(reader.scalar("<I"))]
        found.append((name, shape, reader.scalar("<I"), reader.scalar("<Q")))
    start = -(-reader.at // 32) * 32
    ends = sorted(offset for _, _, _, offset in found) + [len(data) - start]
    return fields, [Tensor(name, shape, kind, data[start + offset:start + ends[ends.index(offset) + 1]])
                    for name, shape, kind, offset in found]


def write(fields: dict, tensors: list[Tensor]) -> bytes:
    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(fields))
    for name, (kind, value) in fields.items():
        head += write_text(name.encode()) + struct.pack("<I", kind) + write_value(kind, value)
    body = b""
    for tensor in tensors:
        head += write_text(tensor.name.encode()) + struct.pack("<I", len(tensor.shape))
        head += b"".join(struct.pack("<Q", size) for size in tensor.shape)
        head += struct.pack("<IQ", tensor.type, len(body))
        body += tensor.data + b"\0" * (-len(tensor.data) % 32)
    return head + b"\0" * (-len(head) % 32) + body


def resized(data: bytes, tokens: list[bytes], rows_of) -> bytes:
    """With these tokens; `rows_of` makes the new embedding from the list of the old one's rows."""
    fields, tensors = read(data)
    types = fields[TYPES][1][1][:len(tokens)]
    types += [UNUSED] * (len(tokens) - len(types))
    known = set(tokens)
    merges = [m for m in fields[MERGES][1][1] if m.replace(b" ", b"") in known]
    fields[TOKENS] = (ARRAY, (TEXT, tokens))
    fields[TYPES] = (ARRAY, (fields[TYPES][1][0], types))
    fields[MERGES] = (ARRAY, (TEXT, merges))
    if "llama.vocab_size" in fields:
        fields["llama.vocab_size"] = (fields["llama.vocab_size"][0], len(tokens))
    embedding = next(t for t in tensors if t.name == "token_embd.weight")
    assert embedding.type == Q8_0
    size = embedding.shape[0] // BLOCK * BLOCK_BYTES
    rows = [embedding.data[i * size:(i + 1) * size] for i in range(embedding.shape[1])]
    embedding.shape[1] = len(tokens)
    embedding.data = b"".join(rows_of(rows))
    return write(fields, tensors)


def cut(data: bytes, count: int) -> bytes:
    return resized(data, read(data)[0][TOKENS][1][1][:count], lambda rows: rows[:count])


def twice(row: bytes) -> bytes:
    """The row with every block's scale doubled: one more in the exponent of its fp16."""
    blocks = [row[at:at + BLOCK_BYTES] for at in range(0, len(row), BLOCK_BYTES)]
    return b"".join(struct.pack("<H", struct.unpack("<H", b[:2])[0] + 0x0400) + b[2:] for b in blocks)


def padded(data: bytes, count: int) -> bytes:
    tokens = read(data)[0][TOKENS][1][1]
    return resized(data, tokens + [b"[pad%d]" % i for i in range(count)],
                   lambda rows: rows + [twice(row) for row in rows[:count]])
