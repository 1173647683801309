"""What the process was started with: closed streams, limits of sizes, caches, files with a byte order mark."""

import json
import os
import resource
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, ROOT, TINY, environment, pipeline_toml

FAILURE = 1
FOLDER = str(ROOT / "tests" / "fixtures" / "folders" / "llama-untied-f16")
LOOKUP = ["--method", "prompt-lookup", "-t", "1"]
SHORT = ["-p", "x", "-n", "2", "-t", "1"]
MARK = b"\xef\xbb\xbf"


def started(*args: str, closed: tuple[int, ...] = (), file_bytes: int | None = None, cwd: Path | None = None,
            env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """The program with descriptors closed, or with a limit of file sizes; stdin is empty."""
    def prepare() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        for descriptor in closed:
            os.close(descriptor)
    return subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=120, env=env or environment(), cwd=cwd, check=False, preexec_fn=prepare)


class ClosedStreams(CliTest):
    def test_output_that_has_no_place_to_go_is_a_failure_of_every_command(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"prompt": "Hi"}\n')
        out = str(self.folder / "out")
        for args in (["run", "-m", TINY, *SHORT], ["run", "-m", TINY, *SHORT, *LOOKUP[:2]],
                     ["run", "--list-methods"], ["run", "--list-settings"],
                     ["run", "-m", TINY, "--dry-run", *LOOKUP[:2], "--machine", "4-a100"],
                     ["inspect", TINY], ["inspect", TINY, "-o", "json"],
                     *(["tokenize", "-m", TINY, "-o", form, "text"] for form in ("table", "ids", "json")),
                     ["tokenize", "-m", TINY, "--decode", "[100]"],
                     *(["bench", "-m", TINY, "-t", "1", "-p", "1", "-n", "0", "-r", "1", "-o", form]
                       for form in ("md", "csv", "json")),
                     ["check", "-m", TINY, *LOOKUP, "-n", "2", "--first", "1"],
                     ["generate", "-m", TINY, "-t", "1", "-n", "2", "--prompts", str(prompts), "-o", out],
                     ["convert", FOLDER, out + ".gguf", "--type", "q8_0", "-t", "1"],
                     ["--version"], ["--help"], ["run", "--help"]):
            with self.subTest(args=args):
                if "4-a100" in args:
                    args = [*args[:-1], str(ROOT / "configs" / "machines" / "4-a100.toml")]
                done = started(*args, closed=(1,))
                said = done.stderr.decode()
                self.assertEqual(done.returncode, FAILURE, said)
                self.assertIn("standard output is closed", said)

    def test_files_do_not_get_the_numbers_of_closed_streams(self):
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            for method in ([], LOOKUP[:2]):
                with self.subTest(closed=closed, method=method):
                    ids, trace = self.folder / "ids.json", self.folder / "trace.json"
                    done = started("run", "-m", TINY, *SHORT, "--ids", str(ids), *method,
                                   *(["--trace", str(trace)] if method else []), closed=closed)
                    self.assertEqual(done.returncode, FAILURE if 1 in closed else 0, done.stderr)
                    if 1 not in closed:
                        self.assertEqual(len(json.loads(ids.read_text())), 2)
                        self.assertEqual(done.stdout, started("run", "-m", TINY, *SHORT).stdout)

    def test_nothing_that_is_written_nowhere_fails(self):
        ids = self.folder / "ids.json"
        done = started("run", "-m", TINY, "-p", "x", "-n", "0", "-t", "1", "--ids", str(ids), closed=(1,))
        self.assertEqual((done.returncode, ids.read_text()), (0, "[]\n"), done.stderr)

    def test_a_reader_that_has_left_ends_the_program_by_the_signal_of_which_the_page_tells(self):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as pipe:
            done = subprocess.run([BINARY, "run", "-m", TINY, *SHORT], stdin=subprocess.DEVNULL, stdout=pipe,
                                  stderr=subprocess.PIPE, timeout=120, env=environment(), check=False)
        self.assertEqual(done.returncode, -signal.SIGPIPE)
        page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
        self.assertIn(f"{128 + signal.SIGPIPE} the reader of standard output has left", page)

    def test_standard_input_that_is_closed_is_no_empty_text(self):
        for args in (["tokenize", "-m", TINY], ["run", "-m", TINY, "-n", "1"]):
            done = started(*args, closed=(0,))
            self.assertEqual((done.returncode, done.stdout), (FAILURE, b""))
            self.assertIn("standard input: cannot be read", done.stderr.decode())
        self.assertEqual(started("run", "-m", TINY, "-i", closed=(0,)).returncode, 0)


class LimitOfFileSizes(CliTest):
    """ulimit -f: the signal that comes with it must not end the program."""

    def refuse(self, *args: str, file_bytes: int = 10 << 10, naming: str = "ulimit -f", left: tuple[str, ...] = ()):
        with self.subTest(args=args):
            before = sorted(os.listdir(self.folder))
            done = started(*args, file_bytes=file_bytes)
            said = done.stderr.decode()
            self.assertEqual(done.returncode, FAILURE, said)
            self.assertIn(naming, said)
            self.assertEqual(sorted(os.listdir(self.folder)), sorted([*before, *left]))

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def test_a_model_that_is_converted(self):
        for kind in ("q8_0", "bf16"):
            self.refuse("convert", FOLDER, self.path("out.gguf"), "--type", kind, "-t", "1")

    def test_shards_of_answers(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"prompt": "Hi"}\n')
        self.refuse("generate", "-m", TINY, "-t", "1", "-n", "8", "--prompts", str(prompts), "-o", self.path("shards"),
                    file_bytes=512, left=("shards",))
        self.assertEqual(os.listdir(self.folder / "shards"), [])

    def test_shared_memory_of_a_pipeline_and_the_files_that_it_would_have_written(self):
        files = ["--ids", self.path("ids"), "--stats", self.path("stats"), "--trace", self.path("trace")]
        self.refuse("run", "-m", TINY, *SHORT[:4], *LOOKUP, *files)
        self.refuse("check", "-m", TINY, *LOOKUP, "-n", "2", "--first", "1", "--json", self.path("check"))
        self.refuse("simulate", "-m", TINY, "--measure-costs", self.path("costs"), "--rows", "1", "--contexts", "0",
                    "--measure-threads", "1", "--neighbours", "0", "--samples", "1")

    def test_files_that_are_written_at_the_end(self):
        self.refuse("run", "-m", TINY, *SHORT, "--ids", self.path("ids"), file_bytes=2)
        self.refuse("run", "-m", TINY, *SHORT, "--stats", self.path("stats"), file_bytes=100)
        self.refuse("run", "-m", TINY, *SHORT, "--log", self.path("log"), file_bytes=100, naming="--log: ",
                    left=("log",))

    def test_a_packed_copy_that_cannot_be_kept_is_only_a_remark(self):
        env = environment(XDG_CACHE_HOME=str(self.folder))
        done = started("run", "-m", FOLDER, "--raw", *SHORT, "--dtype", "int8", file_bytes=10 << 10, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no packed copy", done.stderr.decode())
        self.assertEqual(list((self.folder / "paceline" / "packed").glob("*.gguf*")), [])

    def test_a_file_that_was_there_before_a_failure_is_emptied_and_stays(self):
        ids = self.folder / "ids"
        ids.write_text("of an earlier run, and longer than the limit")
        done = started("run", "-m", TINY, *SHORT, "--ids", str(ids), file_bytes=2)
        self.assertEqual((done.returncode, ids.read_text()), (FAILURE, ""))


class Caches(CliTest):
    def put(self, hub: Path) -> None:
        """A model owner/tiny in a cache of the hub."""
        model = hub / "models--owner--tiny"
        (model / "refs").mkdir(parents=True)
        (model / "refs" / "main").write_text("c0ffee")
        shutil.copytree(FOLDER, model / "snapshots" / "c0ffee")

    def test_the_cache_is_where_the_library_of_the_hub_looks(self):
        none = dict.fromkeys(("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"))
        for number, (variables, place) in enumerate((
                ({"HF_HOME": "~/x"}, "x/hub"), ({"HF_HOME": "$TOP/y"}, "y/hub"), ({"HF_HUB_CACHE": "~/z"}, "z"),
                ({"HF_HUB_CACHE": "${TOP}/z"}, "z"), ({"HUGGINGFACE_HUB_CACHE": "~/h"}, "h"),
                ({"XDG_CACHE_HOME": "~/c"}, "c/huggingface/hub"), ({}, ".cache/huggingface/hub"))):
            with self.subTest(variables=variables):
                home = self.folder / str(number)
                self.put(home / place)
                env = environment(**(none | {"HOME": str(home), "TOP": str(home)} | variables))
                out = self.run_ok("inspect", "owner/tiny", env=env)
                self.assertIn(str(home / place), out)

    def test_a_relative_folder_of_caches_is_ignored(self):
        home, work = self.folder / "home", self.folder / "work"
        home.mkdir(), work.mkdir()
        env = environment(XDG_CACHE_HOME="cache", HOME=str(home))
        done = started("run", "-m", FOLDER, "--raw", *SHORT, "--dtype", "int8", cwd=work, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(work), [])
        self.assertEqual(len(list((home / ".cache" / "paceline" / "packed").glob("*.gguf"))), 1)
        script = subprocess.run([str(ROOT / "launch" / "fetch_model")], capture_output=True, text=True, cwd=work,
                                timeout=120, check=False,
                                env=env | {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"})
        self.assertNotEqual(script.returncode, 0)
        self.assertEqual(os.listdir(work), [])

    def test_without_a_home_folder_nothing_is_kept(self):
        env = environment(XDG_CACHE_HOME="cache", HOME="here")
        done = started("run", "-m", FOLDER, "--raw", *SHORT, "--dtype", "int8", cwd=self.folder, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("neither XDG_CACHE_HOME nor HOME is an absolute path", done.stderr.decode())
        self.assertEqual(os.listdir(self.folder), [])
        done = started("run", "-p", "x", cwd=self.folder, env=env | {"PACELINE_MODEL": ""})
        self.assertIn("there is no cache folder", done.stderr.decode())


class ByteOrderMarks(CliTest):
    """Editors of another system begin a text file with U+FEFF."""

    def marked(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_bytes(MARK + text.encode())
        return str(path)

    def test_a_prompt_and_a_text_begin_behind_it(self):
        path = self.marked("prompt.txt", "Hello")
        plain = self.generate("-p", "Hello", "-n", "4")[1]
        self.assertEqual(self.generate("-f", path, "-n", "4")[1], plain)
        self.assertEqual(self.generate("-n", "4", stdin=MARK + b"Hello")[1], plain)
        self.assertEqual(self.run_ok("tokenize", "-m", TINY, "-f", path), self.run_ok("tokenize", "-m", TINY, "Hello"))
        ids = self.marked("ids.json", "[100, 101]")
        self.assertEqual(self.run_ok("tokenize", "-m", TINY, "--decode", "-f", ids),
                         self.run_ok("tokenize", "-m", TINY, "--decode", "[100, 101]"))

    def test_a_shape(self):
        text = (ROOT / "configs" / "shapes" / "tiny.toml").read_text()
        assignments = "".join(line + "\n" for line in text.splitlines() if "=" in line)
        path = self.marked("shape.txt", assignments)
        self.assertIn("bf16", self.run_ok("inspect", "--random", path))
        self.run_ok("bench", "--random", path, "-p", "1", "-n", "0", "-r", "1", "-t", "1")

    def test_prompts_tools_configurations_and_machines(self):
        prompts = self.marked("prompts.jsonl", '{"prompt": "Hi"}\n')
        self.run_ok("check", "-m", TINY, *LOOKUP, "-n", "2", "--prompts", prompts)
        config = self.marked("pipeline.toml", pipeline_toml(1, True))
        self.run_ok("run", "-m", TINY, *SHORT[:4], "--config", config)
        machine = self.marked("machine.toml", (ROOT / "configs" / "machines" / "4-a100.toml").read_text())
        self.run_ok("run", "-m", TINY, "--dry-run", "--method", "speculative", "--machine", machine)
        tools = self.marked("tools.json", "[]")
        self.assertNotIn("not a JSON", started("run", "-m", TINY, *SHORT, "--tools", tools).stderr.decode())

    def test_a_cost_table_and_the_text_that_settings_are_put_into(self):
        costs = self.folder / "costs.tsv"
        self.run_ok("simulate", "-m", TINY, "--measure-costs", str(costs), "--rows", "1,8", "--contexts", "0",
                    "--depths", "2", "--measure-threads", "1", "--neighbours", "0", "--samples", "1")
        marked = self.marked("marked.tsv", costs.read_text())
        args = ["simulate", "-m", TINY, "--set", "draft.gamma=2", "-n", "2", "-p", "x", "--costs"]
        config = pipeline_toml(1, True)
        plain = self.folder / "plain.toml"
        plain.write_text(config)
        wanted = self.run_ok(*args, str(costs), "--config", str(plain))
        got = self.run_ok(*args, marked, "--config", self.marked("other.toml", config))
        self.assertEqual(got.replace("other.toml", "plain.toml"), wanted)

    def test_a_file_in_another_encoding_is_named(self):
        path = self.folder / "prompts.jsonl"
        path.write_text('{"prompt": "Hi"}\n', encoding="utf-16")
        said = self.run_fails(FAILURE, "check", "-m", TINY, *LOOKUP, "--prompts", str(path))
        self.assertIn("prompts.jsonl: is UTF-16 text; save it as UTF-8", said)


if __name__ == "__main__":
    unittest.main()
