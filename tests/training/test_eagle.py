"""EAGLE drafts: unrolled steps are real chains, runs go on with the same result, files hold them."""

import unittest
from unittest import mock

import gguf
import numpy as np
import torch

from paceline_training import export, loop
from paceline_training.eagle import EagleModel, feature_layers
from paceline_training.modules import Context
from paceline_training.target import Target
from torch_answers import FINGERPRINT
from training_run import TrainingRuns, quiet


class Steps(TrainingRuns):
    def test_each_step_of_a_row_is_what_a_chain_from_its_root_computes(self):
        target = Target(self.model)
        torch.manual_seed(3)
        model = EagleModel(target.shape, target.layer(1), target.output_norm, 0)
        with torch.no_grad():
            model.fuse += 0.05 * torch.randn_like(model.fuse)
        length, dim, steps = 14, target.shape.dim, 4
        embedded, states = torch.randn(2, 1, length, dim)
        # Two answers in one sequence, and padding.
        segments = torch.tensor([[1] * 5 + [2] * 7 + [0] * 2])
        positions = torch.tensor([[*range(5), *range(7), 0, 1]])
        context = Context(target.shape, positions, segments, torch.float32)

        def forward(states, steps):
            with torch.no_grad():
                return model(embedded, states, context, positions, segments, steps)

        unrolled = forward(states, steps)
        checked = 0
        for root in range(5, 11):
            own = states.clone()
            for step in range(steps):
                row = root + step
                if row >= 12:
                    break
                output = forward(own, 1)[0][0, row]
                torch.testing.assert_close(unrolled[step][0, row], output, rtol=1e-4, atol=1e-5)
                own[0, row] = output
                checked += 1
        self.assertEqual(checked, 21)
        changed = forward(torch.cat([states[:, :5] + 1, states[:, 5:]], 1), steps)
        for before, after in zip(unrolled, changed):  # the other answer's states are not seen
            torch.testing.assert_close(before[0, 5:12], after[0, 5:12])

    def test_layers_that_no_target_has_are_refused_with_their_value(self):
        self.assertEqual(feature_layers("1,2", 2), [1, 2])
        self.assertEqual(feature_layers("", 2), [])
        for text in ("2,1", "0,1", "1,3", "1,x", "1,1"):
            with self.assertRaisesRegex(ValueError, f"--layers '{text}'"):
                feature_layers(text, 2)


class Runs(TrainingRuns):
    def train(self, run, *more, steps=12):
        return self.succeeds(self.arguments("eagle", run, "--steps", steps, *more))

    def module(self, run):
        return torch.load(self.folder / run / "checkpoint.pt", weights_only=True)["module"]

    def test_training_lowers_the_loss_of_every_step(self):
        self.train("begun", "--rate", 0, steps=1)
        self.train("learned", "--rate", 3e-3, steps=60)
        begun, learned = (self.card(run)["heldout"]["all"] for run in ("begun", "learned"))
        self.assertGreater(learned["top1"], begun["top1"])
        self.assertGreater(learned["acceptance_length"], begun["acceptance_length"])
        lines = (self.folder / "learned" / "losses.tsv").read_text().splitlines()[1:]
        for step in range(1, 5):
            values = [float(line.split("\t")[4]) for line in lines
                      if line.split("\t")[3] == f"kl_{step}"]
            self.assertLess(values[-1], values[0])

    def test_an_interrupted_run_that_resumes_ends_with_the_weights_of_one_that_was_not(self):
        self.train("whole", "--rate", 3e-3)
        update = loop.Run.update

        def stops(run, batch):
            if run.step == 7:
                raise KeyboardInterrupt
            return update(run, batch)

        with mock.patch.object(loop.Run, "update", stops):
            code, _, _ = quiet(self.arguments("eagle", "cut", "--steps", 12, "--rate", 3e-3))
        self.assertEqual(code, 130)
        self.train("cut", "--rate", 3e-3, "--resume")
        whole, cut = self.module("whole"), self.module("cut")
        self.assertEqual(whole.keys(), cut.keys())
        for name in whole:
            torch.testing.assert_close(cut[name], whole[name], rtol=0, atol=0)

    def test_a_file_holds_what_was_trained_in_the_order_of_the_target(self):
        self.train("plain", "--rate", 0, steps=1)
        tensors, metadata = self.export("plain", "eagle.safetensors", "--type", "f32")
        self.assertEqual({key: metadata[key] for key in ("paceline.part", "paceline.target",
                                                         "layers")},
                         {"paceline.part": "eagle", "paceline.target": FINGERPRINT, "layers": "1"})
        self.assertNotIn("feature_layers", metadata)
        self.assertNotIn("join", tensors)
        stored = {t.name: t for t in gguf.GGUFReader(self.model).tensors}
        for ours, theirs in (("q", "attn_q"), ("down", "ffn_down")):
            tensor = stored[f"blk.1.{theirs}.weight"]
            np.testing.assert_array_equal(tensors[f"layers.0.{ours}"],
                                          gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        dim = tensors["output_norm"].shape[0]
        np.testing.assert_array_equal(tensors["fuse"], np.concatenate([np.eye(dim)] * 2, 1))

    def test_states_of_several_layers_are_joined_and_the_file_names_them(self):
        self.train("joined", "--layers", "1,2", "--unroll", 2, "--rate", 3e-3, steps=3)
        tensors, metadata = self.export("joined", "joined.safetensors")
        self.assertEqual(metadata["feature_layers"], "1,2")
        self.assertEqual(metadata["type.join"], "Q8_0")
        self.assertEqual(metadata["type.fuse"], "Q8_0")
        self.assertEqual(tensors["join"].dtype, np.uint8)
        log = (self.folder / "joined" / "losses.tsv").read_text()
        self.assertIn("kl_2", log)
        self.assertNotIn("kl_3", log)
        self.assertNotIn("feature_1", log)  # cross entropy alone

    def test_a_part_that_is_too_large_is_refused(self):
        self.train("large", "--rate", 0, steps=1)
        with mock.patch.object(export, "EAGLE_BYTES_MAX", 1000):
            said = self.refused("export", "--run", self.folder / "large", "-o",
                                self.folder / "large.safetensors")
        self.assertIn("an EAGLE part has at most 1000", said)
        self.assertFalse((self.folder / "large.safetensors").exists())


if __name__ == "__main__":
    unittest.main()
