"""What a terminal shows of a run: bars, the stage table, --quiet; and the figures of a prefill that was cancelled."""

import json
import re
import signal
import subprocess
import time
import unittest

from paceline_cli import BINARY, CliTest, TINY, demo_model, environment, needs_demo_model, paceline
from terminal import Terminal, rows_of

BAR = re.compile(r"\r([a-z ]+ \[[#.]+\] +\d+ %)")
# Long enough for a bar on any machine that runs this test.
LONG_PROMPT = "word " * 3000


class Bars(CliTest):
    def run_on_terminal(self, *args: str, columns: int = 40) -> Terminal:
        path = self.folder / "prompt.txt"
        path.write_text(LONG_PROMPT)
        terminal = Terminal(self, "run", "-m", demo_model(), "-f", str(path), "-n", "2", *args, columns=columns)
        self.assertEqual(terminal.finish(240), 0, terminal.text())
        return terminal

    def check_bars(self, said: str, *labels: str) -> None:
        bars = BAR.findall(said)
        for label in labels:
            own = [bar for bar in bars if bar.startswith(label)]
            self.assertGreater(len(own), 1, f"{label} grows: {bars}")
            self.assertEqual(own, sorted(own, key=lambda bar: bar.count("#")), "a bar only grows")
        for bar in bars:
            self.assertLess(len(bar), 40)
        for row in rows_of(said):
            self.assertNotRegex(row, r"\[[#.]+\] +\d+ %", "no bar is left, nor text behind one")

    @needs_demo_model
    def test_the_prompt_has_a_bar_of_less_than_40_columns_that_leaves_nothing(self):
        self.check_bars(self.run_on_terminal().text(), "reading the prompt")

    @needs_demo_model
    def test_a_pipeline_has_one_too(self):
        self.check_bars(self.run_on_terminal("--method", "prompt-lookup").text(), "reading the prompt")

    @needs_demo_model
    def test_stages_that_load_have_a_bar(self):
        terminal = Terminal(self, "run", "-m", demo_model(), "--method", "four-stages", "--dtype", "f32", "-n", "2", "x",
                            columns=120)
        self.assertEqual(terminal.finish(240), 0, terminal.text())
        self.check_bars(terminal.text(), "loading stages")

    @needs_demo_model
    def test_quiet_shows_the_answer_alone(self):
        terminal = self.run_on_terminal("--quiet")
        self.assertNotIn("\x1b", terminal.text())
        self.assertNotIn("tokens/s", terminal.text())

    def test_quiet_says_nothing_on_stderr(self):
        for args in ((), ("--method", "four-stages"), ("--top-p", "0.5")):
            done = paceline("run", "-m", TINY, "-n", "4", "x", "-q", *args)
            self.assertEqual((done.returncode, done.stderr), (0, b""), args)
            self.assertEqual(done.stdout.decode(), self.run_ok("run", "-m", TINY, "-n", "4", "x"))

    def test_the_stage_table_is_for_terminals_and_verbose(self):
        args = ["run", "-m", TINY, "-n", "2", "x", "--method", "prompt-lookup"]
        self.assertNotIn(b"stage ", paceline(*args).stderr)
        self.assertRegex(paceline(*args, "-v").stderr.decode(), r"(?m)^stage +process +role ")
        terminal = Terminal(self, *args, columns=120)
        self.assertEqual(terminal.finish(), 0)
        self.assertRegex(terminal.text(), r"(?m)^stage +process +role ")


class Cancelled(CliTest):
    def cancelled_run(self, method: str, after: float) -> tuple[dict, bytes]:
        """The figures and the messages of a run whose prefill was cancelled so many seconds after it began."""
        stats, prompt = self.folder / "stats.json", self.folder / "prompt.txt"
        prompt.write_text(LONG_PROMPT)
        process = subprocess.Popen(
            [BINARY, "run", "-m", demo_model(), "-f", str(prompt), "--stats", str(stats), "--method", method, "-v"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        self.addCleanup(process.kill)
        self.wait_for_line(process, b"ready: ")
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        return json.loads(stats.read_text()), error

    @needs_demo_model
    def test_a_cancelled_prefill_tells_how_far_it_came(self):
        for method in ("plain", "prompt-lookup"):
            with self.subTest(method=method):
                for after in (1.5, 4, 10, 25, 60):  # on a slow machine the first rows are not through by then
                    done, error = self.cancelled_run(method, after)
                    if done["processed_tokens"] > 0:
                        break
                self.assertEqual((done["end"], done["generated_tokens"]), ("interrupted", 0))
                self.assertGreater(done["processed_tokens"], 0)
                self.assertLess(done["processed_tokens"], done["prompt_tokens"])
                self.assertGreater(done["prefill_seconds"], 0.5)
                rate = done["processed_tokens"] / done["prefill_seconds"]
                self.assertAlmostEqual(done["prompt_tokens_per_second"], rate, delta=rate / 100)
                self.assertRegex(error.decode().splitlines()[-1] if method == "plain" else error.decode(),
                                 rf"prompt {done['processed_tokens']} of {done['prompt_tokens']} tokens, [\d.]+ tokens/s, "
                                 "cancelled")

    def wait_for_line(self, process: subprocess.Popen, part: bytes) -> None:
        while line := process.stderr.readline():
            if part in line:
                return
        self.fail("the run ended before it was ready")


if __name__ == "__main__":
    unittest.main()
