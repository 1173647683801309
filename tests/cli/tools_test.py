"""`paceline tokenize`, `inspect`, `bench`, `--version`, `--help`: what they print can be parsed."""

import csv
import io
import json
import os
import re
import unittest
from pathlib import Path

import gguf_vocabulary
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

    def test_methods_are_listed_by_what_they_would_draft_with(self):
        out = self.run_ok("inspect", TINY)
        self.assertIn("trained part  none was found for this model\n", out)
        self.assertRegex(out, r"\nstand-ins     (.|\n)*four-stages")
        self.assertRegex(out, r"\nno part used  (.|\n)*autoregressive")
        self.assertNotIn("with parts", out)
        self.assertRegex(out, "\nnot possible  adadecode: .*layers")  # four segments; the tiny model has two layers
        methods = json.loads(self.run_ok("inspect", TINY, "-o", "json"))["methods"]
        names = [line.split()[0] for line in self.run_ok("run", "--list-methods", "all").splitlines() if line[0] != " "]
        self.assertEqual({"plain", *methods}, set(names))
        for name, method in methods.items():
            self.assertEqual(method["fits"], method["refusal"] == "", name)
            if method["fits"] and name != "four-stages":
                continue
            done = paceline("run", "-m", TINY, "--method", name, "-p", "x", "-n", "1", "-q", "-t", "1")
            self.assertEqual(done.returncode == 0, method["fits"], name)

    @needs_demo_model
    def test_the_demo_model_has_trained_parts(self):
        out = self.run_ok("inspect", demo_model())
        self.assertRegex(out, r"\ntrained part  .*draft-small.safetensors, licence \S.*\n")
        self.assertRegex(out, r"\nwith parts    (.|\n)*speculative")
        without = json.loads(self.run_ok("inspect", demo_model(), "--parts", "none", "-o", "json"))
        self.assertEqual(without["trained_parts"], [])
        self.assertEqual(without["methods"]["speculative"]["parts"], "stand-ins")

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


class HostileModel(CliTest):
    """What a model file says is printed, never obeyed: no control character of it reaches the terminal."""

    EVIL = "\x1b]0;owned\x07\x7f\u009b2J\u202e".encode()

    def written(self, name: str, **changes) -> str:
        fields, tensors = gguf_vocabulary.read(Path(TINY).read_bytes())
        for key, value in changes.items():
            key = key.replace("__", ".")
            if value is None:
                del fields[key]
            else:
                fields[key] = (gguf_vocabulary.TEXT, value)
        path = self.folder / name
        path.write_bytes(gguf_vocabulary.write(fields, tensors))
        return str(path)

    def check_visible(self, *args: str, code: int = 0, naming: str) -> str:
        done = paceline(*args)
        text = (done.stdout + done.stderr).decode("utf-8")
        self.assertEqual(done.returncode, code, text)
        for character in text:
            self.assertFalse(character < " " and character not in "\n\t" or "\x7f" <= character <= "\x9f"
                             or character == "\u202e", repr(text))
        self.assertIn(naming, text)
        self.assertLess(max(map(len, text.splitlines())), 3000)
        return text

    def test_names_are_escaped_and_cut_wherever_they_are_printed(self):
        path = self.written("name.gguf", general__name=self.EVIL + b"x" * 10_000)
        self.check_visible("inspect", path, naming="\\x1b]0;owned\\x07\\x7f\\xc2\\x9b2J")
        self.check_visible("bench", "-m", path, "-t", "1", "-p", "1", "-n", "0", "-r", "1", naming="\\x1b]0;owned")
        self.check_visible("bench", "-m", path, "-t", "1", "-p", "1", "-n", "0", "-r", "1", "-o", "json",
                           naming="x1b]0;owned")

    def test_a_name_cannot_break_a_table(self):
        for name, cell in ((b"a|b", "a\\|b"), (b"a\\|b", "a\\\\\\|b"), (b"<img src=x>", "\\<img src=x>"),
                           (b"`a` *b* [c](d)", "\\`a\\` \\*b\\* \\[c](d)"), (b"a\nb", "a\\\\x0ab")):
            path = self.written("name.gguf", general__name=name)
            args = ["bench", "-m", path, "-t", "1", "-p", "1", "-n", "0", "-r", "1"]
            header, _, row = self.run_ok(*args).splitlines()
            self.assertTrue(row.startswith(f"| {cell} | "), row)
            self.assertEqual(len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)), header.count("|"), row)
            rows = list(csv.DictReader(io.StringIO(self.run_ok(*args, "-o", "csv"))))
            self.assertEqual([row["test"] for row in rows], ["pp1"])

    def test_settings_of_a_sweep_cannot_break_its_table(self):
        costs = str(self.folder / "costs.tsv")
        self.run_ok("simulate", "-m", TINY, "--measure-costs", costs, "--rows", "1,8", "--contexts", "0", "--depths",
                    "2", "--measure-threads", "1", "--neighbours", "0", "--samples", "1")
        out = self.check_visible("simulate", "-m", TINY, "--method", "prompt-lookup", "-n", "2", "-p", "x", "--costs",
                                 costs, "--sweep", "pipeline.name=a|b,c", naming="| pipeline.name=a\\|b | ")
        rows = [line for line in out.splitlines() if line.startswith("|")]
        self.assertEqual(len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}), 1, rows)

    def test_a_chat_shows_its_system_prompt_escaped(self):
        done = paceline("run", "-m", TINY, "-i", "-t", "1", "--system", self.EVIL.decode(), stdin=b"/system\n")
        self.assertEqual(done.returncode, 0)
        self.assertNotIn(b"\x1b", done.stderr)
        self.assertIn(b"[the system prompt is \\x1b]0;owned", done.stderr)

    def test_json_of_a_hostile_name_is_json_and_harmless(self):
        path = self.written("name.gguf", general__name=b"\x1b\x7f\xc2\x9b\xff")
        out = self.check_visible("inspect", path, "-o", "json", naming="\\u001b\\u007f\\u009b")
        self.assertEqual(json.loads(out)["name"], "\x1b\x7f\x9b\ufffd")

    def test_what_is_refused_is_named_escaped(self):
        for key, where in (("tokenizer__ggml__model", "tokenizer model"), ("tokenizer__ggml__pre", "pre-tokenizer"),
                           ("tokenizer__chat_template", "chat template"), ("general__architecture", "architecture")):
            with self.subTest(key=key):
                text = self.EVIL + b"y" * 10_000
                if key.endswith("template"):
                    text = b"{{ raise_exception('" + text + b"') }}"
                path = self.written("model.gguf", **{key: text})
                self.check_visible("run", "-m", path, "-p", "x", code=1, naming="\\x1b]0;owned")
                self.check_visible("run", "-m", path, "-p", "x", code=1, naming=where)

    def test_a_configuration_and_prompts_are_shown_escaped(self):
        config = self.folder / "evil.toml"
        config.write_bytes(b"a = \"x\"\n" + self.EVIL[:12] + b"\n")
        self.check_visible("run", "-m", TINY, "-p", "x", "--config", str(config), code=2, naming="evil.toml:2")
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text(json.dumps({"id": self.EVIL.decode(), "prompt": "Hi"}))
        self.check_visible("check", "-m", TINY, "--method", "prompt-lookup", "-t", "1", "-n", "2", "--prompts",
                           str(prompts), naming="\\x1b]0;owned")

    def test_inspect_says_whether_a_model_runs_and_why_not(self):
        self.assertIn("use           runs\n", self.run_ok("inspect", TINY))
        raw = self.written("raw.gguf", tokenizer__chat_template=None)
        self.assertIn("use           runs with --raw only: there is no chat template", self.run_ok("inspect", raw))
        self.run_ok("run", "-m", raw, "--raw", "-p", "x", "-n", "1")
        other = self.written("other.gguf", tokenizer__chat_template=b"{{ messages | pprint }}")
        self.assertIn("runs with --raw only: the chat template, line 1: the filter 'pprint' is not supported", self.run_ok("inspect", other))
        for key, value, why in (("tokenizer__ggml__merges", None, "tokenizer.ggml.merges is missing"),
                                ("tokenizer__ggml__model", b"t5", 'tokenizer model "t5"')):
            path = self.written("no.gguf", **{key: value})
            out = self.run_ok("inspect", path)
            self.assertRegex(out, f"use           cannot run: {why}")
            self.assertTrue(json.loads(self.run_ok("inspect", path, "-o", "json"))["use"].startswith("cannot run: "))
            stderr = self.run_fails(1, "run", "-m", path, "--raw", "-p", "x")
            self.assertIn(why, stderr)
            self.assertIn("no.gguf: ", stderr)
        alien = self.written("alien.gguf", general__architecture=b"mamba")
        self.assertIn("cannot run: ", self.run_fails(1, "inspect", alien))


class Bench(CliTest):
    ARGS = ["bench", "-m", TINY, "-t", "1", "-p", "16", "-n", "4", "-r", "2"]

    def test_json_has_the_fields_of_llama_bench(self):
        rows = json.loads(self.run_ok(*self.ARGS, "-d", "0,8", "-b", "1,4", "--gemm", "-o", "json"))
        self.assertEqual([r["test"] for r in rows],
                         ["pp16", "tg4", "b1", "gemm1", "b4", "gemm4",
                          "pp16 @ d8", "tg4 @ d8", "b1 @ d8", "gemm1 @ d8", "b4 @ d8", "gemm4 @ d8"])
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


class BlockTypes(CliTest):
    MODEL = str(Path(TINY).with_name("qwen3-k-mix.gguf"))
    # Blocks of every type are computed without rounding; only --dtype rounds.
    ROUNDED = "Q2_K is computed as int8 (to 8 bits)"

    def commands(self, dtype: str) -> dict[str, list[str]]:
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text(json.dumps({"prompt": "Hi there"}) + "\n")
        return {
            "run": ["run", "--raw", "-n", "2", "Hi there"],
            "pipeline": ["run", "--raw", "-n", "2", "--method", "prompt-lookup", "Hi there"],
            "check": ["check", "--method", "prompt-lookup", "--prompts", str(prompts), "-n", "2"],
            "generate": ["generate", "--prompts", str(prompts), "-o", str(self.folder / dtype), "-n", "2"],
            "bench": ["bench", "-p", "0", "-n", "1", "-r", "1"],
        }

    def test_every_command_names_what_it_rounds_and_only_that(self):
        for dtype in ("int8", "auto"):
            for name, command in self.commands(dtype).items():
                with self.subTest(command=name, dtype=dtype):
                    done = paceline(*command, "-m", self.MODEL, "--dtype", dtype)
                    said = done.stderr.decode()
                    self.assertEqual(done.returncode, 0, said)
                    self.assertEqual(said.count(self.ROUNDED), 1 if dtype == "int8" else 0, said)
                    self.assertEqual("is computed as" in said, dtype == "int8", said)

    def test_float16_that_becomes_bfloat16_is_named(self):
        model = str(Path(TINY).with_name("llama-untied-f16.gguf"))
        rounded = "F16 is computed as bf16 (to bfloat16)"
        for dtype in ("bf16", "auto"):
            for name, command in self.commands(dtype).items():
                with self.subTest(command=name, dtype=dtype):
                    done = paceline(*command, "-m", model, "--dtype", dtype)
                    said = done.stderr.decode()
                    self.assertEqual(done.returncode, 0, said)
                    self.assertEqual(said.count(rounded), 1 if dtype == "bf16" else 0, said)
        of_file = json.loads(self.run_ok("inspect", model, "-o", "json"))
        self.assertEqual({(use["computed_as"], use["rounded"]) for use in of_file["types"]}, {("f16", "exact")})
        self.assertIn(rounded, of_file["rounded_on_gpu"])
        self.assertRegex(self.run_ok("inspect", model), r"\non a GPU +F16 is computed as bf16 ")

    def test_inspect_says_that_blocks_are_kept_as_they_are(self):
        uses = json.loads(self.run_ok("inspect", self.MODEL, "-o", "json"))["types"]
        self.assertEqual({use["rounded"] for use in uses}, {"exact"})
        self.assertIn(("IQ4_XS", "iq4_xs"), {(use["stored"], use["computed_as"]) for use in uses})


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
