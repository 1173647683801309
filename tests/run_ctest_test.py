#!/usr/bin/env python3
"""Tests of run_ctest.py on a small tree of tests. Python's standard library only."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUN = Path(__file__).resolve().parent / "run_ctest.py"
PASSES = "echo fine"
FAILS = "echo broken; exit 1"
# Fails when it runs for the first time, as a test may that is in another one's way.
FAILS_ONCE = "if [ -e ran ]; then echo second output; else touch ran; echo first output; exit 1; fi"
SKIPS = "exit 77"  # SKIP_RETURN_CODE below


class RunCtest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)

    def run_tests(self, *arguments: str, **tests: str) -> subprocess.CompletedProcess:
        lines = [f'add_test({name} "/bin/sh" "-c" [==[{script}]==])\n'
                 f'set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77 LABELS label_{name})\n'
                 for name, script in tests.items()]
        (self.build / "CTestTestfile.cmake").write_text("".join(lines))
        return subprocess.run([sys.executable, "-B", str(RUN), str(self.build), *arguments], capture_output=True,
                              text=True, timeout=60, check=False)

    def closing(self, done: subprocess.CompletedProcess) -> list[str]:
        """From the last summary on, without times."""
        lines = done.stdout.splitlines()
        begin = max(i for i, line in enumerate(lines) if "% tests passed, " in line)
        return [line for line in lines[begin:] if line and " sec" not in line and "Time Summary" not in line]

    def test_tests_that_pass_end_with_ctests_own_summary(self):
        done = self.run_tests(one=PASSES, two=PASSES)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.closing(done), ["100% tests passed, 0 tests failed out of 2"])
        self.assertFalse((self.build / "Testing" / "run_again.log").exists())

    def test_a_test_that_passes_alone_is_named_at_the_end_and_the_run_passes(self):
        done = self.run_tests(one=PASSES, shy=FAILS_ONCE, left_out=SKIPS)
        log = self.build / "Testing" / "run_again.log"
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.closing(done), [
            "100% tests passed, 0 tests failed out of 3",
            "The following tests did not run:",
            "\t  3 - left_out (Skipped)",
            "The following tests depend on load, they failed beside others and passed alone "
            f"(both outputs: {log}):",
            "\t  2 - shy"])
        self.assertIn("first output", log.read_text())
        self.assertIn("second output", log.read_text())
        self.assertNotIn("fine", log.read_text())
        self.assertEqual(done.stdout.count(": one"), 2)  # its start and its end: it does not run again

    def test_a_test_that_fails_again_fails_the_run(self):
        done = self.run_tests(one=PASSES, wrong=FAILS, shy=FAILS_ONCE)
        self.assertEqual(done.returncode, 8, done.stdout)
        closing = self.closing(done)
        self.assertEqual(closing[0], "66% tests passed, 1 tests failed out of 3")
        self.assertEqual(closing[2:], ["\t  3 - shy", "The following tests FAILED:", "\t  2 - wrong (Failed)"])
        self.assertEqual(done.stdout.count("broken"), 2)

    def test_a_test_runs_again_without_others_beside_it(self):
        # The second time each fails if the other one runs too.
        tests = {name: f"mkdir ran_{name} && exit 1; mkdir running || exit 1; sleep 0.2; rmdir running"
                 for name in ("one", "two")}
        done = self.run_tests("-j", "2", **tests)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.closing(done)[0], "100% tests passed, 0 tests failed out of 2")

    def test_arguments_choose_the_tests(self):
        done = self.run_tests("-L", "label_one", one=PASSES, wrong=FAILS)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.closing(done), ["100% tests passed, 0 tests failed out of 1"])
        self.assertNotEqual(self.run_tests("-L", "label_none", one=PASSES).returncode, 0)

    def test_runs_under_load_count_the_failures_of_each_test(self):
        done = self.run_tests("--under-load", "3", one=PASSES, shy=FAILS_ONCE)
        log = self.build / "Testing" / "under_load.log"
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(done.stdout.splitlines()[-3:], [
            "3 runs beside 2 busy processes: 6 tests, 1 failed", "\tshy: failed in run 1", f"Their outputs: {log}"])
        self.assertIn("first output", log.read_text())
        done = self.run_tests("--under-load", "1", one=PASSES)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.run_tests("--under-load", "no", one=PASSES).returncode, 2)


if __name__ == "__main__":
    unittest.main()
