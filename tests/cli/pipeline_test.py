"""Pipelines of processes: the bytes of one process, and nothing left when a stage dies."""

import json
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, ROOT, TINY, demo_model, environment, needs_demo_model

# A text that repeats itself, so that prompt lookup has something to find.
PROMPT = "one two three four one two three four one two three four one two"
SAMPLED = ["--temp", "0.9", "--seed", "11", "--repeat-penalty", "1.1", "--top-p", "0.95"]


def toml(segments: int, draft: bool) -> str:
    text = '[pipeline]\nname = "test"\n'
    if draft:
        text += '[[stage]]\nname = "draft"\nrole = "draft"\n'
    for index in range(1, segments + 1):
        text += f'[[stage]]\nname = "segment-{index}"\nrole = "segment"\nlayers = "auto"\nthreads = 1\n'
    if draft:
        text += '[draft]\nmethod = "prompt-lookup"\ngamma = 6\nmin_ngram = 1\nmax_ngram = 3\n'
    return text


def stage_processes(parent: int) -> dict[int, str]:
    """Children of `parent` that are stages: pid and command line."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if int(status[1]) == parent and " stage " in command:
            found[int(folder.name)] = command
    return found


class Pipeline(CliTest):
    def config(self, segments: int, draft: bool) -> str:
        path = self.folder / f"{segments}-{draft}.toml"
        path.write_text(toml(segments, draft))
        return str(path)

    def ids(self, model: str, *args: str) -> tuple[list[int], dict]:
        ids, stats = self.folder / "ids.json", self.folder / "stats.json"
        self.run_ok("run", "-m", model, "--ids", str(ids), "--stats", str(stats), *args)
        return json.loads(ids.read_text()), json.loads(stats.read_text())

    def same_ids(self, model: str, configs: list[str], *args: str) -> None:
        plain, _ = self.ids(model, *args)
        self.assertGreater(len(plain), 8)
        for config in configs:
            with self.subTest(config=config, args=args):
                self.assertEqual(self.ids(model, "--config", config, *args)[0], plain)

    def test_processes_commit_the_tokens_of_one_process_greedy_and_sampled(self):
        configs = [self.config(segments, draft) for segments in (1, 2) for draft in (False, True)]
        for sampling in ([], SAMPLED):
            self.same_ids(TINY, configs, "-p", PROMPT, "-n", "60", *sampling)

    def test_a_prompt_of_several_prefill_waves_gives_the_same_tokens(self):
        # 64 rows are one wave; this prompt fills several, and the last one only in part.
        self.same_ids(TINY, [self.config(2, True)], "--raw", "-p", "ab cd " * 35, "-n", "30")

    def test_a_draft_that_is_right_needs_fewer_waves_than_tokens(self):
        _, stats = self.ids(TINY, "--config", self.config(2, True), "-p", PROMPT, "-n", "80", "--temp", "0")
        self.assertLess(stats["waves"], stats["generated_tokens"])

    @needs_demo_model
    def test_the_shipped_configurations_give_the_demo_models_own_text(self):
        configs = sorted(str(p) for p in (ROOT / "configs").glob("*.toml"))
        self.assertGreaterEqual(len(configs), 4)
        for sampling in ([], SAMPLED):
            self.same_ids(demo_model(), configs, "-p", "List the days of the week, twice.", "-n", "48", *sampling)

    def test_a_chat_over_processes_says_what_a_chat_in_one_process_says(self):
        turns = "hello there\nand again hello there\n/quit\n".encode()
        plain = self.run_ok("run", "-m", TINY, "--interactive", "-n", "12", stdin=turns)
        piped = self.run_ok("run", "-m", TINY, "--interactive", "-n", "12", "--config", self.config(2, True),
                            stdin=turns)
        self.assertEqual(piped, plain)

    def start_endless(self, config: str) -> subprocess.Popen:
        """An answer that takes many seconds: the demo model without its end token."""
        process = subprocess.Popen([BINARY, "run", "-m", demo_model(), "--config", config, "-p", PROMPT,
                                    "--logit-bias", "2=-inf"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
        self.addCleanup(process.kill)
        return process

    def wait_for_stages(self, process: subprocess.Popen, count: int) -> dict[int, str]:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            stages = stage_processes(process.pid)
            if len(stages) == count:
                return stages
            if process.poll() is not None:
                self.fail(f"over too soon: {process.stderr.read()!r}")
            time.sleep(0.005)
        return self.fail("the stages did not start")

    @needs_demo_model
    def test_killing_any_stage_ends_the_run_at_once_with_its_name_and_leaves_nothing(self):
        names = {"segment-1", "segment-2", "draft"}
        named = set()
        shared_before = set(os.listdir("/dev/shm"))
        for victim in range(3):
            process = self.start_endless(self.config(2, True))
            stages = self.wait_for_stages(process, 3)
            os.kill(sorted(stages)[victim], signal.SIGKILL)
            begin = time.monotonic()
            _, error = process.communicate(timeout=20)
            self.assertLess(time.monotonic() - begin, 5)
            self.assertEqual(process.returncode, 1, error)
            said = {name for name in names if name in error.decode()}
            self.assertEqual(len(said), 1, error)
            self.assertIn("signal 9", error.decode())
            named |= said
            for pid in stages:
                self.assertFalse(Path(f"/proc/{pid}").exists(), "a stage outlived the run")
        self.assertEqual(named, names)
        self.assertEqual(set(os.listdir("/dev/shm")), shared_before)

    @needs_demo_model
    def test_a_stage_killed_in_mid_answer_is_named_too_and_what_was_said_is_plain_text(self):
        plain = self.run_ok("run", "-m", demo_model(), "-p", "Count to one hundred.", "-n", "600")
        for victim in range(3):
            process = subprocess.Popen([BINARY, "run", "-m", demo_model(), "--config", self.config(2, True),
                                        "-p", "Count to one hundred.", "-n", "600"], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=environment())
            self.addCleanup(process.kill)
            stages = self.wait_for_stages(process, 3)
            said = os.read(process.stdout.fileno(), 4096)  # not buffered: communicate() reads on
            os.kill(sorted(stages)[victim], signal.SIGKILL)
            rest, error = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 1, error)
            self.assertIn("signal 9", error.decode())
            text = (said + rest).decode().rstrip("\n")
            self.assertTrue(plain.startswith(text), (plain[: len(text)], text))

    @needs_demo_model
    def test_killing_the_conductor_takes_its_stages_with_it(self):
        process = self.start_endless(self.config(2, True))
        stages = self.wait_for_stages(process, 3)
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 5
        while any(Path(f"/proc/{pid}/cwd").exists() for pid in stages) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in stages:
            state = Path(f"/proc/{pid}/stat")
            alive = state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z"
            self.assertFalse(alive, "a stage outlived its conductor")

    def test_a_model_that_is_gone_when_a_stage_loads_is_an_error_with_its_path(self):
        done = subprocess.run([BINARY, "run", "-m", str(self.folder / "no.gguf"), "--config", self.config(2, False),
                               "-p", "x"], capture_output=True, timeout=20, env=environment(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no.gguf", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
