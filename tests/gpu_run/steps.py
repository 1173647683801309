"""Steps: runs the steps of a plan in their order within a time, and keeps what came of each.

A step ends as one of: passed, FAILED, skipped (what it needs is not there, with the reason) or cut
short (the time of the whole run was over while it ran, or before: nothing is said about what it tests).
After each step the logs and the table are packed anew, so a run that is ended from outside has
left behind what it had.
"""

import os
import re
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

from processes import run_for

PASSED, FAILED, SKIPPED, CUT = "passed", "FAILED", "skipped", "cut short"
LEAST_SECONDS = 3.0  # no step is begun with less left


class Skip(Exception):
    """What a step needs is not there; its words say what."""


class Failure(Exception):
    """A step's finding; the first line goes into the table."""


class CutShort(Exception):
    """The time of the whole run is over."""


@dataclass(frozen=True)
class Step:
    """One step: `work` gets a Shell and returns the words for the table."""

    section: str
    name: str
    work: object
    seconds: float  # more than this is a failure
    needs_gpu: bool = True

    def log_name(self) -> str:
        return re.sub(r"[^\w.+-]+", "_", f"{self.section}-{self.name}") + ".log"


@dataclass(frozen=True)
class Result:
    step: Step
    word: str
    seconds: float
    said: str


class Shell:
    """Runs the commands of one step, all of them within the step's time."""

    def __init__(self, log: Path, seconds: float, run_ends: float, folder: Path, environment: dict):
        self.log = log
        self.logs = log.parent
        self._ends = min(time.monotonic() + seconds, run_ends)
        self._seconds = seconds
        self._cut_by_run = run_ends < time.monotonic() + seconds
        self._folder = folder
        self._environment = environment

    def try_run(self, command: list, **extra) -> tuple:
        """(exit code, text). Raises Failure or CutShort where time is over, OSError where it cannot start."""
        words = [str(word) for word in command]
        ended = run_for(words, self.log, self._ends - time.monotonic(), self._folder,
                        {**self._environment, **extra})
        if ended.code is None and self._cut_by_run:
            raise CutShort(f"stopped: the time of the run was over; log {self.log.name}")
        if ended.code is None:
            raise Failure(f"{Path(words[0]).name} did not end within {self._seconds:.0f} s; log {self.log.name}")
        return ended.code, ended.text

    def run(self, command: list, **extra) -> str:
        """What `command` printed. Raises Failure with its last lines where it does not exit with 0."""
        code, text = self.try_run(command, **extra)
        if code != 0:
            last = [line for line in text.splitlines() if line.strip()][-12:]
            raise Failure("\n".join([f"{Path(str(command[0])).name}: {exit_words(code)}; log {self.log.name}",
                                     *last]))
        return text


def exit_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


class Steps:
    """Runs steps one after the other. `why_no_gpu`: empty where there is one."""

    def __init__(self, out: Path, minutes: float, why_no_gpu: str, folder: Path, environment: dict):
        self.results = []
        self._out = out
        self.logs = out / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self._ends = time.monotonic() + 60.0 * minutes
        self._why_no_gpu = why_no_gpu
        self._folder = folder
        self._environment = environment

    def run(self, step: Step) -> Result:
        begin = time.monotonic()
        log = self.logs / step.log_name()
        log.unlink(missing_ok=True)
        word, said = CUT, "stopped by a signal"  # what it stays if a signal ends the run meanwhile
        try:
            if step.needs_gpu and self._why_no_gpu:
                raise Skip(self._why_no_gpu)
            if self._ends - begin < LEAST_SECONDS:
                raise CutShort("not begun: the time of the run was over")
            shell = Shell(log, step.seconds, self._ends, self._folder, self._environment)
            word, said = PASSED, step.work(shell) or ""
        except Skip as why:
            word, said = SKIPPED, str(why)
        except CutShort as why:
            word, said = CUT, str(why)
        except (Failure, OSError) as error:
            word, said = FAILED, str(error).splitlines()[0]
            print(error, file=sys.stderr)
        finally:
            result = Result(step, word, time.monotonic() - begin, said)
            self.results.append(result)
        print(f"{word:9} {step.section}: {step.name}  {said}", file=sys.stderr, flush=True)
        self.save()
        return result

    def table(self) -> str:
        lines = ["| step | result | seconds | |", "|---|---|---:|---|"]
        for one in self.results:
            lines.append(f"| {one.step.section}: {one.step.name} | {one.word} | {one.seconds:.1f} "
                         f"| {one.said.replace('|', ',')} |")
        counts = {word: sum(one.word == word for one in self.results) for word in (PASSED, FAILED, SKIPPED, CUT)}
        lines += ["", f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped, "
                      f"{counts[CUT]} cut short"]
        return "\n".join(lines) + "\n"

    def save(self) -> None:
        """Writes the table and packs all logs; a reader sees the archive before or the one behind."""
        (self.logs / "table.md").write_text(self.table(), encoding="utf-8")
        packed = self._out / "logs.tar.gz"
        half = packed.with_suffix(".half")
        with tarfile.open(half, "w:gz", compresslevel=6) as tar:
            for path in sorted(self.logs.iterdir()):
                if path.suffix != ".ids":
                    tar.add(path, arcname=f"logs/{path.name}")
        os.replace(half, packed)

    def failed(self) -> bool:
        return any(one.word == FAILED for one in self.results)
