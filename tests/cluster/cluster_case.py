"""A run on hosts of a test: the key, a model, pipelines, and what has to hold at the end of every run.

A host's link is a wire with some delay where a fault has to meet a run in mid-answer: each hop then takes its time, on
a fast machine too. A test waits for events (text, a stage that is gone, an end); only the length of a cut is a time.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cli"))

import starters  # noqa: E402: by the line above
from deeper_model import write_deeper  # noqa: E402
from namespaces import Network, Wire, why_not  # noqa: E402
from paceline_cli import BINARY, PROMPT, TINY, environment  # noqa: E402
from recovery_test import is_alive, shared_names  # noqa: E402

LAUNCH = str(ROOT / "launch" / "paceline-launch")
EMULATED = str(Path(BINARY).parent / "paceline_emulated")
GREEDY = ["--temp", "0"]
DRAWN = ["--temp", "0.8", "--seed", "7", "--top-p", "0.95"]
# Without its end token the answer goes on to the context's end.
LONG = ["-p", PROMPT, "--logit-bias", "2=-inf"]
SHORT = ["-p", PROMPT, "-n", "40"]
LOOKUP = '[draft]\nsource = "prompt-lookup"\ngamma = 6\nmin_ngram = 1\nmax_ngram = 3\n'
# What a test has no time for.
QUICK = "[supervision]\nrestarts_max = 20\nbackoff_ms = [0]\n"
REFUSED_WITHIN = 15.0
END_LIMIT = 120.0


def why_no_program(binary: str = BINARY) -> str:
    return "" if Path(binary).exists() else f"{binary} is not built (launch/build --tests)"


def stage(name: str, role: str, *lines: str) -> str:
    return "\n".join(["[[stage]]", f'name = "{name}"', f'role = "{role}"', "threads = 1", *lines]) + "\n"


def draft_away(host: str = "b", device: str = "") -> str:
    """The draft on another machine: it may be lost, and decoding goes on without it."""
    return stage("draft", "draft", f'node = "{host}"') + stage("target", "segment", device) + LOOKUP


def segments(*hosts: str, device: str = "") -> str:
    """A draft here and a segment on each host; "": here."""
    text = stage("draft", "draft")
    for index, host in enumerate(hosts):
        where = f'node = "{host}"' if host else ""
        text += stage(f"segment-{index + 1}", "segment", 'layers = "auto"', device, where)
    return text + LOOKUP


def stages_on(network: Network, host: str) -> list[int]:
    """The stage processes on a host that live."""
    found = []
    for pid in network.processes(host):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"\0stage\0" in command and is_alive(pid):
            found.append(pid)
    return found


def until(is_true, limit: float, what: str) -> None:
    deadline = time.monotonic() + limit
    while not is_true():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {limit} s")
        time.sleep(0.02)


@unittest.skipIf(why_not(), f"skipped: {why_not()}")
class ClusterCase(unittest.TestCase):
    """Hosts a, b, c; the conductor is on a."""

    binary = BINARY
    plain_words: tuple[str, ...] = ()  # of the run in one process
    device = ""        # a line of each segment
    variables: dict[str, str] = {}
    wires: dict[str, Wire] = {}
    maxDiff = None

    def setUp(self) -> None:
        if why := why_no_program(self.binary):
            self.skipTest(f"skipped: {why}")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.shared = shared_names()
        self.network = Network(["a", "b", "c"], self.folder, wires=self.wires)
        self.addCleanup(self.network.remove)
        self.network.__enter__()
        self.key = self.new_key("cluster.key")
        models = self.folder / "models"
        models.mkdir()
        self.model = str(write_deeper(TINY, models / "deeper.gguf", 4))
        self.environment = environment(PACELINE_BINARY=self.binary, **self.variables)

    def environment_of_tasks(self) -> dict[str, str]:
        """mpirun passes on what it is told of, and nothing else."""
        return {name: value for name, value in self.environment.items() if name.startswith("PACELINE_")}

    def new_key(self, name: str) -> str:
        path = self.folder / name
        subprocess.run([self.binary, "agent", "--new-key", str(path)], check=True, capture_output=True,
                       env=environment())
        return str(path)

    def config(self, text: str, name: str = "pipeline.toml", supervision: str = QUICK) -> str:
        path = self.folder / name
        path.write_text(f'[pipeline]\nname = "test"\n{text}{supervision}')
        return str(path)

    def words(self, config: str, *args: str, key: str | None = None) -> list[str]:
        """What every starter starts on every host."""
        return [LAUNCH, config, "-m", self.model, "--key", key or self.key, *args]

    def by_hand(self, config: str, *args: str, hosts: str = "ab") -> starters.Job:
        job = starters.by_hand(self.network, list(hosts), self.words(config, *args), environment=self.environment)
        self.addCleanup(job.close)
        return job

    def agent(self, host: str, *args: str, key: str | None = None) -> starters.Job:
        """One that comes later, or besides."""
        job = starters.Job([starters.start(
            self.network, host,
            [self.binary, "agent", "--meet", f"a:{starters.MEET_PORT}", "--key", key or self.key, "--models",
             str(Path(self.model).parent), *args], self.environment)])
        self.addCleanup(job.close)
        return job

    def plain(self, *args: str) -> bytes:
        """What one process says: the bytes that no fault may change."""
        done = subprocess.run([self.binary, "run", "-m", self.model, *self.plain_words, *args], capture_output=True,
                              timeout=END_LIMIT, env=self.environment, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout

    def check_same(self, job: starters.Job, *args: str, limit: float = END_LIMIT) -> None:
        self.assertEqual(job.wait(limit), 0, job.err)
        self.assertEqual(job.out, self.plain(*args), job.err)
        self.check_nothing_left()

    def check_refused(self, job: starters.Job, *texts: str, within: float = REFUSED_WITHIN) -> None:
        """All of them end with an error in time, and what they say contains each of `texts`."""
        begun = time.monotonic()
        self.assertNotEqual(job.wait(within + 5), 0, job.err)
        self.assertLess(time.monotonic() - begun, within, job.err)
        self.assertEqual(job.out, b"")
        self.assertNotIn("terminate called", job.err)
        for text in texts:
            self.assertRegex(job.err, re.compile(text))
        self.check_nothing_left()

    def check_nothing_left(self, hosts: str = "abc") -> None:
        for host in hosts:
            until(lambda host=host: not self.network.processes(host), 10,
                  f"processes that are left on {host}: {self.network.processes(host)}")
        self.assertEqual(shared_names() - self.shared, set())

    def wait_for_stages(self, host: str, count: int) -> None:
        until(lambda: len(stages_on(self.network, host)) == count, 30, f"{count} stages on {host}")


def needs(starter: str):
    why = starters.missing(starter)
    return unittest.skipIf(why, f"skipped: {why}")


def main() -> None:
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    unittest.main()
