"""The soak under test: it notices what is broken on purpose, says so, and leaves no process."""

import os
import subprocess
import time
import unittest
from pathlib import Path

SOAK = os.environ["PACELINE_SOAK"]


def processes_of(session: int) -> list[str]:
    """What still belongs to a session of processes, zombies left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.read_text().rsplit(")", 1)
        except OSError:
            continue  # it has just ended
        fields = fields.split()
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(name)
    return found


class SoakTest(unittest.TestCase):
    def soak(self, *args: str) -> subprocess.CompletedProcess:
        with subprocess.Popen([SOAK, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as process:
            out, err = process.communicate(timeout=240)
            self.assertEqual(self.left_of(process.pid), [], "processes are left")
            return subprocess.CompletedProcess(args, process.returncode, out, err)

    def left_of(self, session: int) -> list[str]:
        """Stages die with their parent, but not in the same instant."""
        until = time.monotonic() + 10
        while (left := processes_of(session)) and time.monotonic() < until:
            time.sleep(0.05)
        return left

    def check_fails(self, said: str, *args: str) -> None:
        done = self.soak("--seed", "1", *args)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, said)

    def test_a_wrong_token_is_noticed(self):
        self.check_fails("token .* came, plain decoding says", "--minutes", "0.1", "--plant", "wrong-token")

    def test_memory_that_leaks_is_noticed(self):
        self.check_fails("conductor: private memory grows", "--minutes", "0.15", "--plant", "memory-leak")

    def test_descriptors_that_leak_are_noticed(self):
        self.check_fails("conductor: descriptors grows", "--minutes", "0.15", "--plant", "descriptor-leak")

    def test_a_hang_ends_the_run_and_its_stages(self):
        self.check_fails("the conductor's loop is stuck", "--minutes", "0.5", "--plant", "hang",
                         "--hang-limit", "4")

    def test_the_seed_of_a_run_can_be_used_again(self):
        done = self.soak("--minutes", "0.02")
        self.assertRegex(done.stdout, r"soak: --seed \d+, ")

    def test_wrong_arguments_are_refused(self):
        for args in (["--minutes", "soon"], ["--streams", "0"], ["--plant", "flowers"], ["--minutes"]):
            self.assertEqual(self.soak(*args).returncode, 2, args)


if __name__ == "__main__":
    unittest.main()
