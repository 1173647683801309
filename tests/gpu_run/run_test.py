#!/usr/bin/env python3
"""The runner of tests/gpu without a GPU: time, hanging processes, results, the cut of a model, the order."""

import os
import re
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import machine  # noqa: E402: found through the line above
import plan  # noqa: E402
import processes  # noqa: E402
import split  # noqa: E402
from place import Place  # noqa: E402
from steps import CUT, FAILED, PASSED, SKIPPED, Skip, Step, Steps  # noqa: E402

# A command whose grandchild, in a session of its own, keeps its output open; the mark finds it in ps.
MARK = f"paceline-run-test-{os.getpid()}"
LEAVES_ONE = ["bash", "-c", f"setsid bash -c 'sleep 1000; : {MARK}' & echo begun; "]
HANGS = ["bash", "-c", f"setsid bash -c 'trap \"\" TERM; sleep 1000; : {MARK}' & sleep 1000"]


def alive(mark: str) -> list:
    """Command lines with `mark` of processes that run, this one's left out."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if mark in words:
                found.append(words)
    return found


class Folder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="paceline-run-test-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = Path(self.temporary.name)

    def steps(self, minutes=10.0, why_no_gpu=""):
        return Steps(self.folder / "out", minutes, why_no_gpu, self.folder, dict(os.environ))


class CommandsTest(Folder):
    @classmethod
    def setUpClass(cls):
        processes.adopt_orphans()

    def run_for(self, command, seconds):
        return processes.run_for(command, self.folder / "log", seconds, self.folder, dict(os.environ))

    def test_what_a_command_printed_and_its_exit_code_are_kept(self):
        ended = self.run_for(["bash", "-c", "echo out; echo err >&2; exit 3"], 20)
        self.assertEqual((ended.code, ended.text, ended.survivors), (3, "out\nerr\n", 0))
        self.assertIn("exit code 3", (self.folder / "log").read_text())

    def test_a_process_that_a_finished_command_left_behind_is_killed(self):
        ended = self.run_for(LEAVES_ONE, 20)
        self.assertEqual((ended.code, ended.text), (0, "begun\n"))
        self.assertEqual(alive(MARK), [])

    def test_a_command_that_hangs_is_killed_with_its_grandchildren(self):
        ended = self.run_for(HANGS, 0.5)
        self.assertIsNone(ended.code)
        self.assertEqual(ended.survivors, 0)
        self.assertEqual(alive(MARK), [])

    def test_a_program_that_does_not_exist_is_an_oserror(self):
        with self.assertRaises(OSError):
            self.run_for(["/nowhere/program"], 5)


class StepsTest(Folder):
    def test_each_step_ends_in_one_word_and_its_reason(self):
        def fails(shell):
            shell.run(["bash", "-c", "echo a reason; exit 4"])

        def skips(_):
            raise Skip("no such thing")

        steps = self.steps()
        words = [steps.run(Step("s", name, work, 20)).word for name, work in
                 (("good", lambda shell: shell.run(["echo", "fine"]).strip()), ("bad", fails), ("none", skips))]
        self.assertEqual(words, [PASSED, FAILED, SKIPPED])
        self.assertTrue(steps.failed())
        table = steps.table()
        self.assertIn("| s: good | passed |", table)
        self.assertIn("bash: exit code 4; log s-bad.log", table)
        self.assertIn("no such thing", table)
        self.assertIn("1 passed, 1 failed, 1 skipped, 0 cut short", table)

    def test_a_step_over_its_own_time_is_a_failure(self):
        result = self.steps().run(Step("s", "slow", lambda shell: shell.run(["sleep", "100"]), 0.3))
        self.assertEqual(result.word, FAILED)
        self.assertIn("sleep did not end within 0 s", result.said)

    def test_a_run_whose_time_is_over_stops_what_runs_and_begins_nothing_more(self):
        steps = self.steps(minutes=4.0 / 60)
        first = steps.run(Step("s", "hangs", lambda shell: shell.run(HANGS), 500))
        second = steps.run(Step("s", "later", lambda shell: shell.run(["true"]), 500))
        self.assertEqual((first.word, second.word), (CUT, CUT))
        self.assertIn("not begun", second.said)
        self.assertEqual(alive(MARK), [])
        self.assertFalse(steps.failed())

    def test_without_a_gpu_a_step_that_needs_one_is_skipped_with_the_reason(self):
        steps = self.steps(why_no_gpu="no device: none here")
        result = steps.run(Step("s", "x", lambda _: self.fail("it ran"), 10))
        self.assertEqual((result.word, result.said), (SKIPPED, "no device: none here"))
        self.assertEqual(steps.run(Step("s", "y", lambda _: "", 10, needs_gpu=False)).word, PASSED)

    def test_a_step_that_a_signal_interrupts_is_in_the_table_and_ends_the_run(self):
        steps = self.steps()

        def interrupted(_):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            steps.run(Step("s", "long", interrupted, 10))
        self.assertEqual((steps.results[0].word, steps.results[0].said), (CUT, "stopped by a signal"))

    def test_logs_and_table_are_packed_after_every_step(self):
        steps = self.steps()
        steps.run(Step("s", "one", lambda shell: shell.run(["echo", "hello"]), 10))
        with tarfile.open(self.folder / "out/logs.tar.gz") as tar:
            self.assertEqual(sorted(tar.getnames()), ["logs/s-one.log", "logs/table.md"])
            self.assertIn(b"hello", tar.extractfile("logs/s-one.log").read())


class SplitTest(Folder):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "model.tar"
        self.source.write_bytes(bytes(range(256)) * 20_000)  # 5,120,000 bytes
        self.parts = self.folder / "parts"
        self.parts.mkdir()
        self.description = split.cut(self.source, "OUT.model", 2 << 20, self.parts)

    def test_parts_have_at_most_their_size_and_give_the_file_again(self):
        self.assertEqual([part["bytes"] for part in self.description["parts"]], [2 << 20, 2 << 20, 925_696])
        joined = split.join(self.description, [self.parts], self.folder / "parts")
        self.assertEqual(joined.read_bytes(), self.source.read_bytes())

    def test_parts_may_come_as_files_from_several_folders(self):
        other = self.folder / "other"
        other.mkdir()
        (self.parts / "OUT.model.01").rename(other / "OUT.model.01")
        split.join(self.description, [self.parts, other / "OUT.model.01"], self.folder / "parts")

    def test_a_missing_part_is_named(self):
        (self.parts / "OUT.model.02").unlink()
        with self.assertRaisesRegex(split.SplitError, r"OUT\.model\.02: not among"):
            split.join(self.description, [self.parts], self.folder)

    def test_a_changed_part_is_named(self):
        changed = self.parts / "OUT.model.01"
        changed.write_bytes(b"x" + changed.read_bytes()[1:])
        with self.assertRaisesRegex(split.SplitError, r"OUT\.model\.01: not the part"):
            split.join(self.description, [self.parts], self.folder)

    def test_a_file_of_whole_parts_has_no_empty_one(self):
        self.source.write_bytes(b"y" * (4 << 20))
        again = split.cut(self.source, "again", 2 << 20, self.parts)
        self.assertEqual([part["bytes"] for part in again["parts"]], [2 << 20, 2 << 20])
        self.assertFalse((self.parts / "again.02").exists())

    def test_sizes_are_read_and_others_refused_with_their_words(self):
        self.assertEqual([split.parse_size(text) for text in ("24M", "512K", "1g", "100")],
                         [24 << 20, 512 << 10, 1 << 30, 100])
        for wrong in ("", "M", "0", "-1M", "2.5M", "24MB", "24X"):
            with self.assertRaisesRegex(split.SplitError, re.escape(f"'{wrong}'")):
                split.parse_size(wrong)


class PlanTest(Folder):
    def setUp(self):
        super().setUp()
        self.choice = plan.Choice(Place(HERE.parent.parent, self.folder))
        self.all = plan.steps_of(self.choice)
        self.names = [f"{step.section}: {step.name}" for step in self.all]

    def at(self, name):
        return next(i for i, found in enumerate(self.names) if found.startswith(name))

    def test_the_most_telling_steps_come_first(self):
        order = ["machine: card", "machine: libraries", "kernels: equal bits, however spread", "kernels: gpu_gemm",
                 "kernels: gpu_attention", "kernels: gpu_rows", "kernels: gpu_sample", "backend: gpu_backend",
                 "bench: llama-8b: copy,kernels,batches", "bench: smollm2-135m: copy,kernels,batches",
                 "sanitizer: memcheck gpu_gemm", "kernels: gpu_blas", "bench: llama-8b: ladder",
                 "peers: smollm2-135m", "equality: greedy"]
        places = [self.at(name) for name in order]
        self.assertEqual(places, sorted(places))
        self.assertTrue(all(step.section in ("peers", "equality") for step in self.all[self.at("peers"):]))

    def test_every_section_has_steps_and_every_step_a_name_of_its_own(self):
        self.assertEqual({step.section for step in self.all}, set(plan.SECTIONS))
        logs = [step.log_name() for step in self.all]
        self.assertEqual(len(logs), len(set(logs)))

    def test_the_spread_test_and_the_lost_device_are_tests_that_exist(self):
        sources = "".join(path.read_text() for path in (HERE.parent / "unit/cuda").glob("*.cpp"))
        sanitized = [case for cases in plan.SANITIZED.values() for case in cases.split(",")]
        for pattern in [plan.SPREAD, plan.LOST, *sanitized]:
            self.assertRegex(sources, r'TEST_CASE\(\s*"' + re.escape(pattern.rstrip("*")))

    def test_a_program_that_was_not_built_is_a_skip_that_names_it(self):
        with self.assertRaisesRegex(Skip, "gpu_gemm is not in"):
            self.choice.place.program("gpu_gemm")

    def test_a_doctest_program_that_ran_no_test_is_a_failure(self):
        program = self.folder / "tests/unit/cuda/gpu_gemm"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\necho '[doctest] test cases: 0 | 0 passed | 0 failed'\n")
        program.chmod(0o755)
        result = self.steps().run(self.all[self.at("kernels: gpu_gemm")])
        self.assertEqual(result.word, FAILED)
        self.assertIn("gpu_gemm ran no test", result.said)

    def test_the_emulated_device_runs_the_tiny_shape_alone(self):
        self.choice.place.kind = "emulated"
        names = [step.name for step in plan.steps_of(self.choice) if step.section == "bench"]
        self.assertTrue(names and all(name.startswith("tiny") for name in names))


class MachineTest(Folder):
    def test_cublas_and_the_sanitizer_are_found_under_cuda_home(self):
        (self.folder / "lib64").mkdir()
        (self.folder / "lib64/libcublas.so.13").touch()
        (self.folder / "bin").mkdir()
        (self.folder / "bin/compute-sanitizer").touch()
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ["CUDA_HOME"] = str(self.folder)
        os.environ["PATH"] = "/nowhere"
        self.assertEqual(machine.library_folders()[0], self.folder / "lib64")
        self.assertEqual(machine.compute_sanitizer(), str(self.folder / "bin/compute-sanitizer"))
        found = machine.environment(self.folder)
        self.assertIn(str(self.folder / "lib64"), found["LD_LIBRARY_PATH"].split(":"))
        self.assertEqual(found["PACELINE_SOURCE_TREE"], str(self.folder))

    def test_cublas_is_found_where_pip_puts_it(self):
        packages = self.folder / "lib/python3.12/site-packages"
        (packages / "nvidia/cu13/lib").mkdir(parents=True)
        (packages / "nvidia/cu13/lib/libcublas.so.13").touch()
        sys.path.append(str(packages))
        self.addCleanup(sys.path.remove, str(packages))
        self.assertIn(packages / "nvidia/cu13/lib", machine.library_folders())


if __name__ == "__main__":
    unittest.main()
