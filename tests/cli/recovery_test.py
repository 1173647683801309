"""Stages that are killed, stopped or never ready: the answer goes on with the same bytes, or ends with a reason."""

import functools
import json
import os
import select
import signal
import subprocess
import time
import unittest
from pathlib import Path

from paceline_cli import (BINARY, CliTest, PROMPT, ROOT, TINY, demo_model, environment, needs_demo_model,
                          pipeline_toml)

LONG = ["-p", "Count to one hundred.", "-n", "120"]
NEVER_END = ["-p", PROMPT, "--logit-bias", "2=-inf"]  # without its end token it goes on to the context's end


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def stages_of(parent: int) -> list[int]:
    """The living stage processes of a conductor, oldest first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(status[1]) == parent and status[0] != "Z" and b"\0stage\0" in command:
            found.append(int(folder.name))
    return sorted(found)


def shared_names() -> set[str]:
    """Our names of shared memory: other programs have theirs beside them."""
    return {name for name in os.listdir("/dev/shm") if "paceline" in name}


@functools.cache
def plain_text(*args: str) -> str:
    """What one process says: the text that no loss may change."""
    done = subprocess.run([BINARY, "run", "-m", demo_model(), *args], capture_output=True, timeout=120,
                          env=environment(), check=True)
    return done.stdout.decode()


class Run:
    """A run that has begun to answer: its stages' pids by name, and what comes out of it."""

    def __init__(self, test: CliTest, model: str, config: str, *args: str) -> None:
        self.test = test
        self.process = subprocess.Popen([BINARY, "run", "-v", "-m", model, "--config", config, *args],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        test.addCleanup(self.process.stdout.close)
        test.addCleanup(self.process.stderr.close)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)
        self.table = {}
        while line := self.process.stderr.readline():  # the log of the stages that start
            if line.split()[:2] == [b"stage", b"process"]:
                break
        test.assertTrue(line, "the run ended before its stages were told of")
        count = len(stages_of(self.process.pid))
        while len(self.table) < count:
            stage, process = self.process.stderr.readline().decode().split()[:2]
            # "4242", or "NAME[4242]" for a process that hosts several stages.
            name, _, pid = process.rstrip("]").rpartition("[")
            self.table[name or stage] = int(pid)
        self.said = b""

    def wait_for_text(self, size: int = 1) -> None:
        while len(self.said) < size:
            block = os.read(self.process.stdout.fileno(), 65536)
            self.test.assertTrue(block, "the answer was over too soon")
            self.said += block

    def finish(self, timeout: float = 60) -> tuple[int, str, str]:
        """Exit code, whole text, what stderr said after the placement."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, (self.said + out).decode(), err.decode()


class Recovery(CliTest):
    def config(self, segments: int = 2, draft: bool = True, of_each: str = "", supervision: str = "") -> str:
        path = self.folder / "pipeline.toml"
        text = pipeline_toml(segments, draft, of_each)
        path.write_text(text + (f"[supervision]\n{supervision}\n" if supervision else ""))
        return str(path)

    def check_goes_on(self, config: str, victim: str, plain: str, hurt=lambda pid: os.kill(pid, signal.SIGKILL)) -> str:
        """`hurt` of the stage in mid-answer changes no byte, is told, and leaves nothing behind."""
        stats = self.folder / "stats.json"
        run = Run(self, demo_model(), config, *LONG, "--stats", str(stats))
        run.wait_for_text(8)
        before = stages_of(run.process.pid)
        hurt(run.table[victim])
        code, text, error = run.finish()
        self.assertEqual(code, 0, error)
        self.assertEqual(text, plain)
        self.assertIn(f"stage '{victim}'", error)
        self.assertIn("is at work again (epoch 2)", error)
        for pid in before:
            self.assertFalse(is_alive(pid), "a stage outlived the run")
        essential = victim != "draft"
        self.assertEqual(json.loads(stats.read_text())["replays"], 1 if essential else 0)
        return error

    @needs_demo_model
    def test_any_stage_killed_in_mid_answer_is_replaced_and_the_text_is_the_same(self):
        shared_before = shared_names()
        plain = plain_text(*LONG)
        for victim in ("segment-1", "segment-2", "draft"):
            with self.subTest(victim=victim):
                error = self.check_goes_on(self.config(), victim, plain)
                self.assertIn("was killed by signal 9", error)
        self.assertEqual(shared_names(), shared_before)

    def test_a_stage_that_dies_between_two_messages_is_back_before_the_next_one(self):
        ids = self.folder / "ids.json"
        chat = subprocess.Popen([BINARY, "run", "-m", TINY, "-i", "-n", "8", "--config", self.config(), "--ids", str(ids)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=environment())
        self.addCleanup(chat.wait)
        self.addCleanup(chat.kill)
        for stream in (chat.stdin, chat.stdout, chat.stderr):
            self.addCleanup(stream.close)
        said = b""

        def wait_for(text: bytes, times: int = 1) -> None:
            nonlocal said
            deadline = time.monotonic() + 60
            while said.count(text) < times:
                ready = select.select([chat.stderr], [], [], max(0.0, deadline - time.monotonic()))[0]
                block = os.read(chat.stderr.fileno(), 65536) if ready else b""
                self.assertTrue(block, f"no {text!r} in {said.decode()}")
                said += block

        chat.stdin.write(b"Hello\n")
        chat.stdin.flush()
        wait_for(b"peak memory")
        for times in (1, 2, 3, 4):
            victim = stages_of(chat.pid)[0]
            os.kill(victim, signal.SIGKILL)
            wait_for(b"is at work again", times)  # no request is open
            self.assertFalse(is_alive(victim))
        out, err = chat.communicate(b"And then?\n", timeout=60)
        self.assertEqual(chat.returncode, 0, err.decode())
        alone = self.folder / "alone.json"
        self.run_ok("run", "-m", TINY, "-i", "-n", "8", "--ids", str(alone), stdin=b"Hello\nAnd then?\n")
        self.assertEqual(json.loads(ids.read_text()), json.loads(alone.read_text()))

    @needs_demo_model
    def test_the_shipped_configurations_survive_the_loss_of_any_stage(self):
        plain = plain_text(*LONG)
        for file, victims in {"cpu-two-segments": ("front", "back"), "cpu-lookup": ("draft", "target"),
                              "cpu-colocated": ("both",)}.items():
            for victim in victims:
                with self.subTest(config=file, victim=victim):
                    self.check_goes_on(str(ROOT / "configs" / f"{file}.toml"), victim, plain)

    @needs_demo_model
    def test_a_segment_killed_in_a_long_prefill_comes_back_and_the_text_is_the_same(self):
        prompt = self.folder / "prompt.txt"
        prompt.write_text("Which of these numbers is the largest? " + " ".join(str(n * n) for n in range(330)))
        asked = ["-f", str(prompt), "-n", "24", "-c", "4096"]
        plain = plain_text(*asked)
        for rows, victim in ((64, "segment-2"), (512, "segment-1"), (512, "segment-2")):
            with self.subTest(rows=rows, victim=victim):
                stats = self.folder / "stats.json"
                config = Path(self.config())
                config.write_text(config.read_text() + f"[schedule]\nprefill_rows = {rows}\n")
                run = Run(self, demo_model(), str(config), *asked, "--stats", str(stats))
                answered, _, _ = select.select([run.process.stdout], [], [], 0.2)
                self.assertFalse(answered, "the prefill was over before the kill")
                os.kill(run.table[victim], signal.SIGKILL)
                code, text, error = run.finish()
                self.assertEqual((code, text), (0, plain), error)
                figures = json.loads(stats.read_text())
                self.assertGreater(figures["prompt_tokens"], 1200)
                self.assertEqual(figures["replays"], 1)

    @needs_demo_model
    def test_drawn_text_survives_too(self):
        drawn = [*LONG, "--temp", "0.8", "--seed", "5", "--repeat-penalty", "1.1"]
        plain = plain_text(*drawn)
        run = Run(self, demo_model(), self.config(), *drawn)
        run.wait_for_text(8)
        os.kill(run.table["segment-2"], signal.SIGKILL)
        code, text, error = run.finish()
        self.assertEqual((code, text), (0, plain), error)

    @needs_demo_model
    def test_both_segments_killed_at_once_come_back(self):
        plain = plain_text(*LONG)
        run = Run(self, demo_model(), self.config(), *LONG)
        run.wait_for_text(8)
        for victim in ("segment-1", "segment-2"):
            os.kill(run.table[victim], signal.SIGKILL)
        code, text, error = run.finish()
        self.assertEqual((code, text), (0, plain), error)

    @needs_demo_model
    def test_a_stage_that_is_stopped_for_longer_than_its_grace_is_replaced(self):
        plain = plain_text(*LONG)
        config = self.config(supervision="stop_grace_s = 0.3")
        self.check_goes_on(config, "segment-2", plain, lambda pid: os.kill(pid, signal.SIGSTOP))

    @needs_demo_model
    def test_a_stage_that_is_stopped_and_goes_on_in_time_is_not_replaced(self):
        plain = plain_text(*LONG)
        run = Run(self, demo_model(), self.config(supervision="stop_grace_s = 20\nhang_limit_s = 20"), *LONG)
        run.wait_for_text(8)
        os.kill(run.table["segment-1"], signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(run.table["segment-1"], signal.SIGCONT)
        code, text, error = run.finish()
        self.assertEqual((code, text), (0, plain), error)
        self.assertNotIn("is at work again", error)

    @needs_demo_model
    def test_a_chat_goes_on_after_a_loss_with_the_conversation_it_had(self):
        turns = "Count to one hundred.\nAnd now to ten.\n".encode()
        options = ["--interactive", "-n", "60"]
        plain = self.run_ok("run", "-m", demo_model(), *options, stdin=turns + b"/quit\n")
        process = subprocess.Popen([BINARY, "run", "-m", demo_model(), "--config", self.config(draft=False), *options],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=environment())
        self.addCleanup(process.kill)
        first, second = turns.splitlines(keepends=True)
        process.stdin.write(first)
        process.stdin.flush()
        said = os.read(process.stdout.fileno(), 64)
        os.kill(stages_of(process.pid)[0], signal.SIGKILL)
        out, error = process.communicate(second + b"/quit\n", timeout=60)
        self.assertEqual(process.returncode, 0, error)
        self.assertEqual((said + out).decode(), plain, error)

    @needs_demo_model
    def test_with_stop_run_a_death_ends_the_run_with_its_name_and_what_was_said_is_plain_text(self):
        plain = plain_text(*LONG)
        for victim in ("segment-1", "segment-2", "draft"):
            with self.subTest(victim=victim):
                run = Run(self, demo_model(), self.config(of_each='on_death = "stop-run"\n'), *LONG)
                run.wait_for_text(8)
                os.kill(run.table[victim], signal.SIGKILL)
                code, text, error = run.finish()
                self.assertEqual(code, 1, error)
                self.assertNotIn("restarting as epoch", error)
                self.assertIn(victim, error)
                self.assertIn("signal 9", error)
                self.assertTrue(plain.startswith(text.rstrip("\n")))
                self.assertFalse(any(is_alive(pid) for pid in run.table.values()))

    @needs_demo_model
    def test_a_model_that_is_gone_or_cut_short_ends_the_run_at_the_first_restart(self):
        whole = Path(demo_model()).read_bytes()
        for spoil in (lambda path: path.unlink(), lambda path: path.write_bytes(b"GGUF" + b"\0" * 100)):
            model = self.folder / "model.gguf"
            model.write_bytes(whole)
            run = Run(self, str(model), self.config(), *LONG)
            run.wait_for_text(8)
            os.rename(model, self.folder / "mapped.gguf")  # the stages that live keep theirs
            model.write_bytes(whole[:1000])
            spoil(model)
            os.kill(run.table["segment-2"], signal.SIGKILL)
            code, _, error = run.finish()
            self.assertEqual(code, 1, error)
            self.assertIn("stage 'segment-2' cannot be restarted", error)
            self.assertIn("model.gguf", error)
            self.assertEqual(error.count("restarting as epoch"), 1, error)

    @needs_demo_model
    def test_too_many_deaths_of_a_segment_end_the_run_with_its_name_and_leave_a_trace(self):
        trace = self.folder / "trace.json"
        config = self.config(supervision="restarts_max = 1\nbackoff_ms = [0]")
        run = Run(self, demo_model(), config, *NEVER_END, "--trace", str(trace))
        run.wait_for_text()
        while run.process.poll() is None:
            for pid in stages_of(run.process.pid)[:1]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
        code, _, error = run.finish()
        self.assertEqual(code, 1, error)
        last = [line for line in error.splitlines() if line.startswith("paceline run: ")][-1]
        self.assertRegex(last, r"stage '(segment-[12]|draft)'")
        # A stage has used up its restarts, or (kills may hit both segments) the request its losses.
        self.assertRegex(last, r"signal 9|losses in a row without a committed token")
        self.assertGreater(len(json.loads(trace.read_text())["traceEvents"]), 10)

    @needs_demo_model
    def test_a_draft_that_dies_too_often_is_done_without(self):
        plain = plain_text(*LONG)
        run = Run(self, demo_model(), self.config(supervision="restarts_max = 0"), *LONG)
        run.wait_for_text(8)
        os.kill(run.table["draft"], signal.SIGKILL)
        code, text, error = run.finish()
        self.assertEqual((code, text), (0, plain), error)
        self.assertIn("going on without it", error)

    @needs_demo_model
    def test_killing_the_conductor_takes_its_stages_with_it(self):
        run = Run(self, demo_model(), self.config(), *NEVER_END)
        run.wait_for_text()
        run.process.kill()
        while any(map(is_alive, run.table.values())):  # a stage that stays is told by ctest's time limit
            time.sleep(0.01)

    @needs_demo_model
    def test_a_stage_that_does_not_get_ready_in_time_ends_the_run_with_its_name_and_the_limit(self):
        while True:
            process = subprocess.Popen([BINARY, "run", "-m", demo_model(), "-p", "x", "-n", "1", "--config",
                                        self.config(draft=False, supervision="start_limit_s = 1.5")],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            self.addCleanup(process.kill)
            while not (stages := stages_of(process.pid)):
                self.assertIsNone(process.poll(), "over too soon")
            try:
                os.kill(stages[0], signal.SIGSTOP)  # it loads for some tenths of a second
            except ProcessLookupError:
                pass
            out, error = process.communicate(timeout=60)
            if process.returncode != 0:  # otherwise this test was too late: the stage had loaded
                break
        self.assertEqual((process.returncode, out), (1, b""), error)
        self.assertRegex(error.decode(), r"stage 'segment-\d' \(process \d+\) did not [\w ]+ within 1500 ms")
        self.assertFalse(any(map(is_alive, stages)), "a stage outlived the run")

    @needs_demo_model
    def test_sigint_while_a_stage_is_being_replaced_ends_the_answer(self):
        run = Run(self, demo_model(), self.config(supervision="backoff_ms = [20000]"), *NEVER_END)
        run.wait_for_text()
        os.kill(run.table["segment-1"], signal.SIGKILL)
        time.sleep(0.3)
        run.process.send_signal(signal.SIGINT)
        code, _, error = run.finish()
        self.assertEqual(code, 130, error)
        self.assertNotIn("is at work again", error)


class Drain(CliTest):
    """SIGTERM lets the answer finish and begins no other."""

    def start(self, *args: str) -> subprocess.Popen:
        process = subprocess.Popen([BINARY, "run", "-m", demo_model(), *args], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        self.addCleanup(process.kill)
        return process

    @needs_demo_model
    def test_the_answer_finishes_and_the_exit_code_is_0(self):
        plain = plain_text(*LONG)
        for config in ([], ["--config", str(ROOT / "configs" / "cpu-two-segments.toml")]):
            with self.subTest(config=config):
                process = self.start(*LONG, *config)
                said = os.read(process.stdout.fileno(), 64)
                process.send_signal(signal.SIGTERM)
                out, error = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, error)
                self.assertEqual((said + out).decode(), plain)

    @needs_demo_model
    def test_in_a_chat_the_answer_finishes_and_the_next_one_does_not_begin(self):
        process = self.start("--interactive", "-n", "60", "--method", "prompt-lookup")
        process.stdin.write(b"Count to one hundred.\nAnd now to ten.\n")
        process.stdin.flush()
        said = os.read(process.stdout.fileno(), 64)
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, error)
        one = self.run_ok("run", "-m", demo_model(), "--interactive", "-n", "60", stdin=b"Count to one hundred.\n")
        self.assertEqual((said + out).decode(), one)

    def test_in_a_chat_that_waits_for_a_message_it_ends_the_program(self):
        process = subprocess.Popen([BINARY, "run", "-m", TINY, "--interactive"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        self.addCleanup(process.kill)
        self.assertIn(b"Chat:", process.stderr.readline())
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0)

    @needs_demo_model
    def test_an_answer_that_takes_longer_than_the_limit_is_cut_and_the_exit_code_is_143(self):
        config = self.folder / "drain.toml"
        config.write_text(pipeline_toml(1, False) + "[supervision]\ndrain_s = 1\n")
        process = self.start(*NEVER_END, "--config", str(config))
        os.read(process.stdout.fileno(), 64)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 143, error)
        self.assertGreater(time.monotonic() - begin, 0.9)

    @needs_demo_model
    def test_a_second_signal_ends_the_program_at_once(self):
        process = self.start(*NEVER_END, "--method", "prompt-lookup")
        os.read(process.stdout.fileno(), 64)
        stages = stages_of(process.pid)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        self.assertIsNone(process.poll(), "it finishes its answer")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGTERM)
        while any(map(is_alive, stages)):
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
