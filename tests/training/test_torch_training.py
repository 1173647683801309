"""Parts are trained from answers, runs go on after an interruption, files hold what was trained."""

import unittest

import gguf
import numpy as np
import torch

from paceline_training import adapter, draft, export, heads, plot
from paceline_training.loop import rate_at
from paceline_training.modules import Context, DraftModel
from paceline_training.target import Target, permute_rows
from torch_answers import FINGERPRINT, random_texts, write_shard
from training_run import TrainingRuns, quiet


class Training(TrainingRuns):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.every_token = cls.folder / "all.txt"
        cls.every_token.write_text("\n".join(map(str, range(512))))

    def train(self, step, run, *more, steps=12):
        return self.succeeds(self.arguments(step, run, "--steps", steps, *more))

    def test_a_draft_of_all_layers_is_the_target_and_its_file_too(self):
        out = self.train("draft", "whole", "--from-layers", "0,1", "--token-list",
                         self.every_token, "--rate", 0, steps=1)
        self.assertIn("| all |", out)
        row = self.card("whole")["heldout"]["all"]
        self.assertGreater(row["top1"], 0.99)
        self.assertGreater(row["acceptance_length"], 7)

        tensors, metadata = self.export("whole", "draft.safetensors", "--type", "f32")
        self.assertEqual(
            {key: metadata[key] for key in ("paceline.format", "paceline.part", "paceline.target",
                                            "layers", "kv_heads", "head_dim", "ffn_dim")},
            {"paceline.format": "parts-1", "paceline.part": "draft",
             "paceline.target": FINGERPRINT, "layers": "2", "kv_heads": "2", "head_dim": "16",
             "ffn_dim": "96"})
        stored = {t.name: t for t in gguf.GGUFReader(self.model).tensors}
        for ours, theirs in (("q", "attn_q"), ("k", "attn_k"), ("down", "ffn_down")):
            tensor = stored[f"blk.1.{theirs}.weight"]
            np.testing.assert_array_equal(tensors[f"layers.1.{ours}"],
                                          gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        np.testing.assert_array_equal(tensors["tokens"], np.arange(512))

    def test_a_deeper_draft_begins_with_the_guesses_of_the_one_it_starts_from(self):
        self.train("draft", "shallow", "--from-layers", "0", "--transform", "--rate", 3e-3)
        args = ["draft", "deeper", "--from-layers", "0,1", "--transform"]
        self.train(*args, "--start-from", self.folder / "shallow", "--rate", 0, steps=1)
        before, begun = (self.card(run)["heldout"]["all"] for run in ("shallow", "deeper"))
        self.assertEqual(begun, before)
        self.train("draft", "grown", *args[2:], "--start-from", self.folder / "shallow", "--rate", 3e-3)
        new = torch.load(self.folder / "grown" / "checkpoint.pt", weights_only=True)["module"]
        self.assertGreater(new["layers.1.down"].abs().max().item(), 0)

        for run, says in (("nowhere", "no checkpoint.pt"), ("deeper", "with more layers")):
            code, _, err = quiet([
                "draft", "-m", self.model, "--answers", self.folder / "train", "-o",
                self.folder / f"from-{run}", "--from-layers", "0", "--transform", "--steps", 1,
                "--dtype", "f32", "-t", 1, "--start-from", self.folder / run])
            self.assertNotEqual(code, 0)
            self.assertIn(f"--start-from {self.folder / run}", err)
            self.assertIn(says, err)

    def test_quantised_drafts_are_blocks_that_come_back_close(self):
        self.train("draft", "one", "--from-layers", "1", "--feature-loss", 0.5)
        exact, _ = self.export("one", "f32.safetensors", "--type", "f32")
        for kind, width, bound in (("q8_0", 68, 0.01), ("q4_1", 40, 0.09)):
            tensors, metadata = self.export("one", "x.safetensors", "--type", kind)
            self.assertEqual(tensors["layers.0.up"].shape, (96, width))
            self.assertEqual(metadata["type.layers.0.up"], kind.upper())
            back = gguf.quants.dequantize(tensors["layers.0.up"], export.QUANTISED[kind])
            error = np.linalg.norm(back - exact["layers.0.up"])
            self.assertLess(error / np.linalg.norm(back), bound)
            plain = gguf.quants.quantize(exact["layers.0.up"], export.QUANTISED[kind])
            plain = gguf.quants.dequantize(plain, export.QUANTISED[kind])
            self.assertLessEqual(error, np.linalg.norm(plain - exact["layers.0.up"]) * 1.0001)

    def test_heads_learn_and_runs_join_in_one_file(self):
        self.train("heads", "exits", "--exits", "1", "--rate", 3e-3, steps=40)
        self.train("heads", "ahead", "--ahead", "1,2", "--token-list",
                   self.folder / "exits" / "tokens.txt")
        losses = plot.read_losses(self.folder / "exits")["exit_1.kl"][:, 3]
        self.assertLess(losses[-1], losses[0] * 0.9)
        rows = self.card("ahead")["heldout"]
        # Behind each answer's end there is nothing to look ahead to.
        self.assertEqual(rows["ahead_1"]["positions"] - rows["ahead_2"]["positions"], 12)
        tensors, metadata = self.export("exits", "heads.safetensors", "--run",
                                        self.folder / "ahead")
        self.assertEqual(set(tensors), {"tokens", "exit.1.transform", "ahead.1.transform",
                                        "ahead.2.transform"})
        self.assertEqual((metadata["exit.1"], metadata["norm_first"]), ("1", "0"))

    def test_an_adapter_learns_and_is_written_in_the_files_order(self):
        self.train("adapter", "adapter", "--exits", "1", "--rate", 0, steps=1)
        tensors, metadata = self.export("adapter", "adapter.safetensors", "--type", "f32")
        target = Target(self.model)
        q = torch.from_numpy(tensors["adapter.1.q"])
        torch.testing.assert_close(permute_rows(q, 4, 16), target.layer(1)["q"])
        self.assertEqual((metadata["kv_heads"], tensors["adapter.1.k"].shape), ("4", (64, 64)))
        self.train("adapter", "learnt", "--exits", "1", "--start", "random", "--rate", 3e-3,
                   steps=40)
        losses = plot.read_losses(self.folder / "learnt")["adapter_1.kl"][:, 3]
        self.assertLess(losses[-1], losses[0] * 0.9)

    def test_a_run_goes_on_and_ends_with_its_budget(self):
        self.train("draft", "again", "--from-layers", "0", steps=10)
        half = torch.load(self.folder / "again" / "checkpoint.pt")
        out = self.train("draft", "again", "--from-layers", "0", steps=20)
        whole = torch.load(self.folder / "again" / "checkpoint.pt")
        self.assertEqual((half["step"], whole["step"]), (10, 20))
        self.assertGreater(whole["tokens"], half["tokens"])
        self.assertIn("| all |", out)
        steps = [int(line.split("\t")[0]) for line in
                 (self.folder / "again" / "losses.tsv").read_text().splitlines()[1:]]
        self.assertEqual(steps, sorted(steps))
        self.succeeds(["plot", self.folder / "again", "-o", self.folder / "curves.svg"])
        self.assertIn("<svg", (self.folder / "curves.svg").read_text())

    def test_a_features_draft_is_judged_by_chains_of_its_own_states(self):
        self.train("draft", "features", "--from-layers", "1", "--features", "--rollouts", 8)
        row = self.card("features")["heldout"]["all"]
        self.assertGreaterEqual(row["acceptance_length"], 1)
        err = self.refused("export", "--run", self.folder / "features", "-o",
                           self.folder / "no.safetensors")
        self.assertIn("--features", err)

    def test_answers_of_another_target_are_refused(self):
        other = self.folder / "other"
        write_shard(other, Target(self.model), random_texts(Target(self.model), 4, 5), 8, 8)
        path = other / "shard-00000.safetensors"
        path.write_bytes(path.read_bytes().replace(FINGERPRINT.encode(), b"f" * 16))
        err = self.refused("draft", "-m", self.model, "--answers", self.folder / "train",
                           "--heldout", other, "-o", self.folder / "bad", "--steps", 1, "--tokens",
                           400)
        self.assertIn("f" * 16, err)

    def test_the_rate_rises_and_falls(self):
        rates = [rate_at(p, 1.0, 0.1) for p in (0, 0.05, 0.1, 0.55, 1, 2)]
        np.testing.assert_allclose(rates, [0.01, 0.5, 1.0, 0.51, 0.02, 0.02])

    def test_bfloat16_is_close_to_float32(self):
        target = Target(self.model)
        model = DraftModel(target.shape, [target.layer(0)], target.output_norm)
        tokens = torch.randint(0, 512, (2, 64), generator=torch.Generator().manual_seed(4))
        outs = []
        for kind in (torch.float32, torch.bfloat16):
            context = Context(target.shape, torch.arange(64).expand(2, -1),
                              torch.ones_like(tokens), kind)
            outs.append(model(target.embedding()[tokens].to(kind), context).float())
        error = (outs[0] - outs[1]).norm() / outs[0].norm()
        self.assertLess(error.item(), 0.02)

    def test_every_step_has_its_own_help(self):
        for module in (draft, heads, adapter, export, plot):
            name = module.__name__.rsplit(".", 1)[1]
            with self.assertRaises(SystemExit) as stopped:
                quiet([name, "--help"])
            self.assertEqual(stopped.exception.code, 0)


if __name__ == "__main__":
    unittest.main()
