"""A model with a SentencePiece vocabulary, as GGUF file and as folder: the same tokens, the same text."""

import json
import shutil
import unittest
from pathlib import Path

import gguf_vocabulary
from paceline_cli import CliTest

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
NAME = "llama-untied-f16"  # folder and GGUF file of the same weights, 320 tokens
SPACE = "\u2581"
TEXT, ARRAY, INT, FLOAT, UINT = 8, 9, 5, 6, 4
# As of Llama 2: the marks of turns are plain text, <s> and </s> are not.
TEMPLATE = ("{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'] + ' [/INST]' }}"
            "{% else %}{{ ' ' + m['content'] + ' ' + eos_token }}{% endif %}{% endfor %}")
TEXTS = ["Hello, world", "  two spaces", "the licence </s> of <s>this", "été 你好 \U0001f600\n\n\tx", "a  b ", " ", "½ x² 1234"]


def vocabulary() -> dict:
    return json.loads((FIXTURES / "tokenizer" / "tiny-spm.json").read_text())


def gguf_file(path: Path, model: str = "llama") -> str:
    """Says neither add_bos_token nor add_space_prefix nor bos_token_id: what Llama means by that."""
    data = vocabulary()
    fields, tensors = gguf_vocabulary.read((FIXTURES / "models" / f"{NAME}.gguf").read_bytes())
    fields = {key: value for key, value in fields.items() if not key.startswith("tokenizer.")}
    fields["tokenizer.ggml.model"] = (TEXT, model.encode())
    fields["tokenizer.ggml.pre"] = (TEXT, b"default")
    fields["tokenizer.ggml.tokens"] = (ARRAY, (TEXT, [token.encode() for token in data["tokens"]]))
    fields["tokenizer.ggml.token_type"] = (ARRAY, (INT, data["kinds"]))
    fields["tokenizer.ggml.scores"] = (ARRAY, (FLOAT, data["scores"]))
    fields["tokenizer.chat_template"] = (TEXT, TEMPLATE.encode())
    path.write_bytes(gguf_vocabulary.write(fields, tensors))
    return str(path)


def folder(path: Path, **parts) -> str:
    """As transformers 4 writes the tokenizer of Llama 2, but for `parts`."""
    data = vocabulary()
    shutil.copytree(FIXTURES / "folders" / NAME, path)
    special = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i, token in enumerate(data["tokens"][:3])]
    begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    document = {
        "version": "1.0", "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "vocab": {token: i for i, token in enumerate(data["tokens"])}, "merges": data["merges"]},
    } | parts
    (path / "tokenizer.json").write_text(json.dumps(document))
    (path / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": TEMPLATE}))
    return str(path)


class SentencePiece(CliTest):
    def setUp(self) -> None:
        super().setUp()
        self.gguf = gguf_file(self.folder / "spm.gguf")
        self.model = folder(self.folder / "spm")

    def tokens(self, model: str, text: str, *args: str) -> list[int]:
        return json.loads(self.run_ok("tokenize", "-m", model, "-o", "ids", *args, text))

    def answer(self, model: str, *args: str) -> tuple[list[int], str]:
        path = self.folder / "ids.json"
        text = self.run_ok("run", "-m", model, "-n", "24", "-t", "1", "--ids", str(path), "-q", *args)
        return json.loads(path.read_text()), text

    def test_file_and_folder_run_and_answer_alike_with_every_method(self):
        for model in (self.gguf, self.model):
            self.assertEqual(json.loads(self.run_ok("inspect", model, "-o", "json"))["use"], "runs")
        plain = {}
        for prompt in (["--raw", "-p", "Hello, world"], ["-p", "the licence </s> of"]):
            plain = self.answer(self.gguf, *prompt)
            self.assertEqual(len(plain[0]), 24)
            for method in ("plain", "pearl", "prompt-lookup"):
                with self.subTest(prompt=prompt, method=method):
                    self.assertEqual(self.answer(self.model, *prompt, "--method", method), plain)
                    self.assertEqual(self.answer(self.gguf, *prompt, "--method", method), plain)

    def test_texts_become_the_same_tokens_and_come_back(self):
        for text in TEXTS:
            with self.subTest(text):
                ids = self.tokens(self.gguf, text, "--plain")
                self.assertEqual(self.tokens(self.model, text, "--plain"), ids)
                self.assertTrue(min(ids) > 2, "text is no control token")
                for model in (self.gguf, self.model):
                    self.assertEqual(self.run_ok("tokenize", "-m", model, "--decode", json.dumps(ids)), text)
        self.assertEqual(self.tokens(self.gguf, "<s>a</s>")[0], 1)
        self.assertEqual(self.tokens(self.gguf, "<s>a</s>")[-1], 2)

    def test_a_prompt_begins_with_bos_where_the_family_does(self):
        stats = self.folder / "stats.json"
        encoded = len(self.tokens(self.gguf, "Hello, world"))
        for model in (self.gguf, self.model):
            self.answer(model, "--raw", "-p", "Hello, world", "--stats", str(stats))
            self.assertEqual(json.loads(stats.read_text())["prompt_tokens"], encoded + 1)

    def test_a_converted_folder_has_its_tokens_and_answers(self):
        out = str(self.folder / "converted.gguf")
        self.run_ok("convert", self.model, out, "--type", "bf16")
        for text in TEXTS:
            for args in ([], ["--plain"]):
                self.assertEqual(self.tokens(out, text, *args), self.tokens(self.model, text, *args))
        for prompt in (["-p", "Hello, world"], ["--raw", "-p", "the licence </s> of"]):
            self.assertEqual(self.answer(out, *prompt), self.answer(self.model, "--dtype", "bf16", *prompt))

    def test_what_is_refused_is_named(self):
        refused = {
            "Precompiled": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA=="}},
            "NFKD": {"normalizer": {"type": "NFKD"}},
            "WhitespaceSplit": {"pre_tokenizer": {"type": "WhitespaceSplit"}},
            "WordPiece": {"decoder": {"type": "WordPiece"}},
        }
        for name, part in refused.items():
            use = json.loads(self.run_ok("inspect", folder(self.folder / name, **part), "-o", "json"))["use"]
            self.assertIn(f'"{name}" is not supported', use)
            self.assertTrue(use.startswith("cannot run: tokenizer.json: "), use)
        other = gguf_file(self.folder / "unigram.gguf", "unigram")
        self.assertTrue(json.loads(self.run_ok("inspect", other, "-o", "json"))["use"].startswith(
            'cannot run: tokenizer model "unigram" (tokenizer.ggml.model) is not supported'))


if __name__ == "__main__":
    unittest.main()
