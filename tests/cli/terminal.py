"""The program on a pseudo-terminal, and what a screen shows of what it writes."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unittest

from paceline_cli import BINARY, environment


class Terminal:
    """A program whose standard streams are a terminal of `rows` and `columns`; keeps all that it writes."""

    def __init__(self, test: unittest.TestCase, *args: str, rows: int = 24, columns: int = 80,
                 stdout: int | None = None, env: dict[str, str] | None = None) -> None:
        self.test = test
        self.said = b""
        self.ours, theirs = pty.openpty()
        test.addCleanup(os.close, self.ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen([BINARY, *args], stdin=theirs, stdout=theirs if stdout is None else stdout,
                                        stderr=theirs, env=env or environment(TERM="xterm"), start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)
        os.close(theirs)

    def read(self, seconds: float = 0.1) -> bool:
        """Takes what is there; False if the program has closed the terminal."""
        if not select.select([self.ours], [], [], seconds)[0]:
            return True
        try:
            block = os.read(self.ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.said += block
        return bool(block)

    def wait_for(self, text: str, timeout: float = 60, after: int = 0) -> None:
        """Until `text` appears behind the first `after` bytes that were said."""
        deadline = time.monotonic() + timeout
        while text.encode() not in self.said[after:]:
            open_ = self.read()
            self.test.assertTrue(open_ and time.monotonic() < deadline,
                                 f"no {text!r} in {self.said[after:].decode(errors='replace')!r}")

    def type(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def finish(self, timeout: float = 60) -> int:
        """The exit code, after all that it had to say."""
        deadline = time.monotonic() + timeout
        while self.read() and time.monotonic() < deadline:
            if self.process.poll() is not None and not select.select([self.ours], [], [], 0.2)[0]:
                break
        return self.process.wait(timeout=timeout)

    def text(self) -> str:
        return self.said.decode(errors="replace")


def rows_of(said: str) -> list[str]:
    """The lines of a screen that shows `said`: carriage returns draw over, ESC [ K wipes."""
    rows, row, at = [], "", 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", said, re.DOTALL):
        if part == "\n":
            rows.append(row)
            row, at = "", 0
        elif part == "\r":
            at = 0
        elif part == "\x1b[K":
            row = row[:at]
        elif not part.startswith("\x1b"):
            row = row[:at].ljust(at) + part + row[at + 1:]
            at += 1
    return [*rows, row]
