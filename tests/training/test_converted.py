"""Files of `paceline convert` as the gguf package reads them: keys, tokens, shapes, numbers."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import gguf
import numpy as np

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
STEPS = {"q8_0": 127, "q4_0": 8, "q4_1": 7.5, "bf16": 256}  # of the largest number; q4_0 may be off by a whole one


class Converted(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name) / "model.gguf"

    def converted(self, name: str, kind: str) -> gguf.GGUFReader:
        subprocess.run([os.environ["PACELINE_BINARY"], "convert", str(FIXTURES / "folders" / name), str(self.out),
                        "--type", kind, "--force", "-q"], check=True, timeout=60)
        return gguf.GGUFReader(str(self.out))

    def test_keys_and_tokens_are_those_of_the_folder(self):
        for name, arch in (("llama3-bf16", "llama"), ("qwen2-f16", "qwen2"), ("llama-yarn-f16", "llama")):
            with self.subTest(name):
                reader = self.converted(name, "q8_0")
                folder = FIXTURES / "folders" / name
                config = json.loads((folder / "config.json").read_text())
                value = {key: field.contents() for key, field in reader.fields.items()}
                self.assertEqual(value["general.architecture"], arch)
                self.assertEqual(value["general.file_type"], gguf.LlamaFileType.MOSTLY_Q8_0)
                self.assertEqual(value[f"{arch}.block_count"], config["num_hidden_layers"])
                self.assertEqual(value[f"{arch}.attention.head_count_kv"], config["num_key_value_heads"])
                tokenizer = json.loads((folder / "tokenizer.json").read_text())
                for text, token in tokenizer["model"]["vocab"].items():
                    self.assertEqual(value["tokenizer.ggml.tokens"][token], text)
                for token in tokenizer["added_tokens"]:
                    kind = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
                    self.assertEqual(value["tokenizer.ggml.token_type"][token["id"]], kind)
                merges = [merge if isinstance(merge, str) else " ".join(merge)
                          for merge in tokenizer["model"]["merges"]]
                self.assertEqual(value["tokenizer.ggml.merges"], merges)

    def test_tensors_have_the_names_shapes_and_rounded_numbers_of_the_converters_file(self):
        for name in ("llama3-bf16", "qwen2-f16", "qwen3-bf16"):
            wide = {tensor.name: tensor for tensor in
                    gguf.GGUFReader(str(FIXTURES / "models" / f"{name}.gguf")).tensors}
            for kind, steps in STEPS.items():
                packed = {tensor.name: tensor for tensor in self.converted(name, kind).tensors}
                self.assertEqual(set(packed), set(wide))
                for tensor in wide.values():
                    with self.subTest(f"{name} {kind} {tensor.name}"):
                        self.assertEqual(list(packed[tensor.name].shape), list(tensor.shape))
                        old = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                        new = gguf.quants.dequantize(packed[tensor.name].data, packed[tensor.name].tensor_type)
                        self.assertLessEqual(np.abs(new - old).max(), np.abs(old).max() * 1.02 / steps)


if __name__ == "__main__":
    unittest.main()
