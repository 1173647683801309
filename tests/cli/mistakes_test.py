"""What a user gets wrong: the message names it, the exit code says whose fault it is."""

import os
import resource
import subprocess
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, TINY, demo_model, environment, needs_demo_model, paceline

USAGE, FAILURE = 2, 1


class WrongOptions(CliTest):
    def refuse(self, *args: str, naming: tuple[str, ...]) -> None:
        with self.subTest(args=args):
            stderr = self.run_fails(USAGE, "run", "-m", TINY, "-p", "x", *args)
            for part in naming:
                self.assertIn(part, stderr)

    def test_a_value_that_is_not_allowed_is_named_with_option_and_choices(self):
        self.refuse("--dtype", "int4", naming=("--dtype", "'int4'", "f32|bf16|int8|q4"))
        self.refuse("--kv-dtype", "q8", naming=("--kv-dtype", "'q8'", "f16|bf16|f32"))
        self.refuse("--method", "magic", naming=("--method", "'magic'", "prompt-lookup"))
        self.refuse("--isa", "sse", naming=("--isa", "'sse'", "avx2"))

    def test_a_number_out_of_range_is_named_with_the_range(self):
        self.refuse("--top-p", "0", naming=("--top-p", "'0'", "(0, 1]"))
        self.refuse("--min-p", "1", naming=("--min-p", "'1'", "[0, 1)"))
        self.refuse("--temp", "-1", naming=("--temp", "'-1'"))
        self.refuse("--temp", "warm", naming=("--temp", "'warm'", "not a number"))
        self.refuse("-n", "-2", naming=("--n-predict", "'-2'", "-1 or more"))
        self.refuse("-t", "0", naming=("--threads", "'0'", "1 to 1024"))
        self.refuse("-c", "12.5", naming=("--context", "'12.5'"))
        self.refuse("--seed", "-1", naming=("--seed", "-1"))
        self.refuse("--logit-bias", "7", naming=("--logit-bias", "'7'", "ID=VALUE"))
        self.refuse("-c", "9999999", naming=("9999999", "model's context"))

    def test_options_that_contradict_each_other_are_refused(self):
        self.refuse("-f", "file.txt", naming=("twice",))
        self.refuse("--raw", "--system", "x", naming=("--system", "--raw"))
        self.refuse("--raw", "--interactive", naming=("--interactive", "--raw"))
        self.refuse("--stop", "", naming=("--stop", "empty"))
        self.refuse("--config", "x.toml", "--method", "plain", naming=("--method",))
        self.refuse("--trace", "t.json", naming=("--trace", "--config"))

    def test_threads_that_slow_down_or_change_nothing_are_told(self):
        cores = len(os.sched_getaffinity(0))
        too_many, short = str(cores + 1), ["-m", TINY, "-p", "x", "-n", "1"]
        for args in (["run", *short], ["run", *short, "--method", "prompt-lookup"],
                     ["check", "-m", TINY, "--method", "prompt-lookup", "--first", "1", "-n", "1"],
                     ["bench", "-m", TINY, "-p", "1", "-n", "0", "-r", "1"]):
            with self.subTest(args=args):
                done = paceline(*args, "-t", too_many)
                said = done.stderr.decode()
                self.assertEqual(done.returncode, 0, said)
                self.assertIn(f"-t {too_many} is more than the {cores} cores", said)
                self.assertNotIn("is more than", paceline(*args, "-t", "1").stderr.decode())

    def test_parts_that_nothing_would_use_are_refused_or_told(self):
        self.refuse("--parts", "/nonexistent", naming=("--parts", "--method"))
        done = paceline("run", "-m", TINY, "-p", "x", "-n", "1", "--method", "prompt-lookup", "--parts", "/nonexistent")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("left out: --parts /nonexistent", done.stderr.decode())

    def test_an_option_and_a_command_that_nobody_knows(self):
        self.refuse("--temprature", "1", naming=("--temprature",))
        self.assertIn("decode", self.run_fails(USAGE, "decode"))
        self.run_fails(USAGE)

    def test_a_file_that_cannot_be_written_is_said_before_the_model_is_loaded(self):
        for option in ("--ids", "--log", "--stats"):
            self.refuse(option, "/nonexistent/x", naming=(option, "/nonexistent/x", "No such file"))
        self.assertFalse(Path("/nonexistent").exists())


class WrongFiles(CliTest):
    def refuse_model(self, path: str, *naming: str) -> None:
        with self.subTest(path=path):
            stderr = self.run_fails(FAILURE, "run", "-m", path, "-p", "x")
            for part in (path, *naming):
                self.assertIn(part, stderr)

    def write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def test_a_wrong_path_a_directory_and_an_empty_file(self):
        self.refuse_model("/nonexistent/model.gguf", "No such file")
        self.refuse_model(str(self.folder), "directory")
        self.refuse_model(self.write("empty.gguf", b""))
        self.refuse_model(self.write("text.gguf", b"this is not a model\n" * 100))

    def test_a_truncated_file_is_refused_wherever_it_ends(self):
        data = Path(TINY).read_bytes()
        for length in (3, 4, 8, 23, 24, 100, 1000, len(data) // 2, len(data) - 1):
            self.refuse_model(self.write(f"cut-{length}.gguf", data[:length]))

    def test_corrupted_counts_and_versions_are_refused(self):
        data = Path(TINY).read_bytes()
        for name, at, value in (("magic", 0, b"GGML"), ("version", 4, b"\x09\0\0\0"),
                                ("tensors", 8, b"\xff" * 8), ("keys", 16, b"\xff" * 7 + b"\x7f")):
            self.refuse_model(self.write(f"{name}.gguf", data[:at] + value + data[at + len(value):]))

    def test_no_byte_of_the_header_can_be_flipped_into_a_crash(self):
        data = Path(TINY).read_bytes()
        for at in range(0, 4000, 97):
            path = self.write("flipped.gguf", data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1:])
            with self.subTest(at=at):
                done = paceline("inspect", path)
                self.assertIn(done.returncode, (0, FAILURE), done.stderr.decode(errors="replace"))

    def test_without_any_model_the_message_says_how_to_get_one(self):
        env = environment(XDG_CACHE_HOME=str(self.folder), PACELINE_MODEL=None)
        self.assertIn("launch/fetch_model", self.run_fails(FAILURE, "run", "-p", "x", env=env))

    def test_a_model_named_by_the_environment_is_used_and_the_option_wins(self):
        env = environment(PACELINE_MODEL=TINY)
        self.run_ok("run", "-p", "x", "-n", "1", env=env)
        env = environment(PACELINE_MODEL="/nonexistent/env.gguf")
        self.assertIn("env.gguf", self.run_fails(FAILURE, "run", "-p", "x", env=env))
        self.run_ok("run", "-m", TINY, "-p", "x", "-n", "1", env=env)

    def test_a_prompt_file_that_is_not_there(self):
        self.assertIn("/nonexistent/p.txt",
                      self.run_fails(FAILURE, "run", "-m", TINY, "-f", "/nonexistent/p.txt"))

    def test_a_configuration_that_is_not_there_or_wrong(self):
        self.assertIn("/nonexistent/c.toml", self.run_fails(
            FAILURE, "run", "-m", TINY, "-p", "x", "--config", "/nonexistent/c.toml"))
        path = self.write("bad.toml", b"[[stage]]\nname = \"a\"\nrole = \"boss\"\n")
        stderr = self.run_fails(USAGE, "run", "-m", TINY, "-p", "x", "--config", path)
        self.assertIn("bad.toml:3", stderr)
        self.assertIn("boss", stderr)

    def refuse_config(self, text: str, code: int, *naming: str) -> None:
        path = self.write("stages.toml", text.encode())
        stderr = self.run_fails(code, "run", "-m", TINY, "-p", "x", "--config", path)
        for part in ("stages.toml", *naming):
            self.assertIn(part, stderr)

    def test_an_unknown_key_is_named_with_the_one_that_was_probably_meant(self):
        self.refuse_config('[[stage]]\nname = "a"\nrole = "segment"\nlayer = "auto"\n', USAGE,
                           ":4: ", 'layer = "auto" is not a known key', "did you mean 'layers'?")
        self.refuse_config('[[stage]]\nname = "a"\nrole = "segment"\n[supervision]\nrestart_max = 3\n', USAGE,
                           ":5: [supervision] restart_max = 3", "did you mean 'restarts_max'?")

    def test_a_device_that_does_not_exist_is_named_with_the_stage_and_what_there_is(self):
        self.refuse_config('[[stage]]\nname = "a"\nrole = "segment"\ndevice = "cuda:99"\n', USAGE,
                           '[[stage]] "a": device = "cuda:99" does not exist', "available: ")

    @needs_demo_model
    def test_a_context_that_does_not_fit_into_memory_is_refused_with_the_numbers(self):
        # The demo model, told that it was trained for 2^24 tokens: a KV cache of 773 GB.
        model = bytearray(Path(demo_model()).read_bytes())
        key = b"llama.context_length"
        at = model.index(key) + len(key) + 4
        model[at:at + 4] = (1 << 24).to_bytes(4, "little")
        path = self.write("long.gguf", bytes(model))
        for method in ("plain", "prompt-lookup"):
            stderr = self.run_fails(FAILURE, "run", "-m", path, "-p", "x", "-c", "16777216", "--kv-dtype", "f32",
                                    "--method", method)
            self.assertRegex(stderr, r"the run needs \d+ MB of memory, there are \d+ MB \(")
            self.assertRegex(stderr, r"weights \d+ MB, KV cache \d{6,} MB")
            self.assertIn("(-c)", stderr)


class WrongPrompts(CliTest):
    def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(self):
        stderr = self.run_fails(FAILURE, "run", "-m", TINY, "-c", "32", "-p", "word " * 200)
        self.assertRegex(stderr, r"the prompt has \d+ tokens")
        self.assertIn("context of 32 tokens", stderr)
        self.assertIn("-c up to", stderr)

    def test_an_empty_raw_prompt_is_refused(self):
        self.assertIn("empty", self.run_fails(FAILURE, "run", "-m", TINY, "--raw", "-p", ""))



def limited(*args: str, stdin: str = os.devnull) -> subprocess.CompletedProcess:
    """The program with at most 2 GB of address space: what reads without a bound ends there, not the machine."""
    with open(stdin, "rb") as file:
        return subprocess.run([BINARY, *args], stdin=file, capture_output=True, timeout=120, env=environment(),
                              check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30,) * 2))


@unittest.skipUnless(os.path.exists("/dev/zero"), "skipped: no /dev/zero here")
class EndlessFiles(CliTest):
    def refuse(self, *args: str, naming: tuple[str, ...], stdin: str = os.devnull) -> None:
        with self.subTest(args=args):
            done = limited(*args, stdin=stdin)
            stderr = done.stderr.decode()
            self.assertEqual(done.returncode, FAILURE, stderr)
            for part in naming:
                self.assertIn(part, stderr)

    def test_a_file_without_an_end_is_refused_by_name_with_the_limit(self):
        zero = "/dev/zero"
        run = ("run", "-m", TINY, "-p", "x")
        self.refuse("run", "-m", TINY, "-f", zero, naming=(zero, "65536 KiB"))
        self.refuse(*run, "--config", zero, naming=(zero, "64 KiB"))
        self.refuse(*run, "--method", "pearl", "--machine", zero, "--dry-run", naming=(zero,))
        self.refuse("tokenize", "-m", TINY, "-f", zero, naming=(zero, "65536 KiB"))
        self.refuse("check", "-m", TINY, "--method", "pearl", "--prompts", zero, naming=(zero, "262144 KiB"))
        self.refuse("simulate", "-m", TINY, "--method", "pearl", "-p", "x", "--costs", zero,
                    naming=(zero, "262144 KiB"))

    def test_standard_input_without_an_end_is_refused(self):
        for more in ((), ("--interactive",)):
            self.refuse("run", "-m", TINY, *more, stdin="/dev/zero", naming=("standard input", "65536 KiB"))

    def test_a_configuration_that_nests_as_deep_as_its_size_allows_is_only_wrong(self):
        path = self.folder / "deep.toml"
        path.write_text("[" + "a." * 32_000 + "a]\n")
        stderr = self.run_fails(USAGE, "run", "-m", TINY, "-p", "x", "--config", str(path))
        self.assertIn("deep.toml:1", stderr)
        path.write_text("[" + "a." * 40_000 + "a]\n")
        stderr = self.run_fails(FAILURE, "run", "-m", TINY, "-p", "x", "--config", str(path))
        self.assertIn("64 KiB", stderr)


@unittest.skipUnless(os.path.exists("/dev/full"), "skipped: no /dev/full here")
class FullDisks(CliTest):
    def refuse(self, *args: str, stdout: str = "/dev/full", naming: str = "standard output") -> None:
        with self.subTest(args=args), open(stdout, "wb") as full:
            done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                                  timeout=120, env=environment(), check=False)
            stderr = done.stderr.decode()
            self.assertEqual(done.returncode, FAILURE, stderr)
            self.assertIn(naming, stderr)

    def test_standard_output_that_cannot_be_written_is_a_failure_of_every_command(self):
        self.refuse("run", "-m", TINY, "-p", "x", "-n", "4")
        self.refuse("run", "--list-methods")
        self.refuse("inspect", TINY)
        self.refuse("inspect", TINY, "-o", "json")
        self.refuse("tokenize", "-m", TINY, "some text")
        self.refuse("tokenize", "-m", TINY, "--decode", "[100, 101]")
        self.refuse("bench", "-m", TINY, "-t", "1", "-p", "4", "-n", "0", "-r", "1")
        self.refuse("check", "-m", TINY, "--method", "prompt-lookup", "-t", "1", "-n", "2", "--first", "1")
        self.refuse("--version")
        self.refuse("run", "--help")

    def test_a_file_that_cannot_be_written_is_a_failure(self):
        for option in ("--stats", "--ids", "--log"):
            self.refuse("run", "-m", TINY, "-p", "x", "-n", "1", option, "/dev/full", stdout=os.devnull,
                        naming="/dev/full")
        self.refuse("check", "-m", TINY, "--method", "prompt-lookup", "-t", "1", "-n", "2", "--first", "1", "--log",
                    "/dev/full", stdout=os.devnull, naming="--log: ")


if __name__ == "__main__":
    unittest.main()
