"""Medusa's look-ahead heads: the block, the fixed tree, the part file, and runs that are resumed."""

import itertools
import math
import unittest
from unittest import mock

import gguf
import numpy as np
import torch

from paceline_training import loop, plot
from paceline_training.ahead_tree import RANKS, RankCounts, expected_tokens, greedy_tree, tree_text
from paceline_training.modules import ResidualHead, THead
from training_run import TrainingRuns, quiet


class Trees(unittest.TestCase):
    def test_the_greedy_tree_has_the_most_probable_nodes_by_enumeration(self):
        random = np.random.default_rng(5)
        for heads, nodes in ((1, 3), (2, 12), (3, 30), (5, 63)):
            shares = [sorted(random.dirichlet(np.ones(5)) * 0.9, reverse=True)
                      for _ in range(heads)]
            every = {path: math.prod(shares[depth][rank] for depth, rank in enumerate(path))
                     for length in range(1, heads + 1)
                     for path in itertools.product(range(5), repeat=length)}
            best = sorted(every, key=lambda path: (-every[path], len(path), path))[:nodes]
            tree = greedy_tree(shares, nodes)
            self.assertEqual(tree, best)
            self.assertAlmostEqual(expected_tokens(shares, tree), sum(every[p] for p in best))
            for index, path in enumerate(tree):
                self.assertTrue(len(path) == 1 or path[:-1] in tree[:index], path)

    def test_what_was_never_right_has_no_node_but_there_is_one(self):
        self.assertEqual(greedy_tree([[0.5, 0.0], [0.0, 0.0]]), [(0,)])
        self.assertEqual(greedy_tree([[0.0], [0.9]]), [(0,)])
        self.assertEqual(greedy_tree([[0.1, 0.6]]), [(1,), (0,)])
        self.assertEqual(tree_text([(0,), (1,), (0, 12)]), "0 1 0.12")

    def test_ranks_are_counted_over_all_rows_those_off_the_list_too(self):
        head = torch.eye(4)
        counts = RankCounts()
        rows = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0],
                             [1.0, 4.0, 3.0, 2.0]])
        counts.add(rows[:3], head, torch.tensor([0, 2, -1]))
        counts.add(rows[3:], head, torch.tensor([0]))
        self.assertEqual(counts.shares(), [0.25, 0.25, 0.0, 0.25] + [0.0] * (RANKS - 4))


class Blocks(unittest.TestCase):
    def test_a_new_residual_head_is_the_targets_own_and_learns_from_there(self):
        random = torch.Generator().manual_seed(2)
        norm, hidden = torch.rand(32, generator=random), torch.randn(5, 32, generator=random)
        head = ResidualHead(norm, 1e-5)
        lens = THead(norm, 1e-5, False)(hidden).detach()
        torch.testing.assert_close(head(hidden).detach(), lens)
        head(hidden).square().sum().backward()
        self.assertGreater(head.transform.grad.abs().max().item(), 0)
        with torch.no_grad():
            head.transform.copy_(torch.randn(32, 32, generator=random))
            turned = lens.double() @ head.transform.double().T
            wanted = lens.double() + turned / (1 + (-turned).exp())
            torch.testing.assert_close(head(hidden).double(), wanted, atol=1e-4, rtol=1e-4)


class Runs(TrainingRuns):
    def arguments_of(self, run, *more, steps=12):
        return self.arguments("heads", run, "--ahead", "1,2,3", "--residual", "--rate", 3e-3,
                              "--steps", steps, *more)

    def test_residual_heads_learn_and_their_file_says_block_and_tree(self):
        self.succeeds(self.arguments_of("medusa", steps=40))
        losses = plot.read_losses(self.folder / "medusa")["ahead_1.kl"][:, 3]
        self.assertLess(losses[-1], losses[0] * 0.95)
        tensors, metadata = self.export("medusa", "medusa.safetensors")
        self.assertEqual(set(tensors), {"tokens", *(f"ahead.{j}.transform" for j in (1, 2, 3))})
        self.assertEqual((metadata["ahead_block"], metadata["norm_first"]), ("residual", "1"))
        paths = [tuple(map(int, path.split("."))) for path in metadata["ahead_tree"].split(" ")]
        self.assertTrue(1 <= len(paths) <= 63)
        self.assertEqual(len(set(paths)), len(paths))
        self.assertLessEqual(max(map(len, paths)), 3)
        for index, path in enumerate(paths):
            self.assertTrue(len(path) == 1 or path[:-1] in paths[:index], path)
        # Q8_0, unless it is said otherwise.
        self.assertEqual(metadata["type.ahead.1.transform"], "Q8_0")
        trained = torch.load(self.folder / "medusa" / "checkpoint.pt", weights_only=True)["module"]
        exact = trained["ahead_1.transform"].numpy()
        back = gguf.quants.dequantize(tensors["ahead.1.transform"],
                                      gguf.GGMLQuantizationType.Q8_0)
        self.assertGreater(np.linalg.norm(exact), 0)
        self.assertLess(np.linalg.norm(back - exact) / np.linalg.norm(exact), 0.01)

    def interrupted(self, run, at):
        """A run that gets a signal in its step `at`."""
        update, steps = loop.Run.update, 0

        def interrupt(self_, batch):
            nonlocal steps
            steps += 1
            if steps > at:
                raise KeyboardInterrupt
            return update(self_, batch)

        with mock.patch.object(loop.Run, "update", interrupt):
            code, _, _ = quiet(self.arguments_of(run))
        self.assertEqual(code, 130)

    def checkpoint(self, run) -> dict:
        return torch.load(self.folder / run / "checkpoint.pt", weights_only=True)

    def test_a_resumed_run_ends_with_the_weights_of_one_that_was_not_interrupted(self):
        self.succeeds(self.arguments_of("whole"))
        whole = self.checkpoint("whole")
        # In the first pass, and in a later one.
        for at in (2, 9):
            run = f"resumed-{at}"
            self.interrupted(run, at)
            self.assertEqual(self.checkpoint(run)["step"], at)
            err = self.refused("export", "--run", self.folder / run, "-o",
                               self.folder / "no.safetensors")
            self.assertIn("no ahead_tree.json", err)
            self.succeeds(self.arguments_of(run, "--resume"))
            resumed = self.checkpoint(run)
            self.assertEqual((resumed["step"], resumed["tokens"], resumed["passes"]),
                             (whole["step"], whole["tokens"], whole["passes"]))
            for name, weights in whole["module"].items():
                self.assertTrue(torch.equal(weights, resumed["module"][name]), name)
        # A new pass has another order.
        self.interrupted("again", 2)
        self.succeeds(self.arguments_of("again"))
        self.assertFalse(all(torch.equal(weights, self.checkpoint("again")["module"][name])
                             for name, weights in whole["module"].items()))

    def test_a_run_is_not_resumed_with_other_answers(self):
        self.interrupted("other", 3)
        err = self.refused(*self.arguments_of("other", "--resume", "--limit-tokens", 300))
        self.assertIn("--resume with", err)

    def test_exit_heads_have_no_residual_block(self):
        err = self.refused(*self.arguments_of("exits", "--exits", "1"))
        self.assertIn("--residual is for look-ahead heads", err)


if __name__ == "__main__":
    unittest.main()
