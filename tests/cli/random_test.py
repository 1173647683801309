"""`--random`: shapes without a model file. Their weights are synthetic; where text is needed they are refused."""

import json
import unittest
from pathlib import Path

from paceline_cli import ROOT, CliTest, TINY, environment

USAGE, FAILURE = 2, 1
SHORT = ["-t", "1", "-p", "8", "-n", "2", "-r", "1"]
SHAPES = ROOT / "configs" / "shapes"
FIELDS = {"layers": "2", "dim": "64", "heads": "4", "kv_heads": "2", "ffn_dim": "96", "vocab_size": "256"}


class Shapes(CliTest):
    def shape(self, **changes: str | None) -> str:
        """A file of a small shape; None leaves a key out."""
        fields = {key: value for key, value in {**FIELDS, **changes}.items() if value is not None}
        path = self.folder / "shape.toml"
        path.write_text("# A shape.\n" + "".join(f"{key} = {value}\n" for key, value in fields.items()))
        return str(path)


class Measured(Shapes):
    def bench(self, *args: str, **kwargs) -> list[dict]:
        return json.loads(self.run_ok("bench", *SHORT, "-o", "json", *args, **kwargs))

    def test_bench_needs_no_file_and_says_that_the_weights_are_synthetic(self):
        rows = self.bench("--random", "tiny", "-b", "1,4", "--gemm", "--dtype", "auto,f32,int8,q4")
        self.assertEqual([row["test"] for row in rows], ["pp8", "tg2", "b1", "gemm1", "b4", "gemm4"] * 4)
        self.assertEqual({row["model_type"] for row in rows}, {"tiny (synthetic weights)"})
        self.assertTrue(all(row["avg_ts"] > 0 for row in rows))
        sizes = {row["dtype"]: row["model_size"] for row in rows}
        self.assertTrue(sizes["f32"] > sizes["bf16"] > sizes["int8"] > sizes["q4"] > 0, sizes)

    def test_a_name_and_its_file_are_the_same_shape_and_the_environment_names_none(self):
        env = environment(PACELINE_MODEL="/nonexistent/model.gguf")
        by_name = self.bench("--random", "tiny", env=env)
        by_path = self.bench("--random", str(SHAPES / "tiny.toml"), env=env)
        for key in ("model_type", "model_size", "model_n_params"):
            self.assertEqual(by_name[0][key], by_path[0][key])

    def test_every_type_of_a_shape_of_ones_own_runs(self):
        for kind in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"):
            with self.subTest(type=kind):
                path = self.shape(type=f'"{kind}"', qkv_bias="true", qk_norm="true", tied_embeddings="true")
                self.assertEqual(len(self.bench("--random", path, "--random-seed", "7")), 2)

    def test_inspect_tells_what_a_shape_would_need(self):
        out = json.loads(self.run_ok("inspect", "--random", "llama-8b", "-o", "json"))
        self.assertEqual(out["parameters"], 8_030_261_248)
        self.assertEqual(out["packed_bytes"]["bf16"], 2 * (8_030_261_248 - 65 * 4096))
        self.assertEqual(out["parameters"], sum(t["rows"] * t["cols"] for t in out["tensors"]))
        self.assertIn("no tokenizer", self.run_ok("inspect", "--random", "llama-70b"))

    def test_every_file_of_shapes_is_built_in_and_named_in_the_help(self):
        helped = self.run_ok("bench", "--help")
        for path in sorted(SHAPES.glob("*.toml")):
            self.assertIn(path.stem, helped)
            self.run_ok("inspect", "--random", path.stem)

    def test_costs_of_a_shape_are_measured(self):
        table = self.folder / "costs.tsv"
        self.run_ok("simulate", "--measure-costs", str(table), "--random", "tiny", "--rows", "1,2", "--contexts", "8",
                    "--measure-threads", "1", "--neighbours", "0", "--samples", "1", "--short-lists", "0,16")
        lines = [line.split("\t") for line in table.read_text().splitlines() if not line.startswith("#")]
        self.assertEqual({tuple(line[:2]) for line in lines[1:]},
                         {("hop", "-"), ("layers", "tiny:auto"), ("head", "tiny:auto"), ("head", "tiny:auto:16")})


class Refused(Shapes):
    def refuse(self, code: int, config: str, *naming: str) -> None:
        for command in (["bench"], ["inspect"], ["simulate", "--measure-costs", str(self.folder / "c.tsv")]):
            with self.subTest(command=command[0], config=config):
                stderr = self.run_fails(code, *command, "--random", config)
                for part in naming:
                    self.assertIn(part, stderr)

    def test_a_word_that_is_neither_a_file_nor_a_name_gets_the_one_that_was_probably_meant(self):
        self.refuse(USAGE, "lama-8b", "'lama-8b'", "did you mean 'llama-8b'?", "smollm2-135m")

    def test_a_path_where_nothing_is_or_a_folder(self):
        self.refuse(FAILURE, "/nonexistent/shape.toml", "/nonexistent/shape.toml", "No such file")
        self.refuse(FAILURE, str(self.folder), str(self.folder), "directory")

    def test_a_mistake_in_a_shape_is_named_with_file_key_and_value(self):
        for changes, said in (({"layers": "0"}, "layers = 0, must be a number from 1 to 1024"),
                              ({"dim": "wide"}, "dim = wide, must be a number"),
                              ({"layers": None}, "layers is missing"),
                              ({"layers": None, "layer": "2"}, "layers is missing; layer = 2 is not a key"),
                              ({"kv_heads": "3"}, "kv_heads = 3, must divide heads = 4"),
                              ({"heads": "64"}, "head_dim = 1 (dim / heads"),
                              ({"dim": "4096", "heads": "2"},
                               "head_dim = 2048 (dim / heads if it is not there), must be an even number from 2 to "
                               "1024"),
                              ({"type": '"q2"'}, 'type = "q2", possible are f32'),
                              ({"type": "bf16"}, "type = bf16, must be a text in quotation marks"),
                              ({"qk_norm": "1"}, "qk_norm = 1, must be true or false"),
                              ({"ffn_dim": "100", "type": '"q8_0"'}, "ffn_down.weight has 100 columns")):
            path = self.shape(**changes)
            self.refuse(FAILURE, path, f"{path}: ", said)

    def test_a_key_that_is_there_twice_is_named_with_both_values(self):
        path = self.shape()
        with open(path, "a", encoding="utf-8") as file:
            file.write("layers = 3\n")
        self.refuse(FAILURE, path, f"{path}: layers is there twice, as 2 and as 3")

    def test_a_model_instead_of_a_shape_is_refused_before_it_is_read(self):
        self.refuse(FAILURE, TINY, f"{TINY}: is a model, not a shape: give it with -m")
        # 16 GiB of zeros, which would take long to read.
        path = self.folder / "large.bin"
        with path.open("wb") as file:
            file.truncate(1 << 34)
        self.refuse(FAILURE, str(path), f"{path}: has 17179869184 bytes, a shape at most 65536; a model is given")

    def test_of_a_bad_line_a_message_shows_no_more_than_can_be_read(self):
        path = self.folder / "shape.toml"
        for line, shown in ((b"\x1b[31m\x00\xff" * 1000, "'\\x1b[31m\\x00\\xff\\x1b"),
                            (b"layers = " + b"9" * 1000, "9" * 80 + "..."),
                            (b"k" * 1000 + b" = 1", "k" * 80 + "...")):
            path.write_bytes(line + b"\n")
            for command in (["bench"], ["inspect"]):
                stderr = self.run_fails(FAILURE, *command, "--random", str(path))
                self.assertIn(shown, stderr)
                self.assertTrue(stderr.rstrip("\n").isprintable(), repr(stderr))
                self.assertLess(len(stderr), 300 + len(str(path)))

    def test_a_seed_is_for_synthetic_weights(self):
        for command in (["bench"], ["inspect"], ["simulate", "--measure-costs", str(self.folder / "c.tsv")]):
            stderr = self.run_fails(USAGE, command[0], "-m", TINY, *command[1:], "--random-seed", "7")
            self.assertIn("--random-seed", stderr)
            self.assertIn("requires", stderr)

    def test_what_does_not_fit_is_refused_before_anything_is_taken(self):
        # 280 TB.
        huge = self.shape(layers="1000", dim="65536", heads="512", kv_heads="512", head_dim="128", ffn_dim="655360")
        for command in (["bench", "--dtype", "q4,bf16"],
                        ["simulate", "--measure-costs", str(self.folder / "costs.tsv"), "--rows", "1"]):
            stderr = self.run_fails_aloud(*command, "--random", huge)
            self.assertRegex(stderr, r"the run needs \d{8,} MB of memory, there are \d+ MB \(")

    def run_fails_aloud(self, *args: str) -> str:
        """The last line of stderr: measuring tells what it does before it fails."""
        from paceline_cli import paceline
        done = paceline(*args)
        self.assertEqual((done.returncode, done.stdout), (FAILURE, b""), done.stderr.decode())
        return done.stderr.decode().splitlines()[-1]

    def test_a_model_file_beside_a_shape(self):
        self.assertIn("excludes", self.run_fails(USAGE, "bench", "-m", TINY, "--random", "tiny"))

    def test_commands_that_work_on_text_say_why_not(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"prompt": "one two"}\n')
        for command in (["run", "-p", "x"], ["tokenize", "x"], ["check"],
                        ["generate", "--prompts", str(prompts), "-o", str(self.folder / "answers")]):
            stderr = self.run_fails(USAGE, *command, "--random", "tiny")
            self.assertIn("--random: 'tiny' has no tokenizer", stderr)
        table = self.folder / "costs.tsv"
        table.write_text("stage\tfingerprint\tlayers\trows\tcontext\tthreads\tneighbours\tseconds\n"
                         "verify\ttiny:auto\t0\t1\t0\t0\t0\t0.02\n")
        simulate = ["simulate", "--random", "tiny", "--method", "autoregressive-segments", "--costs", str(table)]
        self.assertIn("--acceptance says how often", self.run_fails(USAGE, *simulate))
        self.assertIn("has no tokenizer", self.run_fails(USAGE, *simulate, "--acceptance", "0.5", "-p", "x"))
        self.assertIn("--check", self.run_fails(USAGE, *simulate, "--acceptance", "0.5", "--check"))
        self.assertIn("1.5", self.run_fails(USAGE, *simulate, "--acceptance", "1.5"))
        self.assertIn("--random", self.run_fails(USAGE, "simulate", "--acceptance", "0.5"))
        self.assertIn("--acceptance", self.run_fails(USAGE, *simulate, "--draft-reliability", "0.5"))
        self.assertIn("1.5", self.run_fails(USAGE, *simulate, "--acceptance", "0.5", "--draft-reliability", "1.5"))
        self.assertFalse(Path(self.folder / "answers").exists())


if __name__ == "__main__":
    unittest.main()
