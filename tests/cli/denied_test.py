"""Systems that deny what most give: system calls, /proc. A run that can do without them goes on, and the error of
one that cannot names the reason."""

import errno
import json
import os
import resource
import subprocess
import unittest
from collections.abc import Callable

from denied_calls import NUMBERS, deny, needs_numbers, without_proc
from paceline_cli import BINARY, CliTest, PROMPT, ROOT, TINY, environment

FOLDER = str(ROOT / "tests" / "fixtures" / "folders" / "llama3-bf16")
PIPELINE = ["run", "-m", TINY, "--method", "four-stages", "-n", "12", PROMPT]
# What starting, watching and restarting stages uses beside calls that every program needs.
OPTIONAL = ["sched_setaffinity", "sched_getaffinity", "pidfd_open", "pidfd_send_signal", "close_range",
            "memfd_create", "fallocate", "prctl", "setpgid", "prlimit64", "eventfd2", "timerfd_create", "madvise",
            "statx", "rseq", "getrandom", "sysinfo", "set_robust_list", "sched_yield"]
UNPINNED = "stages run on any core: this system does not let them be pinned"


@needs_numbers
class DeniedCalls(CliTest):
    def under(self, limit: Callable[[], None] | None, *args: str, **kwargs) -> subprocess.CompletedProcess:
        try:
            return subprocess.run([BINARY, *args], capture_output=True, timeout=120, env=environment(), check=False,
                                  preexec_fn=limit, **kwargs)
        except subprocess.SubprocessError:
            self.skipTest("skipped: this process may not filter system calls")

    def says(self, limit: Callable[[], None] | None, *args: str) -> tuple[bytes, str]:
        done = self.under(limit, *args)
        said = done.stderr.decode()
        self.assertEqual(done.returncode, 0, said)
        return done.stdout, said

    def test_stages_that_cannot_be_pinned_run_unpinned_and_a_remark_says_so(self):
        text, said = self.says(None, *PIPELINE)
        self.assertNotIn(UNPINNED, said)
        for error in (errno.EPERM, errno.EINVAL, errno.ENOSYS):
            with self.subTest(error=os.strerror(error)):
                unpinned, said = self.says(deny(["sched_setaffinity"], error), *PIPELINE)
                self.assertEqual(unpinned, text)
                self.assertEqual(said.count(UNPINNED), 1, said)
                self.assertIn(f"(sched_setaffinity: {os.strerror(error)})", said)
        self.assertNotIn(UNPINNED, self.says(deny(["sched_setaffinity"], errno.EPERM), *PIPELINE, "--quiet")[1])

    def test_no_call_that_can_be_done_without_ends_a_run(self):
        text = self.says(None, *PIPELINE)[0]
        for error in (errno.ENOSYS, errno.EPERM):
            for calls in [[call] for call in OPTIONAL] + [OPTIONAL]:
                with self.subTest(error=os.strerror(error), calls=calls):
                    self.assertEqual(self.says(deny(calls, error), *PIPELINE)[0], text)
        # The C library has an older equivalent where the kernel does not know this one, and none where it is
        # forbidden.
        self.assertEqual(self.says(deny(["clone3"], errno.ENOSYS), *PIPELINE)[0], text)
        done = self.under(deny(["clone3"], errno.EPERM), *PIPELINE)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot start a thread: Operation not permitted", done.stderr.decode())
        self.assertIn("forbids clone3", done.stderr.decode())

    def test_stages_that_die_are_noticed_and_replaced_without_process_descriptors(self):
        report = self.folder / "report.json"
        for calls in (["pidfd_open"], ["pidfd_send_signal"], OPTIONAL):
            with self.subTest(calls=calls):
                self.says(deny(calls, errno.ENOSYS), "check", "-m", TINY, "--method", "four-stages", "--first", "2",
                          "-n", "24", "--kills", "2", "--json", str(report))
                self.assertGreater(json.loads(report.read_text())["kills"], 0)

    def test_a_folder_is_converted_without_reserving_room(self):
        out = self.folder / "out.gguf"
        for error in (errno.ENOSYS, errno.EPERM):
            self.says(deny(["fallocate", "memfd_create"], error), "convert", FOLDER, str(out), "--type", "q8_0", "--force")

    def test_the_remedy_for_descriptors_is_told_of_no_other_error(self):
        fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
        for fd in fds:
            self.addCleanup(os.close, fd)

        def few_left_and_no_fork() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (fds[-1] + 40, fds[-1] + 40))
            deny(["clone"], errno.EPERM)()

        done = self.under(few_left_and_no_fork, *PIPELINE, pass_fds=fds)
        said = done.stderr.decode()
        self.assertNotEqual(done.returncode, 0, said)
        self.assertIn("fork failed: Operation not permitted", said)
        self.assertNotIn("ulimit", said)


class WithoutProc(CliTest):
    def test_a_pipeline_runs_without_proc(self):
        whole = subprocess.run([BINARY, *PIPELINE], capture_output=True, timeout=120, env=environment(), check=True)
        try:
            done = subprocess.run([BINARY, *PIPELINE], capture_output=True, timeout=120, env=environment(),
                                  check=False, preexec_fn=without_proc())
        except subprocess.SubprocessError:
            self.skipTest("skipped: this process may not have mounts of its own")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(done.stdout, whole.stdout)


if __name__ == "__main__":
    unittest.main()
