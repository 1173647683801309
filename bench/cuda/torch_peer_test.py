"""torch_peer.py on a CPU: it works, and what is compiled draws the same tokens. Times mean nothing.

Runs with the first of these that has torch and transformers: this Python, the environment of
model/training/setup. Exits with 77, which ctest calls skipped, where none has, and where
PACELINE_TRAINING_VENV is none.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from cache_folder import TRAINING_VENV  # noqa: E402: by the line above

SKIPPED = 77
HAS_BOTH = """
import sys
from importlib.util import find_spec
sys.exit(not (find_spec("torch") and find_spec("transformers")))
"""


def python_with_torch() -> str:
    if os.environ.get("PACELINE_TRAINING_VENV") == "none":
        return ""
    for python in (sys.executable, str(TRAINING_VENV / "bin" / "python")):
        if os.access(python, os.X_OK):
            if subprocess.run([python, "-c", HAS_BOTH], check=False).returncode == 0:
                return python
    return ""


class TorchPeer(unittest.TestCase):
    def test_batches_and_prefill_are_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder) / "told.json"
            done = subprocess.run(
                [python_with_torch(), "-B", HERE / "torch_peer.py", "--shape", HERE.parent.parent / "configs" / "shapes" / "tiny.toml",
                 "--device", "cpu", "--threads", "1", "--cases", "1@8,8@8", "--prefill", "64", "--eager", "--seconds",
                 "90", "--flops", "1e12", "--json", told], capture_output=True, text=True, check=False,
                env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
            self.assertEqual(done.returncode, 0, done.stderr)
            everything = json.loads(told.read_text())
        figures = everything["figures"]
        for name in ("batch.wall.seconds.1.8", "batch.wall.seconds.8.8", "prefill.wall.seconds.64", "prefill.share"):
            self.assertGreater(figures[name], 0.0, name)
        self.assertIn("torch", everything["versions"])
        self.assertIn("LlamaForCausalLM, 0.1 million weights", everything["shape"])
        batches = everything["tables"][1]["rows"]
        self.assertIn(["1", "8", "eager"], [row[:3] for row in batches])
        self.assertNotIn("failed", [row[3] for row in batches])
        self.assertTrue(all(row[-1] in ("1 of 1", "8 of 8", "") for row in batches), batches)


if __name__ == "__main__":
    if not python_with_torch():
        print("skipped: no Python with torch and transformers (bench/cuda/requirements.txt)")
        sys.exit(SKIPPED)
    unittest.main()
