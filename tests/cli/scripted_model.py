"""A model that says what a test wants, as the bytes of a GGUF file: one text for each turn of a chat.

    scripted_model(["I look. <tool_call>...</tool_call>", "It rains."])

The first text answers a chat without results of tools, the second one a chat with one result, and so on; the last one
all later turns. A llama of one layer whose matrices are zero: the embedding of a token goes straight to the head, where
it makes the next token of its text certain. Prompts are read byte by byte and change nothing but the turn. A text comes
as tokens of some bytes; its template knows tools in the form of Hermes, or with `tags` in that of tags, and thoughts. Of each message and tool the prompt
has the first `shown` characters.
"""

import struct

from byte_model import CONTROL, F32, F32_TENSOR, I32, NORMAL, U32, letters
from gguf_vocabulary import ARRAY, TEXT, Tensor, write

SURE = 10.0  # times the square root of the width: the logit of the next token, others have 0
PIECE = 7    # bytes of a token of a text, or some more

TEMPLATE = """{%- if tools %}{{ '<|system|>' }}{% for tool in tools %}{{ (tool | tojson)[:SHOWN] }}{% endfor %}{% endif %}
{%- set turn = namespace(results=0) %}
{%- for m in messages %}
{{- '<|' + m.role + '|>' }}
{%- if m.reasoning_content is defined %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}
{{- m.content[:SHOWN] }}
{%- for call in m.tool_calls or [] %}{{ '<tool_call>' + (call.function | tojson) + '</tool_call>' }}{% endfor %}
{%- if m.role == 'tool' %}{% set turn.results = turn.results + 1 %}{% endif %}
{%- endfor %}
{{- '<|turn' + ([turn.results, LAST] | min | string) + '|>' }}"""


def pieces_of(text: str, taken: set[str]) -> list[str]:
    """The text in pieces that no vocabulary has twice, each of whole characters, as a byte-level vocabulary writes them."""
    letter = letters()
    order = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    order += [byte for byte in range(256) if byte not in order]
    of_byte = {byte: letter[place] for place, byte in enumerate(order)}

    def written(part: str) -> str:
        return "".join(of_byte[byte] for byte in part.encode())

    parts: list[str] = []
    at = 0
    while at < len(text):
        end = min(at + PIECE, len(text))
        while end < len(text) and written(text[at:end]) in taken:
            end += 1
        while written(text[at:end]) in taken:  # the end of the text: with what stands before it
            last = parts.pop()
            taken.discard(written(last))
            at -= len(last)
        parts.append(text[at:end])
        taken.add(written(parts[-1]))
        at = end
    return [written(part) for part in parts]


CALL_OF_HERMES = "'<tool_call>' + (call.function | tojson) + '</tool_call>'"
CALL_OF_TAGS = "'<tool_call><function=' + call.function.name + '></function></tool_call>'"


def scripted_model(texts: list[str], context: int = 4096, shown: int = 1000, tags: bool = False) -> bytes:
    roles = ["<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
    turns = [f"<|turn{i}|>" for i in range(len(texts))]
    tokens = [*letters(), "ab", "<|endoftext|>", *roles, *turns]
    end = tokens.index("<|endoftext|>")
    kinds = [NORMAL] * 257 + [CONTROL] * (len(tokens) - 257)
    follows: list[tuple[int, int]] = []  # a token and the next one
    taken = set(tokens)
    for turn, text in zip(turns, texts):
        last = tokens.index(turn)
        for piece in pieces_of(text, taken):
            follows.append((last, len(tokens)))
            last = len(tokens)
            tokens.append(piece)
            kinds.append(NORMAL)
        follows.append((last, end))
    template = TEMPLATE.replace(CALL_OF_HERMES, CALL_OF_TAGS) if tags else TEMPLATE
    template = template.replace("LAST", str(len(texts) - 1)).replace("SHOWN", str(shown))
    width = -(-(len(follows) + 1) // 32) * 32
    embedding = [[0.0] * width for _ in tokens]
    head = [[0.0] * width for _ in tokens]
    for row in embedding:
        row[0] = 1.0  # of no turn: any token may follow
    for place, (token, following) in enumerate(follows, 1):
        embedding[token][0] = 0.0
        embedding[token][place] = 1.0
        head[following][place] = SURE
    fields = {
        "general.architecture": (TEXT, b"llama"),
        "tokenizer.ggml.model": (TEXT, b"gpt2"),
        "tokenizer.ggml.pre": (TEXT, b"smollm"),
        "tokenizer.ggml.tokens": (ARRAY, (TEXT, [token.encode() for token in tokens])),
        "tokenizer.ggml.token_type": (ARRAY, (I32, kinds)),
        "tokenizer.ggml.merges": (ARRAY, (TEXT, [b"a b"])),
        "tokenizer.chat_template": (TEXT, template.encode()),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
    }
    for name, number in {"llama.block_count": 1, "llama.context_length": context, "llama.embedding_length": width,
                         "llama.feed_forward_length": 32, "llama.attention.head_count": 1,
                         "tokenizer.ggml.eos_token_id": end}.items():
        fields[name] = (U32, number)

    def tensor(name: str, shape: list[int], values: list[float]) -> Tensor:
        return Tensor(name + ".weight", shape, F32_TENSOR, struct.pack(f"<{len(values)}f", *values))

    def zeros(name: str, *shape: int) -> Tensor:
        return tensor(name, list(shape), [0.0] * (shape[0] * shape[1]))

    def ones(name: str) -> Tensor:
        return tensor(name, [width], [1.0] * width)

    return write(fields, [
        tensor("token_embd", [width, len(tokens)], [value for row in embedding for value in row]),
        tensor("output", [width, len(tokens)], [value for row in head for value in row]),
        ones("output_norm"), ones("blk.0.attn_norm"), ones("blk.0.ffn_norm"),
        *(zeros(f"blk.0.attn_{name}", width, width) for name in ("q", "k", "v", "output")),
        zeros("blk.0.ffn_gate", width, 32), zeros("blk.0.ffn_up", width, 32), zeros("blk.0.ffn_down", 32, width)])
