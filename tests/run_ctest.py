#!/usr/bin/env python3
"""Runs ctest, and each test that failed once more, alone, at the end.

    tests/run_ctest.py BUILD [ARGUMENT ...]                    arguments go to ctest
    tests/run_ctest.py BUILD --under-load N [ARGUMENT ...]     N runs beside busy processes

If all tests that failed pass when they run alone, the run passes. They depend on the load of the machine: the
last lines name them, after a summary in ctest's own words, and both of their outputs are in
BUILD/Testing/run_again.log. Such a test is to be mended.

With --under-load no test gets a second try; the last lines count the failures of each, and the outputs of the
failures are in BUILD/Testing/under_load.log. Python's standard library only.
"""

import re
import subprocess
import sys
from pathlib import Path

BUSY_PROCESSES = 2
SUMMARY = re.compile(r"^\d+% tests passed, (\d+) tests failed out of (\d+)$")
FAILED = "The following tests FAILED:"


class Run:
    """One run of ctest, shown while it goes on: exit code, closing lines, and the tests that failed."""

    def __init__(self, build: Path, arguments: list[str]) -> None:
        self.build = build
        (build / "Testing" / "Temporary" / "LastTestsFailed.log").unlink(missing_ok=True)
        # Two at a time on any machine: pipelines pin their stages to cores, and more tests would share them.
        command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=error", "-j", "2",
                   *arguments]
        self.closing: list[str] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            for line in process.stdout:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
                text = line.decode(errors="replace").rstrip("\n")
                if SUMMARY.match(text):
                    self.closing = []
                self.closing.append(text)
        self.code = process.returncode
        found = SUMMARY.match(self.closing[0]) if self.closing else None
        self.tests = int(found[2]) if found else 0
        self.failed = self.failed_tests()

    def failed_tests(self) -> dict[str, str]:
        """Number by name."""
        try:
            lines = (self.build / "Testing" / "Temporary" / "LastTestsFailed.log").read_text().splitlines()
        except OSError:
            return {}
        return {name: number for number, name in (line.split(":", 1) for line in lines)}

    def output_of(self, test: str) -> str:
        """What ctest wrote down about it."""
        text = (self.build / "Testing" / "Temporary" / "LastTest.log").read_text(errors="replace")
        begin = re.search(rf"^\d+/\d+ Testing: {re.escape(test)}$", text, re.MULTILINE)
        if begin is None:
            return ""
        end = re.compile(r"^(\d+/\d+ Testing: |End testing: )", re.MULTILINE).search(text, begin.end())
        return text[begin.start():end.start() if end else len(text)]


def listed(tests: dict[str, str], add: str = "") -> list[str]:
    return [f"\t{number:>3} - {name}{add}" for name, number in tests.items()]


def closing_of(first: Run, again: Run, log: Path) -> list[str]:
    """ctest's closing lines of the first run, with the outcome of the second one."""
    lines = first.closing[:first.closing.index(FAILED)] if FAILED in first.closing else first.closing
    failures = len(again.failed)
    percent = 100 if failures == 0 else min(99, 100 * (first.tests - failures) // first.tests)
    lines = ["", f"{percent}% tests passed, {failures} tests failed out of {first.tests}", *lines[1:]]
    passed = {name: number for name, number in first.failed.items() if name not in again.failed}
    if passed:
        lines += ["The following tests depend on load, they failed beside others and passed alone "
                  f"(both outputs: {log}):", *listed(passed)]
    if again.failed:
        lines += [FAILED, *listed(again.failed, " (Failed)")]
    return lines


def run_twice(build: Path, arguments: list[str]) -> int:
    first = Run(build, arguments)
    if first.code == 0 or not first.failed or not first.tests:
        return first.code
    outputs = {name: first.output_of(name) for name in first.failed}
    print(f"\nOnce more, alone: {', '.join(first.failed)}", flush=True)
    names = "|".join(map(re.escape, first.failed))
    again = Run(build, [*arguments, "-R", f"^({names})$", "-j", "1"])
    log = build / "Testing" / "run_again.log"
    log.write_text("".join(f"==== {name}, beside others\n{output}\n==== {name}, alone\n{again.output_of(name)}\n"
                           for name, output in outputs.items()))
    print("\n".join(closing_of(first, again, log)), flush=True)
    return again.code


def run_under_load(build: Path, times: int, arguments: list[str]) -> int:
    log = build / "Testing" / "under_load.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("")
    tests = 0
    failures: dict[str, list[int]] = {}
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_PROCESSES)]
    try:
        for number in range(1, times + 1):
            print(f"Run {number} of {times}, beside {BUSY_PROCESSES} busy processes", flush=True)
            run = Run(build, arguments)
            if not run.tests:
                return run.code or 1
            tests += run.tests
            with open(log, "a", encoding="utf-8") as file:
                for name in run.failed:
                    failures.setdefault(name, []).append(number)
                    file.write(f"==== {name}, run {number}\n{run.output_of(name)}\n")
    finally:
        for process in busy:
            process.kill()
            process.wait()
    count = sum(len(runs) for runs in failures.values())
    print(f"\n{times} runs beside {BUSY_PROCESSES} busy processes: {tests} tests, {count} failed")
    for name, runs in failures.items():
        print(f"\t{name}: failed in run {', '.join(map(str, runs))}")
    if failures:
        print(f"Their outputs: {log}")
    return 1 if failures else 0


def main(words: list[str]) -> int:
    build, arguments = Path(words[0]), words[1:]
    if arguments[:1] != ["--under-load"]:
        return run_twice(build, arguments)
    if len(arguments) < 2 or not arguments[1].isdigit() or int(arguments[1]) < 1:
        print("tests/run --under-load N: N is the number of runs, at least 1", file=sys.stderr)
        return 2
    return run_under_load(build, int(arguments[1]), arguments[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
