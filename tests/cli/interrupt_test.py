"""Ctrl-C: the first ends the answer politely, the second ends the program."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, TINY, environment

NEVER_END = [f"--logit-bias={token}=-inf" for token in range(3)]  # the tiny model's end tokens


class Interrupt(CliTest):
    def start(self, *args: str) -> tuple[subprocess.Popen, int]:
        """An answer that is surely under way: the pipe it goes to is nearly full, so the program
        waits in the middle of it. Returns the process and the end to read from."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(writer, b"." * 4000)
        process = subprocess.Popen([BINARY, "run", "-m", TINY, "-p", "Tell me everything", *NEVER_END, *args],
                                   stdout=writer, stderr=subprocess.PIPE, env=environment())
        os.close(writer)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        before = -1
        while (waiting := self.waiting(reader)) == 4000 or waiting != before or not self.is_blocked(process):
            self.assertIsNone(process.poll(), "the answer was over too soon")
            before = waiting
            time.sleep(0.2)
        return process, reader

    @staticmethod
    def is_blocked(process: subprocess.Popen) -> bool:
        """Whether it is in a call that writes to standard output; also where the kernel does not say that."""
        try:
            words = Path(f"/proc/{process.pid}/syscall").read_text().split()
        except OSError:
            return True
        return words[0] != "running" and words[1:2] == ["0x1"]

    @staticmethod
    def waiting(reader: int) -> int:
        return int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4), sys.byteorder)

    def drain(self, process: subprocess.Popen, reader: int) -> tuple[str, str]:
        """What the program wrote to stdout and stderr, once it is let go."""
        text = b""
        while block := os.read(reader, 65536):
            text += block
        stderr = process.stderr.read().decode()
        process.wait(timeout=120)
        return text[4000:].decode(), stderr

    def test_the_first_one_ends_the_answer_prints_figures_and_exits_with_130(self):
        stats, ids = self.folder / "stats.json", self.folder / "ids.json"
        process, reader = self.start("--stats", str(stats), "--ids", str(ids))
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        text, stderr = self.drain(process, reader)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertIn("tokens/s", stderr.strip().splitlines()[-1])
        figures = json.loads(stats.read_text())
        self.assertEqual(figures["end"], "interrupted")
        generated = json.loads(ids.read_text())
        self.assertEqual(figures["generated_tokens"], len(generated))
        # Nothing of what was drawn is lost, although the signal came in the middle of a write.
        decoded = self.run_ok("tokenize", "-m", TINY, "--decode", json.dumps(generated))
        self.assertEqual(text.rstrip("\n"), decoded.rstrip("\n"))

    def test_sigterm_lets_the_answer_finish_and_the_exit_code_is_0(self):
        stats = self.folder / "stats.json"
        process, reader = self.start("--stats", str(stats), "-n", "400")
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        _, stderr = self.drain(process, reader)
        self.assertEqual(process.returncode, 0, stderr)
        figures = json.loads(stats.read_text())
        self.assertEqual((figures["generated_tokens"], figures["end"]), (400, "max_tokens"))

    def test_the_second_one_ends_the_program_at_once(self):
        process, _ = self.start()
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        self.assertIsNone(process.poll(), "it waits to write what it has drawn")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)
        self.assertEqual(process.returncode, -signal.SIGINT)

    def test_one_while_the_model_loads_ends_the_program_at_once(self):
        process = subprocess.Popen([BINARY, "run", "-m", TINY], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        time.sleep(0.2)  # it waits for its prompt on standard input
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, -signal.SIGINT)

    def test_a_reader_that_leaves_ends_the_program(self):
        reader, writer = os.pipe()
        process = subprocess.Popen([BINARY, "run", "-m", TINY, "-p", "x"], stdout=writer,
                                   stderr=subprocess.DEVNULL, env=environment())
        os.close(writer)
        os.close(reader)
        self.assertEqual(process.wait(timeout=120), -signal.SIGPIPE)


if __name__ == "__main__":
    unittest.main()
