"""Beside a busy process: no method collapses, and a run says that its threads waited."""

import os
import re
import subprocess
import sys
import unittest

from paceline_cli import CliTest, demo_model, needs_demo_model, paceline

BUSY = [sys.executable, "-c", "while True: pass"]


@needs_demo_model
class Neighbour(CliTest):
    def rate(self, method: str) -> float:
        done = self.answer(method)
        return float(re.search(r"answer \d+ tokens, ([\d.]+) tokens/s", done).group(1))

    def answer(self, method: str, *options: str, tokens: int = 100) -> str:
        done = paceline("run", "-m", demo_model(), "--method", method, "-n", str(tokens), "-p", "Why is the sky blue?",
                        "--logit-bias", "2=-inf", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr.decode()

    def busy(self, processes: int = 1):
        for _ in range(processes):
            process = subprocess.Popen(BUSY)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)

    def test_every_method_keeps_a_tenth_of_its_speed_beside_one_busy_process(self):
        methods = ["plain", "speculative", "four-stages", "adadecode"]
        alone = {method: max(self.rate(method) for _ in range(2)) for method in methods}
        self.busy()
        for method in methods:
            with self.subTest(method=method):
                # A second run only where the first one is too slow.
                least = 0.1 * alone[method]
                rates = [self.rate(method)]
                if rates[0] <= least:
                    rates.append(self.rate(method))
                self.assertGreater(max(rates), least, rates)

    def test_a_run_whose_cores_are_taken_says_so_once(self):
        self.busy(len(os.sched_getaffinity(0)))
        # A run of less than a second does not say it.
        told = self.answer("four-stages", "--figures", tokens=500).count("other processes took")
        self.assertEqual(told, 1)


if __name__ == "__main__":
    unittest.main()
