"""Low-rank updates of a target: layers, loss, a run, its part file; and the probes of early tokens."""

import tempfile
import unittest
from pathlib import Path

import gguf
import numpy as np
import torch
from torch.nn import functional

from paceline_training import early_exit, plot, probe
from paceline_training.lora import LoraMatrix, LoraTarget
from paceline_training.losses import distil
from paceline_training.modules import Context
from paceline_training.target import Target, permute_rows
from torch_answers import FINGERPRINT, make_answers, residuals
from training_run import TrainingRuns

VOCAB = 512


def one_text(length):
    positions = torch.arange(length)[None]
    return positions, torch.ones_like(positions)


class Layers(unittest.TestCase):
    def test_gradients_are_those_of_the_merged_matrix(self):
        torch.manual_seed(3)
        matrix = LoraMatrix([torch.randn(6, 8), torch.randn(4, 8)], rank=2, alpha=6.0)
        for b in matrix.b:
            torch.nn.init.normal_(b)
        matrix.merge(torch.float32)
        x, wanted = torch.randn(2, 5, 8, requires_grad=True), torch.randn(2, 5, 10)
        inputs = [x, matrix.a, *matrix.b]
        found = torch.autograd.grad((matrix(x) * wanted).sum(), inputs)
        updates = torch.cat([b @ a for a, b in matrix.updates()])
        plain = functional.linear(x, matrix.base + 3.0 * updates)
        torch.testing.assert_close(matrix(x), plain)
        for ours, theirs in zip(found, torch.autograd.grad((plain * wanted).sum(), inputs)):
            torch.testing.assert_close(ours, theirs)

    def test_without_updates_the_walk_is_the_target(self):
        with tempfile.TemporaryDirectory() as folder:
            target = Target(make_answers(Path(folder), answers=1))
            text = torch.randint(0, VOCAB, (20,), generator=torch.Generator().manual_seed(5))
            wanted = residuals(target, text)
            model = LoraTarget(target, {0: 4, 1: 4}, 8.0)
            context = Context(target.shape, *one_text(20), torch.float32)
            with torch.no_grad():
                for depth, x in model.walk(text[None], context):
                    torch.testing.assert_close(x[0], wanted[depth])
                skipped = dict(model.walk(text[None], context, skipped={0}))
            torch.testing.assert_close(skipped[1][0], wanted[0])

    def test_later_layers_are_dropped_more_often(self):
        chances = early_exit.dropout_chances(30, 0.1)
        self.assertEqual((chances[0], round(chances[29], 9)), (0.0, 0.1))
        self.assertEqual(chances, sorted(chances))
        self.assertAlmostEqual(chances[15], 0.1 * (2 ** (15 / 29) - 1))


class StepHeads(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.head = torch.randn(200, 16)
        self.ids = torch.randint(0, 200, (9, 3))
        self.mass = torch.tensor([0.5, 0.3, 0.1]).expand(9, 3)
        self.x = torch.randn(9, 16)

    def test_a_steps_softmax_has_all_targets_and_the_short_list(self):
        self.ids[2, 1] = -1
        made = early_exit.HeadSampler(self.head, np.arange(20), 30).draw(self.ids)
        known = self.ids >= 0
        torch.testing.assert_close(made.head[made.ids[known]], self.head[self.ids[known]])
        self.assertEqual(made.ids[2, 1].item(), -1)
        always = len(set(range(20)) | set(self.ids[known].tolist()))
        self.assertEqual(len(made.head), always + 30)
        torch.testing.assert_close(made.bias[:always], torch.zeros(always))
        torch.testing.assert_close(made.bias[always:].exp(), torch.full((30,), (200 - always) / 30))

    def test_with_every_token_drawn_it_is_the_whole_softmax(self):
        made = early_exit.HeadSampler(self.head, np.arange(20), 500).draw(self.ids)
        whole, hits = distil(self.x, self.head, self.ids, self.mass)
        drawn, same = distil(self.x, made.head, made.ids, self.mass, bias=made.bias)
        torch.testing.assert_close(drawn, whole)
        self.assertEqual(hits, same)

    def test_the_drawn_tokens_stand_for_those_left_out(self):
        whole, _ = distil(self.x, self.head * 0.2, self.ids, self.mass)
        sampler = early_exit.HeadSampler(self.head * 0.2, np.arange(20), 60)
        drawn = []
        for _ in range(200):
            made = sampler.draw(self.ids)
            drawn.append(distil(self.x, made.head, made.ids, self.mass, bias=made.bias)[0].item())
        self.assertAlmostEqual(np.mean(drawn), whole.item(), delta=0.01 * whole.item())


class Runs(TrainingRuns):
    def train(self, run, *more, steps=40):
        self.succeeds(self.arguments(
            "early-exit", run, "--exit", 1, "--others", "", "--rank", 4, "--alpha", 8, "--steps",
            steps, *more))
        return self.card(run)["heldout"]

    def test_a_target_without_training_is_the_plain_one(self):
        figures = self.train("still", "--rate", 0, steps=1)
        self.assertAlmostEqual(figures["final"]["kl_from_plain"], 0, places=5)
        self.assertEqual(figures["final"]["agrees_with_plain"], 1)
        self.assertEqual(figures["final"]["perplexity"], figures["final"]["plain_perplexity"])
        self.assertEqual(figures["exit_1"]["top1"], figures["exit_1"]["plain_lens_top1"])

    def test_the_exit_learns_and_the_last_layers_loss_keeps_the_text(self):
        kept = self.train("kept", "--rate", 5e-3, "--layer-dropout", 0.05, steps=60)
        losses = plot.read_losses(self.folder / "kept")["exit_1.kl"][:, 3]
        self.assertLess(losses[-1], losses[0] * 0.9)
        free = self.train("free", "--rate", 5e-3, "--layer-dropout", 0.05, "--final-weight", 0,
                          steps=60)
        self.assertLess(kept["final"]["kl_from_plain"], 0.5 * free["final"]["kl_from_plain"])
        self.assertGreater(kept["final"]["agrees_with_plain"], free["final"]["agrees_with_plain"])

    def test_the_file_added_to_the_targets_tensors_is_what_was_trained(self):
        self.train("stored", "--rate", 1e-2, steps=9)
        tensors, metadata = self.export("stored", "early-exit.safetensors", "--type", "f32")
        self.assertEqual(
            {key: metadata[key] for key in ("paceline.format", "paceline.part", "paceline.target",
                                            "rank", "alpha", "layers", "dim", "exit", "exits")},
            {"paceline.format": "parts-1", "paceline.part": "lora", "paceline.target": FINGERPRINT,
             "rank": "4", "alpha": "8", "layers": "2", "dim": "64", "exit": "1", "exits": "1"})
        self.assertEqual(len(tensors), 2 * 7 * 2)
        target = Target(self.model)
        model = LoraTarget(target, {0: 4, 1: 4}, 8.0)
        model.load_state_dict(torch.load(self.folder / "stored" / "checkpoint.pt")["module"])
        stored = {t.name: t for t in gguf.GGUFReader(self.model).tensors}

        def merged(layer, name):
            tensor = stored[f"blk.{layer}.{name}.weight"]
            a, b = (tensors[f"blk.{layer}.{name}.lora_{x}"] for x in "ab")
            return torch.from_numpy(
                gguf.quants.dequantize(tensor.data, tensor.tensor_type) + 8 / 4 * b @ a)

        for layer in range(2):
            q, k, v = (merged(layer, f"attn_{x}") for x in "qkv")
            of = {"qkv": torch.cat([permute_rows(q, 4, 16), permute_rows(k, 2, 16), v]),
                  "attn_out": merged(layer, "attn_output"), "down": merged(layer, "ffn_down"),
                  "gate_up": torch.cat([merged(layer, "ffn_gate"), merged(layer, "ffn_up")])}
            for name, wanted in of.items():
                matrix = model.layers[layer].matrices[name]
                self.assertGreater((matrix.exact() - matrix.base).abs().max().item(), 1e-4)
                torch.testing.assert_close(matrix.exact(), wanted)

        halves, _ = self.export("stored", "half.safetensors")
        self.assertEqual({str(t.dtype) for t in halves.values()}, {"float16"})
        err = self.refused("export", "--run", self.folder / "stored", "-o",
                           self.folder / "no.safetensors", "--type", "q8_0")
        self.assertIn("low-rank updates are stored in f16 or f32", err)

    def test_a_run_goes_on_and_exits_must_lie_before_the_last_layer(self):
        self.train("again", steps=3)
        self.train("again", steps=6)
        self.assertEqual(torch.load(self.folder / "again" / "checkpoint.pt")["step"], 6)
        err = self.refused(*self.arguments("early-exit", "bad", "--exit", 2, "--steps", 1))
        self.assertIn("exit layer 2: the target has 2 layers", err)

    def test_probes_are_fitted_for_lens_and_heads_and_written(self):
        self.train("lens", "--rate", 1e-2, steps=40)
        self.export("lens", "early-exit.safetensors")
        self.succeeds(self.arguments("heads", "exits", "--exits", 1, "--steps", 30, "--rate", 3e-3))
        self.export("exits", "heads.safetensors")
        out = self.succeeds(self.arguments(
            "probe", "probes", "--lora", self.folder / "lens", "--lora-part",
            self.folder / "early-exit.safetensors", "--lens-exits", 1, "--heads",
            self.folder / "heads.safetensors", "--head-exits", 1))
        figures = self.card("probes")["heldout"]
        names = [f"exit.1.{kind}.{mode}" for kind in ("lens", "head") for mode in probe.MODES]
        self.assertEqual(list(figures), names)
        self.assertIn("auc", out)
        tensors, metadata = self.export("probes", "probe.safetensors")
        self.assertEqual({name: t.shape for name, t in tensors.items()},
                         {f"{name}.v": (64,) for name in names} | {f"{name}.b": (1,)
                                                                   for name in names})
        self.assertEqual({str(t.dtype) for t in tensors.values()}, {"float32"})
        self.assertEqual(metadata["paceline.part"], "probe")
        self.assertEqual(metadata["lora"], probe.digest(self.folder / "early-exit.safetensors"))
        self.assertEqual(metadata["heads"], probe.digest(self.folder / "heads.safetensors"))
        self.succeeds(["card", "--parts", self.folder, "--run", self.folder / "lens"])

    def test_a_probe_says_what_it_lacks(self):
        for more, says in (([], "nothing to fit"), (["--lens-exits", 1], "needs --lora RUN"),
                           (["--head-exits", 1], "needs --heads FILE")):
            self.assertIn(says, self.refused(*self.arguments("probe", "none", *more)))


class Probes(unittest.TestCase):
    def test_a_probe_finds_the_direction_that_decides(self):
        generator = torch.Generator().manual_seed(2)
        states = torch.randn(4000, 8, generator=generator)
        chances = torch.sigmoid(2 * states[:, 3] - 1)
        for labels in (chances, torch.bernoulli(chances, generator=generator)):
            v, b = probe.fit(states, labels, decay=0.0)
            self.assertAlmostEqual(v[3].item(), 2, delta=0.25)
            self.assertAlmostEqual(b.item(), -1, delta=0.2)
            self.assertLess(torch.cat([v[:3], v[4:]]).abs().max().item(), 0.2)

    def test_the_area_counts_pairs_in_the_right_order(self):
        random = np.random.default_rng(4)
        scores, labels = random.integers(0, 6, 40).astype(float), random.random(40)
        above = (scores[:, None] > scores[None]) + 0.5 * (scores[:, None] == scores[None])
        pairs = labels[:, None] * (1 - labels[None])
        self.assertAlmostEqual(probe.area(scores, labels), (above * pairs).sum() / pairs.sum())
        self.assertEqual(probe.area(np.array([1.0, 2.0]), np.array([0.0, 1.0])), 1.0)
        self.assertEqual(probe.area(np.array([1.0, 2.0]), np.array([1.0, 1.0])), 0.5)

    def test_labels_are_agreement_and_the_chance_of_acceptance(self):
        generator = torch.Generator().manual_seed(6)
        head = torch.randn(30, 8, generator=generator)
        early, final = (torch.randn(50, 8, generator=generator) for _ in range(2))
        same = probe.agreement(final, final, head)
        torch.testing.assert_close(same["sampled"], torch.ones(50))
        torch.testing.assert_close(same["greedy"], torch.ones(50))
        listed = torch.arange(10)
        found = probe.agreement(early, final, head, listed)
        p = torch.softmax(final @ head.T, -1)
        q = torch.softmax(early @ head[:10].T, -1)
        torch.testing.assert_close(found["sampled"], torch.minimum(p[:, :10], q).sum(-1))
        torch.testing.assert_close(found["greedy"], (q.argmax(-1) == p.argmax(-1)).float())


if __name__ == "__main__":
    unittest.main()
