"""`paceline convert`: the text of the source packed on load, in one file that other programs read; what is refused."""

import json
import resource
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, environment

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
FOLDER = str(FIXTURES / "folders" / "llama-untied-f16")
WIDE = str(FIXTURES / "models" / "llama-untied-f16.gguf")
TYPES = {"q8_0": "int8", "q4_1": "q4", "bf16": "bf16"}  # with the --dtype that packs the source alike


class Convert(CliTest):
    def ids(self, model: str, *args: str) -> list[int]:
        path = self.folder / "ids.json"
        self.run_ok("run", "-m", model, "-p", "Hello, world", "-n", "16", "-t", "1", "--raw", "--no-cache",
                    "--ids", str(path), "-q", *args)
        return json.loads(path.read_text())

    def converted(self, model: str, kind: str, *args: str, **kwargs) -> str:
        out = self.folder / f"{kind}.gguf"
        said = self.run_ok("convert", model, str(out), "--type", kind, *args, **kwargs)
        self.assertIn(str(out), said)
        self.assertEqual(list(self.folder.glob("*.paceline-part")), [])
        return str(out)

    def test_the_file_says_what_the_folder_says_packed_on_load(self):
        texts = set()
        for kind, dtype in TYPES.items():
            with self.subTest(kind):
                wanted = self.ids(FOLDER, "--dtype", dtype)
                file = self.converted(FOLDER, kind)
                self.assertEqual(self.ids(file), wanted)
                self.assertEqual(self.ids(file, "--method", "four-stages"), wanted)
                texts.add(tuple(wanted))
        self.assertGreater(len(texts), 1, "a type is seen in the text of random weights")

    def test_a_wide_gguf_file_is_converted_too(self):
        for kind, dtype in TYPES.items():
            with self.subTest(kind):
                self.assertEqual(self.ids(self.converted(WIDE, kind)), self.ids(WIDE, "--dtype", dtype))

    def test_the_file_is_inspected_like_any_other(self):
        of_folder = json.loads(self.run_ok("inspect", FOLDER, "-o", "json"))
        said = json.loads(self.run_ok("inspect", self.converted(FOLDER, "q4_0"), "-o", "json"))
        for key in ("architecture", "name", "layers", "context_length", "pre_tokenizer", "has_chat_template", "use"):
            self.assertEqual(said[key], of_folder[key], key)
        types = {tensor["name"]: tensor["type"] for tensor in said["tensors"]}
        self.assertEqual(types["token_embd.weight"], "Q8_0")
        self.assertEqual(types["blk.0.attn_q.weight"], "Q4_0")
        self.assertEqual(types["blk.0.attn_norm.weight"], "F32")

    def test_a_model_of_the_hubs_cache_keeps_its_name(self):
        model = self.folder / "hub" / "models--owner--tiny"
        (model / "refs").mkdir(parents=True)
        (model / "refs" / "main").write_text("c0ffee")
        shutil.copytree(FOLDER, model / "snapshots" / "c0ffee")
        file = self.converted("owner/tiny", "q8_0", env=environment(HF_HUB_CACHE=str(self.folder / "hub")))
        self.assertEqual(json.loads(self.run_ok("inspect", file, "-o", "json"))["name"], "tiny")

    def test_outputs_that_make_no_sense_are_refused_before_anything_is_written(self):
        there = self.folder / "there.gguf"
        there.write_text("mine")
        own = self.folder / "own.gguf"
        shutil.copy(WIDE, own)
        part = self.folder / "y.gguf.paceline-part"
        shutil.copy(WIDE, part)
        (self.folder / "d.gguf").mkdir()
        for args, word in (((FOLDER, str(there)), "--force replaces it"),
                           ((FOLDER, str(self.folder / "x.bin")), "does not end in .gguf"),
                           ((FOLDER, str(self.folder / "d.gguf")), "is a directory"),
                           ((str(own), str(own), "--force"), "is a file of the model itself"),
                           ((str(part), str(self.folder / "y.gguf")), "is a file of the model itself")):
            with self.subTest(word):
                self.assertIn(word, self.run_fails(2, "convert", *args, "--type", "q8_0"))
        self.assertEqual(there.read_text(), "mine")
        self.assertEqual(part.read_bytes(), Path(WIDE).read_bytes())
        part.unlink()
        self.assertIn("q4_k", self.run_fails(2, "convert", FOLDER, "x.gguf", "--type", "q4_k"))
        self.assertIn("--type", self.run_fails(2, "convert", FOLDER, "x.gguf"))
        said = self.run_fails(1, "convert", FOLDER, str(self.folder / "no" / "x.gguf"), "--type", "q8_0")
        self.assertIn("x.gguf.paceline-part cannot be written: No such file or directory", said)
        packed = str(FIXTURES / "models" / "llama-q4_1.gguf")
        said = self.run_fails(1, "convert", packed, str(self.folder / "x.gguf"), "--type", "q8_0")
        self.assertIn("is packed already (Q8_0)", said)  # the embedding
        self.assertEqual(self.converted(FOLDER, "q8_0"), str(self.folder / "q8_0.gguf"))
        self.run_ok("convert", FOLDER, str(there), "--type", "bf16", "--force")
        self.assertEqual(there.read_bytes()[:4], b"GGUF")

    def test_a_disk_that_is_full_is_named_and_nothing_is_left_on_it(self):
        out = self.folder / "full.gguf"
        limit = 20_000  # bytes that a file may have

        def small_disk() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = subprocess.run([BINARY, "convert", FOLDER, str(out), "--type", "q8_0"], capture_output=True, text=True,
                              preexec_fn=small_disk, check=False, timeout=60, env=environment())
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{out}.paceline-part cannot be written: File too large", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
