"""`paceline top`: a pipeline is found by the telemetry blocks it holds, and shown as its counters say.

The conductor here is this test itself: it holds memory files that look like telemetry blocks, written
by the layout in docs/observability.md.
"""

import fcntl
import mmap
import os
import pty
import re
import select
import signal
import struct
import subprocess
import threading
import time
import unittest

from paceline_cli import BINARY, CliTest, TINY, environment, paceline
from terminal import Terminal, rows_of

PAGE_BYTES = 896  # without a trace
COUNTERS = ["frames-in", "frames-out", "frames-stale", "channel-full", "jobs", "job-us", "wait-us", "sleeps", "restarts",
            "batches", "batch-rows", "prefill-rows", "verdicts", "tokens-proposed", "tokens-accepted", "tokens-committed",
            "fenced", "replays"]
COMPUTING, WAITING = 3, 4


class Telemetry:
    """One telemetry block, held open by this process."""

    def __init__(self, stage: int, epoch: int, name: str, pid: int = 0) -> None:
        self.fd = os.memfd_create(f"paceline-telemetry-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, PAGE_BYTES)
        self.memory = mmap.mmap(self.fd, PAGE_BYTES)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        struct.pack_into("<8sIIIII64s", self.memory, 0, b"PACEPAGE", 4, stage, epoch, 0, pid or os.getpid(),
                         name.encode())
        self.enter(WAITING)

    def enter(self, activity: int, limit: float = 0) -> None:
        now = time.monotonic_ns()
        deadline = now + int(limit * 1e9) if limit else 0
        struct.pack_into("<IIqqQ", self.memory, 128, activity, 0, now, deadline, 1)

    def queue(self, depth: int) -> None:
        struct.pack_into("<Q", self.memory, 256, depth)

    def count(self, name: str, value: int) -> None:
        struct.pack_into("<Q", self.memory, 384 + 8 * COUNTERS.index(name), value)

    def close(self) -> None:
        self.memory.close()
        os.close(self.fd)


class Top(CliTest):
    def setUp(self) -> None:
        super().setUp()
        self.blocks = []
        self.addCleanup(lambda: [telemetry.close() for telemetry in self.blocks])

    def telemetry(self, *args, **kwargs) -> Telemetry:
        self.blocks.append(Telemetry(*args, **kwargs))
        return self.blocks[-1]

    def pipeline(self) -> tuple[Telemetry, Telemetry]:
        return self.telemetry(0, 1, "conductor"), self.telemetry(1, 1, "segment-1")

    def top(self, interval: str = "0.2") -> list[str]:
        return self.run_ok("top", "--pid", str(os.getpid()), "-i", interval).splitlines()

    def test_nothing_running_is_a_sentence_and_exit_code_1(self):
        text = self.run_fails(1, "top", "--once", "--pid", str(os.getpid()))
        self.assertIn(f"process {os.getpid()} runs no pipeline", text)

    def test_options_that_make_no_sense_are_refused(self):
        self.assertIn("--interval", self.run_fails(2, "top", "--interval", "0"))
        self.assertIn("--pid", self.run_fails(2, "top", "--pid", "me"))

    def test_the_table_shows_every_stage_of_the_pipeline(self):
        conductor, segment = self.pipeline()
        conductor.count("restarts", 2)
        conductor.count("fenced", 1)
        segment.count("fenced", 4)
        segment.queue(3)
        lines = self.top()
        self.assertEqual(len(lines), 4, lines)
        self.assertIn(f"pipeline {os.getpid()}: 0.00 tokens/s, acceptance -, fenced 5, restarts 2", lines[0])
        self.assertRegex(lines[1], r"^stage +pid +ep +state +queue +batch/s +rows +busy +wait +full/s$")
        self.assertRegex(lines[2], rf"^conductor +{os.getpid()} +1 waiting \S+ +0 ")
        self.assertRegex(lines[3], rf"^segment-1 +{os.getpid()} +1 waiting \S+ +3 ")
        self.assertTrue(all(len(line) < 80 for line in lines), lines)

    def test_rates_are_over_the_interval(self):
        conductor, segment = self.pipeline()
        done = threading.Event()
        late = 0.0  # the longest time between two changes: on a busy machine the counts are as old as that

        def work() -> None:  # 100 batches of 4 rows and 250 tokens a second, as fast as it is asked
            nonlocal late
            begin = last = time.monotonic()
            while not done.wait(0.01):
                now = time.monotonic()
                late, last = max(late, now - last), now
                batches = int((now - begin) * 100)
                segment.count("batch-rows", batches * 4)
                segment.count("batches", batches)
                segment.count("tokens-proposed", batches * 10)
                segment.count("tokens-accepted", batches * 5)
                conductor.count("tokens-committed", batches * 5 // 2)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            lines = self.top("1")
        finally:
            done.set()
            worker.join()
        tokens, acceptance = re.match(r"pipeline \d+: (\S+) tokens/s, acceptance (\S+),", lines[0]).groups()
        error = 2 * late  # of either end of the interval of a second or more
        self.assertAlmostEqual(float(tokens), 250, delta=60 + 250 * error)
        self.assertAlmostEqual(float(acceptance), 0.5, delta=0.1 + error)
        batches, rows = lines[3].split()[-5:-3]
        self.assertAlmostEqual(float(batches), 100, delta=25 + 100 * error)
        self.assertAlmostEqual(float(rows), 4, delta=0.3 + 4 * error)

    def test_late_stages_and_dead_ones_are_named(self):
        _, segment = self.pipeline()
        segment.enter(COMPUTING, 0.001)
        corpse = subprocess.Popen(["true"])
        corpse.wait()
        self.telemetry(2, 1, "segment-2", pid=corpse.pid)
        time.sleep(0.01)
        lines = self.top()
        self.assertRegex(lines[3], r"computing \S+ late ")
        self.assertRegex(lines[4], rf"^segment-2 +{corpse.pid} +1 gone ")

    def test_only_the_newest_incarnation_is_shown(self):
        self.pipeline()
        self.telemetry(1, 3, "segment-1")
        self.telemetry(1, 2, "segment-1")
        lines = self.top()
        self.assertEqual(len(lines), 4, lines)
        self.assertRegex(lines[3], rf"^segment-1 +{os.getpid()} +3 ")

    def test_blocks_that_are_no_telemetry_are_passed_over(self):
        self.pipeline()
        for size in (0, 100, 4096):
            fd = os.memfd_create("paceline-telemetry-broken", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            self.addCleanup(os.close, fd)
            os.ftruncate(fd, size)
        broken = self.telemetry(5, 1, "too-much")
        struct.pack_into("<I", broken.memory, 20, 1 << 20)  # claims a trace that it has no room for
        self.assertEqual(len(self.top()), 4)

    def test_on_a_terminal_it_redraws_in_place_and_gives_the_cursor_back(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(signal=number):
                self.check_terminal(number, code)

    def check_terminal(self, number: int, code: int) -> None:
        self.pipeline()
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        process = subprocess.Popen([BINARY, "top", "-i", "0.1", "--pid", str(os.getpid())], stdin=theirs,
                                   stdout=theirs, stderr=theirs, env=environment(TERM="xterm"))
        self.addCleanup(process.kill)
        os.close(theirs)
        said = b""
        deadline = time.monotonic() + 20
        while said.count(b"segment-1") < 3 and time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                said += os.read(ours, 4096)
        process.send_signal(number)
        self.assertEqual(process.wait(timeout=120), code)
        while select.select([ours], [], [], 0.1)[0]:
            try:
                said += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
        self.assertTrue(said.startswith(b"\x1b[?25l"), said[:80])
        self.assertTrue(said.endswith(b"\x1b[?25h"), said[-80:])
        self.assertIn(b"\x1b[4A", said, "four lines up, to draw over them")

    def test_q_quits_and_the_terminal_is_as_before(self):
        self.pipeline()
        terminal = Terminal(self, "top", "-i", "0.1", "--pid", str(os.getpid()))
        terminal.wait_for("segment-1")
        terminal.type("xq")
        self.assertEqual(terminal.finish(10), 0)
        self.assertTrue(terminal.said.endswith(b"\x1b[?25h"))

    def test_names_of_stages_are_whole_on_a_wide_terminal(self):
        self.telemetry(0, 1, "conductor")
        self.telemetry(1, 1, "a-stage-with-a-long-name")
        for columns, shown in ((80, "a-stage-w~ "), (120, "a-stage-with-a-long-name ")):
            terminal = Terminal(self, "top", "-i", "0.1", "--pid", str(os.getpid()), columns=columns)
            terminal.wait_for("a-stage-w")
            terminal.wait_for("\x1b[J")
            terminal.type("q")
            self.assertEqual(terminal.finish(10), 0)
            rows = [row for row in rows_of(terminal.text()) if row.startswith("a-stage")]
            self.assertTrue(rows and all(row.startswith(shown) and len(row) < columns for row in rows), rows)

    def test_it_waits_where_nothing_runs_yet(self):
        terminal = Terminal(self, "top", "-i", "0.1", "--pid", str(os.getpid()))
        terminal.wait_for("Waiting for a pipeline")
        self.pipeline()
        terminal.wait_for("segment-1")
        terminal.type("q")
        self.assertEqual(terminal.finish(10), 0)

    def test_it_does_not_wait_for_a_process_that_does_not_exist(self):
        corpse = subprocess.Popen(["true"])
        corpse.wait()
        terminal = Terminal(self, "top", "--pid", str(corpse.pid))
        self.assertEqual(terminal.finish(10), 1)
        self.assertIn("runs no pipeline", terminal.text())

    def test_without_a_terminal_nothing_moves(self):
        self.pipeline()
        done = paceline("top", "-i", "0.1", "--pid", str(os.getpid()))
        self.assertNotIn(b"\x1b", done.stdout)
        self.assertEqual(done.stdout.count(b"segment-1"), 1)

    def test_a_run_is_found_while_it_answers(self):
        config = self.folder / "two.toml"
        config.write_text('[pipeline]\nname = "test"\n[[stage]]\nname = "segment-1"\nrole = "segment"\n'
                          'layers = "auto"\nthreads = 1\n')
        # It waits for its next turn until standard input ends.
        process = subprocess.Popen([BINARY, "run", "-m", TINY, "--config", str(config), "--interactive", "-n", "8"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   env=environment())
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            done = paceline("top", "--once", "-i", "0.1", "--pid", str(process.pid))
            if done.returncode == 0 and b"segment-1" in done.stdout:
                break
            self.assertIsNone(process.poll(), "the run ended before it was found")
        lines = done.stdout.decode().splitlines()
        process.communicate(b"/quit\n", timeout=120)
        self.assertIn(f"pipeline {process.pid}:", lines[0])
        self.assertRegex(lines[2], rf"^conductor +{process.pid} +1 ")
        self.assertRegex(lines[3], r"^segment-1 +\d+ +1 ")


if __name__ == "__main__":
    unittest.main()
