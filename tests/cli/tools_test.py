"""`paceline tokenize`, `inspect`, `bench`, `--version`, `--help`: what they print can be parsed."""

import csv
import io
import json
import os
import unittest

from paceline_cli import CliTest, TINY, demo_model, needs_demo_model, paceline


class Tokenize(CliTest):
    def ids(self, *args: str, **kwargs) -> list[int]:
        return json.loads(self.run_ok("tokenize", "-m", TINY, "-o", "ids", *args, **kwargs))

    def test_ids_turned_back_are_the_text(self):
        for text in ("Hello, world", "  two  spaces\n", "为什么", "\U0001F468‍\U0001F469‍\U0001F467", "1234567", ""):
            with self.subTest(text=text):
                ids = self.ids(text)
                self.assertEqual(self.run_ok("tokenize", "-m", TINY, "--decode", json.dumps(ids)), text)

    def test_standard_input_file_and_argument_agree(self):
        path = self.folder / "text.txt"
        path.write_bytes(b"same bytes\n")
        self.assertEqual(self.ids("same bytes\n"), self.ids(stdin=b"same bytes\n"))
        self.assertEqual(self.ids("same bytes\n"), self.ids("-f", str(path)))

    def test_control_tokens_are_one_token_or_plain_characters(self):
        self.assertEqual(len(self.ids("<|im_start|>")), 1)
        self.assertGreater(len(self.ids("--plain", "<|im_start|>")), 3)

    def test_json_has_ids_and_their_texts(self):
        out = json.loads(self.run_ok("tokenize", "-m", TINY, "-o", "json", "Hello, world"))
        self.assertEqual(out["count"], len(out["tokens"]))
        self.assertEqual("".join(out["token_strs"]), "Hello, world")

    def test_the_table_has_a_line_for_each_token(self):
        self.assertEqual(len(self.run_ok("tokenize", "-m", TINY, "a b").splitlines()), len(self.ids("a b")))

    def test_ids_outside_the_vocabulary_are_refused(self):
        for text in ("999999", "-1", "12x", "[1, 2, banana]"):
            with self.subTest(text=text):
                self.assertIn("--decode", self.run_fails(2, "tokenize", "-m", TINY, "--decode", "--", text))

    @needs_demo_model
    def test_smollm2_tokens_are_those_of_its_authors(self):
        out = self.run_ok("tokenize", "-m", demo_model(), "-o", "ids", "Hello, world!")
        self.assertEqual(json.loads(out), [19556, 28, 905, 17])


class Inspect(CliTest):
    def test_text_names_architecture_tensors_and_memory(self):
        out = self.run_ok("inspect", TINY)
        for part in ("architecture", "llama", "blk.*.attn_q.weight", "--dtype", "int8", "KV cache"):
            self.assertIn(part, out)

    def test_every_tensor_can_be_listed(self):
        count = len(json.loads(self.run_ok("inspect", TINY, "-o", "json"))["tensors"])
        lines = [line for line in self.run_ok("inspect", TINY, "--tensors").splitlines() if "weight" in line]
        self.assertGreaterEqual(len(lines), count)

    def test_json_adds_up(self):
        out = json.loads(self.run_ok("inspect", TINY, "-o", "json"))
        self.assertEqual(out["parameters"], sum(t["rows"] * t["cols"] for t in out["tensors"]))
        self.assertLess(sum(t["bytes"] for t in out["tensors"]), out["file_bytes"])
        self.assertEqual(set(out["packed_bytes"]), {"auto", "f32", "bf16", "int8", "q4"})
        self.assertLess(out["packed_bytes"]["int8"], out["packed_bytes"]["bf16"])
        self.assertLess(out["packed_bytes"]["bf16"], out["packed_bytes"]["f32"])

    @needs_demo_model
    def test_the_demo_model_is_what_it_should_be(self):
        out = json.loads(self.run_ok("inspect", demo_model(), "-o", "json"))
        self.assertEqual(out["parameters"], 134_515_008)
        self.assertEqual((out["layers"], out["dim"], out["heads"], out["kv_heads"]), (30, 576, 9, 3))
        self.assertEqual((out["vocab_size"], out["context_length"], out["rope_base"]), (49152, 8192, 100000.0))
        types = [t["type"] for t in out["tensors"]]
        self.assertEqual((types.count("Q4_1"), types.count("Q8_0")), (210, 1))


class Bench(CliTest):
    ARGS = ["bench", "-m", TINY, "-t", "1", "-p", "16", "-n", "4", "-r", "2"]

    def test_json_has_the_fields_of_llama_bench(self):
        rows = json.loads(self.run_ok(*self.ARGS, "-d", "0,8", "-w", "1,4", "--gemm", "-o", "json"))
        self.assertEqual([r["test"] for r in rows],
                         ["pp16", "tg4", "w1", "gemm1", "w4", "gemm4",
                          "pp16 @ d8", "tg4 @ d8", "w1 @ d8", "gemm1 @ d8", "w4 @ d8", "gemm4 @ d8"])
        for row in rows:
            for field in ("n_prompt", "n_gen", "n_depth", "n_threads", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts"):
                self.assertIn(field, row)
            self.assertEqual(len(row["samples_ns"]), 2)
            self.assertGreater(row["avg_ts"], 0)
        self.assertEqual((rows[0]["n_prompt"], rows[0]["n_gen"]), (16, 0))
        self.assertEqual((rows[1]["n_prompt"], rows[1]["n_gen"]), (0, 4))

    def test_csv_has_as_many_values_as_names(self):
        rows = list(csv.DictReader(io.StringIO(self.run_ok(*self.ARGS, "-o", "csv"))))
        self.assertEqual([row["test"] for row in rows], ["pp16", "tg4"])
        self.assertTrue(all(None not in row and None not in row.values() for row in rows))

    def test_markdown_is_a_table(self):
        lines = self.run_ok(*self.ARGS).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(len({line.count("|") for line in lines}), 1)

    def test_threads_and_dtypes_are_swept(self):
        rows = json.loads(self.run_ok("bench", "-m", TINY, "-t", "1,2", "-p", "0", "-n", "2", "-r", "1",
                                      "--dtype", "bf16,int8", "-o", "json"))
        self.assertEqual([(r["dtype"], r["n_threads"]) for r in rows],
                         [("bf16", 1), ("bf16", 2), ("int8", 1), ("int8", 2)])

    def test_what_cannot_be_measured_is_refused(self):
        self.assertIn("nothing to measure", self.run_fails(2, "bench", "-m", TINY, "-p", "0", "-n", "0"))
        self.assertIn("context", self.run_fails(2, "bench", "-m", TINY, "-d", "99999999"))
        self.assertIn("'fast'", self.run_fails(2, "bench", "-m", TINY, "-t", "fast"))


class Program(CliTest):
    def test_version_names_commit_compiler_cpu_and_cuda(self):
        out = self.run_ok("--version")
        for part in ("paceline 0.", "commit", "compiler", "CPU", "CUDA"):
            self.assertIn(part, out)

    def test_help_explains_every_command(self):
        commands = self.run_ok("--help")
        for command in ("run", "tokenize", "inspect", "bench"):
            self.assertIn(command, commands)
            self.assertIn("--help", self.run_ok(command, "--help"))
        self.assertIn("130", commands)
        run = self.run_ok("run", "--help")
        for part in ("--temp 0.2 --top-p 0.9", "greedy", "Examples:", "generation_config.json"):
            self.assertIn(part, run)

    def test_it_runs_on_a_single_core(self):
        core = min(os.sched_getaffinity(0))
        env_args = ["run", "-m", TINY, "-p", "x", "-n", "2", "--stats", str(self.folder / "s.json")]
        import subprocess
        from paceline_cli import BINARY, environment
        done = subprocess.run([BINARY, *env_args], capture_output=True, env=environment(), check=False,
                              preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(json.loads((self.folder / "s.json").read_text())["threads"], 1)

    def test_nothing_colourful_or_moving_goes_into_a_pipe(self):
        done = paceline("run", "-m", TINY, "-p", "x", "-n", "2")
        self.assertNotIn(b"\x1b", done.stderr)
        self.assertNotIn(b"\r", done.stderr)


if __name__ == "__main__":
    unittest.main()
