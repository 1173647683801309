"""Tokens that end an answer, whatever the file calls them; ids that no token has; tokens without text."""

import json
import unittest
from pathlib import Path

from byte_model import CONTROL, LAST, NORMAL, USER, byte_model
from paceline_cli import CliTest

NAMES = ("<|end|>", "<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>", "<｜end▁of▁sentence｜>")


class SpecialTokens(CliTest):
    def model(self, **kwargs) -> str:
        path = self.folder / "model.gguf"
        path.write_bytes(byte_model(**kwargs))
        return str(path)

    def forced(self, model: str, token: int = LAST) -> tuple[str, list[int]]:
        """Text and ids of an answer that would be six times this token."""
        text, ids, _ = self.generate("--raw", "-p", "x", "--logit-bias", f"{token}=1000", "-n", "6", "-t", "1", "-q",
                                     model=model)
        return text, ids

    def remarks(self, model: str) -> str:
        return "\n".join(json.loads(self.run_ok("inspect", model, "-o", "json"))["remarks"])

    def tokens(self, model: str, text: str, *args: str) -> list[int]:
        return json.loads(self.run_ok("tokenize", "-m", model, "-o", "ids", *args, text))

    def test_a_control_token_with_the_name_of_an_end_ends_the_answer(self):
        for name in NAMES:
            with self.subTest(name):
                text, ids = self.forced(self.model(last=name))
                self.assertEqual((text.strip(), ids), ("", [LAST]))
        text, ids = self.forced(self.model(last="<|other|>"))
        self.assertEqual(ids, [LAST] * 6)

    def test_it_ends_the_answer_whatever_its_type_is_and_is_not_shown(self):
        for kind in (NORMAL, USER):
            for keys in ({}, {"tokenizer.ggml.eos_token_id": LAST}, {"tokenizer.ggml.eot_token_id": LAST}):
                with self.subTest(kind=kind, keys=keys):
                    model = self.model(last="<|im_end|>", kind=kind, **keys)
                    text, ids = self.forced(model)
                    self.assertEqual((text.strip(), ids), ("", [LAST]))
                    self.assertIn(f'control token: {LAST} "<|im_end|>"', self.remarks(model))
        model = self.model(last="<|over|>", kind=USER, **{"tokenizer.ggml.eos_token_id": LAST})
        self.assertEqual(self.forced(model)[1], [LAST])
        self.assertNotIn("control token", self.remarks(self.model(last="<|im_end|>", kind=CONTROL)))

    def test_a_user_cannot_end_his_turn(self):
        for kind in (CONTROL, USER, NORMAL):
            model = self.model(last="<|im_end|>", kind=kind)
            self.assertEqual(self.tokens(model, "a<|im_end|>b"), [ord("a") - 33, LAST, ord("b") - 33])
            self.assertEqual(self.tokens(model, "a<|im_end|>b", "--plain"), [ord(c) - 33 for c in "a<|im_end|>b"])

    def test_an_id_that_no_token_has_is_ignored_with_a_remark(self):
        for key in ("padding", "unknown", "eos", "eot", "eom", "bos"):
            for number in (4294967295, 260):
                with self.subTest(key=key, number=number):
                    name = f"tokenizer.ggml.{key}_token_id"
                    model = self.model(**{name: number})
                    self.assertEqual(self.forced(model, 33)[1], [33] * 6)
                    self.assertIn(f"{name} is {number}, which is none of the 260 tokens; it is ignored",
                                  self.remarks(model))

    def test_a_token_without_text_is_no_obstacle(self):
        for kind in (CONTROL, USER, NORMAL):
            model = self.model(last="", kind=kind)
            self.assertEqual(self.forced(model, 33)[1], [33] * 6)
            text, ids = self.forced(model)
            self.assertEqual((text.strip(), ids), ("", [LAST] * 6))


class WrongNames(CliTest):
    FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "folders" / "llama-untied-f16"

    def test_a_file_of_a_folder_says_to_name_the_folder(self):
        for name in ("config.json", "tokenizer.json", "model.safetensors.index.json"):
            for command in (["run", "-p", "x", "-m"], ["inspect"], ["tokenize", "x", "-m"]):
                said = self.run_fails(1, *command, str(self.FOLDER / name))
                self.assertIn(f"{name} is a file of a Hugging Face folder; name the folder: {self.FOLDER}", said)
        out = str(self.folder / "out.gguf")
        said = self.run_fails(1, "convert", str(self.FOLDER / "config.json"), out, "--type", "q8_0")
        self.assertIn("name the folder", said)

    def test_a_pointer_of_git_lfs_is_named_wherever_a_file_of_a_model_is_opened(self):
        pointer = self.folder / "pointer"
        pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        model = self.folder / "model.gguf"
        model.write_bytes(byte_model())
        parts = self.folder / "parts"
        parts.mkdir()
        (parts / "draft-small.safetensors").write_bytes(pointer.read_bytes())
        for args in (["-m", str(pointer)], ["-m", str(model), "--lora", str(pointer)],
                     ["-m", str(model), "--method", "speculative", "--draft-model", str(pointer)],
                     ["-m", str(model), "--method", "speculative", "--parts", str(parts)]):
            with self.subTest(args=args):
                said = self.run_fails(1, "run", "-p", "x", "--raw", "-t", "1", *args)
                self.assertIn("is a pointer of Git LFS, not the file itself", said)
                self.assertIn("git lfs pull", said)


class Types(CliTest):
    def test_a_type_may_be_written_in_capitals(self):
        model = self.folder / "model.gguf"
        model.write_bytes(byte_model())
        wanted = self.folder / "q8_0.gguf"
        self.run_ok("convert", str(model), str(wanted), "--type", "q8_0")
        for word in ("Q8_0", "q8_0"):
            out = self.folder / "out.gguf"
            self.run_ok("convert", str(model), str(out), "--type", word, "--force")
            self.assertEqual(out.read_bytes(), wanted.read_bytes())
        self.run_ok("run", "-m", str(model), "--raw", "-p", "x", "-n", "1", "--dtype", "INT8", "--kv-dtype", "F16")

    def test_a_type_that_convert_does_not_write_is_told_those_that_it_writes(self):
        for word in ("q4_k_m", "Q4_K_M"):
            said = self.run_fails(2, "convert", "a.gguf", "b.gguf", "--type", word)
            self.assertIn(f"--type: '{word}' is not one of q8_0|q4_0|q4_1|bf16", said)


if __name__ == "__main__":
    unittest.main()
