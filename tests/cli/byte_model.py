"""A llama of one layer and 260 byte-level tokens, as the bytes of a GGUF file: what a test says of tokens is all it has.

    byte_model()                                   256 bytes, "ab" by a merge, three control tokens
    byte_model(last="<|end|>", kind=USER)          the last token is another one, of another type
    byte_model(**{"tokenizer.ggml.padding_token_id": 4294967295})   with further uint32 keys

All weights are zero but those of norms: a token is as probable as any other, so --logit-bias decides.
"""

import struct

from gguf_vocabulary import ARRAY, TEXT, Tensor, write

NORMAL, CONTROL, USER = 1, 3, 4
LAST = 259
U32, F32, I32, F32_TENSOR = 4, 6, 5, 0
WIDTH = 32


def letters() -> list[str]:
    """The letter of each byte, in the order of GPT-2's vocabulary: token 0 is "!"."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return [chr(byte) for byte in own] + [chr(0x100 + place) for place in range(len(others))]


def byte_model(last: str = "<|last|>", kind: int = CONTROL, **numbers: int) -> bytes:
    tokens = [*letters(), "ab", "<|endoftext|>", "<|im_start|>", last]
    kinds = [NORMAL] * 257 + [CONTROL, CONTROL, kind]
    fields = {
        "general.architecture": (TEXT, b"llama"),
        "tokenizer.ggml.model": (TEXT, b"gpt2"),
        "tokenizer.ggml.pre": (TEXT, b"smollm"),
        "tokenizer.ggml.tokens": (ARRAY, (TEXT, [token.encode() for token in tokens])),
        "tokenizer.ggml.token_type": (ARRAY, (I32, kinds)),
        "tokenizer.ggml.merges": (ARRAY, (TEXT, [b"a b"])),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
    }
    for name, number in {"llama.block_count": 1, "llama.context_length": 256, "llama.embedding_length": WIDTH,
                         "llama.feed_forward_length": WIDTH, "llama.attention.head_count": 2,
                         "tokenizer.ggml.eos_token_id": 257, **numbers}.items():
        fields[name] = (U32, number)

    def tensor(name: str, *shape: int) -> Tensor:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        number = 1.0 if "norm" in name else 0.0
        return Tensor(name + ".weight", list(shape), F32_TENSOR, struct.pack("<f", number) * count)

    matrices = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    return write(fields, [tensor("token_embd", WIDTH, len(tokens)), tensor("output_norm", WIDTH),
                          tensor("blk.0.attn_norm", WIDTH), tensor("blk.0.ffn_norm", WIDTH),
                          *(tensor(f"blk.0.{name}", WIDTH, WIDTH) for name in matrices)])
