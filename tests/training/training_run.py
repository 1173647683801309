"""The commands of the training package on the answers of a tiny model, in a folder of their own."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import torch
from safetensors import safe_open

from paceline_training.cli import main
from torch_answers import make_answers


def quiet(arguments):
    """The command's exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()


class TrainingRuns(unittest.TestCase):
    """Tests of a class share the answers; each names runs of its own."""

    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        cls.model = make_answers(cls.folder)

    def arguments(self, step, run, *more):
        return [step, "-m", self.model, "--answers", self.folder / "train", "--heldout",
                self.folder / "heldout", "-o", self.folder / run, "--length", 64,
                "--batch-tokens", 512, "-t", 1, "--dtype", "f32", "--tokens", 400, *more]

    def succeeds(self, arguments):
        """What the command printed."""
        code, out, err = quiet(arguments)
        self.assertEqual(code, 0, err)
        return out

    def refused(self, *arguments):
        """What the command said on its error output."""
        code, _, err = quiet(arguments)
        self.assertEqual(code, 1)
        return err

    def card(self, run):
        return json.loads((self.folder / run / "card.json").read_text())

    def export(self, run, name, *more):
        """Tensors and metadata of the file that a run is exported to."""
        path = self.folder / name
        self.succeeds(["export", "--run", self.folder / run, "-o", path, *more])
        with safe_open(path, "np") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata()
