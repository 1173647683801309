"""Runs the program under test; shared by the tests of this folder."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from cache_folder import DEMO_MODEL  # noqa: E402: by the line above

BINARY = os.environ.get("PACELINE_BINARY", str(ROOT / "build" / "release" / "paceline"))
# A text that repeats itself, so that prompt lookup has something to find.
PROMPT = "one two three four one two three four one two three four one two"
# The tests say themselves what a method adds to plain decoding.
os.environ["PACELINE_METHOD"] = "plain"
TINY = str(ROOT / "tests" / "fixtures" / "models" / "tiny-chat.gguf")


def demo_model() -> str | None:
    """The demo model named by PACELINE_DEMO_MODEL or left in the cache; None if there is none."""
    named = os.environ.get("PACELINE_DEMO_MODEL", "")
    if named == "none":
        return None
    if named:
        return named
    return str(DEMO_MODEL) if DEMO_MODEL.exists() else None


needs_demo_model = unittest.skipUnless(
    demo_model(), "skipped: the demo model is not here (launch/fetch_model brings it)")


def environment(**changes: str | None) -> dict[str, str]:
    """The environment of a user who has set nothing for Paceline but that plain decoding is the method."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PACELINE_")}
    env["PACELINE_METHOD"] = "plain"
    for name, value in changes.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    return env


def paceline(*args: str, stdin: bytes = b"", env: dict[str, str] | None = None,
             timeout: float = 120) -> subprocess.CompletedProcess:
    """Runs the program to its end; stdout and stderr come back as bytes."""
    return subprocess.run([BINARY, *args], input=stdin, capture_output=True, timeout=timeout,
                          env=env or environment(), check=False)


def pipeline_toml(segments: int, draft: bool, of_each: str = "") -> str:
    """A pipeline of `segments` segments, one thread each; `of_each` are lines for every stage."""
    text = '[pipeline]\nname = "test"\n'
    if draft:
        text += f'[[stage]]\nname = "draft"\nrole = "draft"\n{of_each}'
    for index in range(1, segments + 1):
        text += f'[[stage]]\nname = "segment-{index}"\nrole = "segment"\nlayers = "auto"\nthreads = 1\n{of_each}'
    if draft:
        text += '[draft]\nsource = "prompt-lookup"\ngamma = 6\nmin_ngram = 1\nmax_ngram = 3\n'
    return text


class CliTest(unittest.TestCase):
    """A test with a folder of its own and checks that show what the program said."""

    maxDiff = None

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def as_configured(self, method: str) -> str:
        """A file: the method without the account of costs and gains, so that its draft always works."""
        path = self.folder / f"{method}-off.toml"
        path.write_text(f'extends = "{method}"\n[schedule]\ncontroller = "off"\n')
        return str(path)

    def run_ok(self, *args: str, **kwargs) -> str:
        """stdout as text; the program must end with 0 and write valid UTF-8."""
        done = paceline(*args, **kwargs)
        self.assertEqual(done.returncode, 0, f"{args}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode("utf-8")

    def run_fails(self, code: int, *args: str, **kwargs) -> str:
        """stderr as text; the program must end with `code`, and say why on stderr alone."""
        done = paceline(*args, **kwargs)
        stderr = done.stderr.decode("utf-8")
        self.assertEqual(done.returncode, code, f"{args}: {stderr}")
        self.assertEqual(done.stdout, b"", "a failure prints nothing to stdout")
        self.assertTrue(stderr.startswith("paceline"), stderr)
        self.assertNotIn("terminate called", stderr)
        return stderr

    def generate(self, *args: str, model: str = TINY, **kwargs) -> tuple[str, list[int], dict]:
        """Text, token ids and figures of `paceline run`."""
        ids, stats = self.folder / "ids.json", self.folder / "stats.json"
        text = self.run_ok("run", "-m", model, "--ids", str(ids), "--stats", str(stats), *args,
                           **kwargs)
        return text, json.loads(ids.read_text()), json.loads(stats.read_text())
