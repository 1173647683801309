"""The trained parts compute what the target computes, and their gradients are autograd's."""

import json
import math
import unittest

import numpy as np
import torch

from paceline_training import kernels
from paceline_training.losses import Figures, ShortList, VerifyBatches, distil, judge
from paceline_training.modules import Context, THead
from paceline_training.target import Target, permute_rows, unpermute_rows
from torch_answers import MODELS, whole

torch.set_num_threads(1)


class TheTarget(unittest.TestCase):
    def test_all_its_layers_together_give_its_golden_logits(self):
        # Own head, one KV head, an explicit head_dim, divided frequencies, 4-bit weights.
        for name in ("llama-untied-f16", "mistral-q8_0", "llama3-bf16", "llama-q4_1"):
            with self.subTest(name), torch.no_grad():
                target = Target(MODELS / f"{name}.gguf")
                golden = json.loads((MODELS / f"{name}.golden.json").read_text())
                wanted = np.fromfile(MODELS / f"{name}.golden.f32", "<f4")
                tokens = torch.tensor([golden["tokens"]])
                context = Context(target.shape, torch.arange(tokens.shape[1])[None],
                                  torch.ones_like(tokens), torch.float32)
                model = whole(target)
                last = model.output_norm(model(target.embedding()[tokens], context))[0]
                logits = last @ target.head(np.arange(target.vocab_size)).T
                np.testing.assert_allclose(logits.numpy().ravel(), wanted, atol=2e-4)

    def test_rows_of_halves_go_back_to_the_order_of_the_file(self):
        matrix = torch.arange(3 * 10 * 2).reshape(30, 2)
        halves = permute_rows(matrix, 3, 8)  # the last two rows of a head do not rotate
        self.assertEqual(halves[:10, 0].div(2).tolist(), [0, 2, 4, 6, 1, 3, 5, 7, 8, 9])
        self.assertTrue(torch.equal(unpermute_rows(halves, 3, 8), matrix))

    def test_another_architecture_and_a_scaled_rope_are_refused_by_name(self):
        for name, said in (("qwen2-f16", "qwen2"), ("llama-yarn-f16", "yarn")):
            with self.assertRaisesRegex(ValueError, f"{name}.*'{said}'"):
                Target(MODELS / f"{name}.gguf")


def plain_attention(qkv, cos, sin, mask, heads, kv_heads):
    batch, length, _ = qkv.shape
    qkv = qkv.view(batch, length, heads + 2 * kv_heads, -1)
    turned, half = qkv[:, :, :heads + kv_heads], cos.shape[-1]
    a, b, rest = turned[..., :half], turned[..., half:2 * half], turned[..., 2 * half:]
    turned = torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1).transpose(1, 2)
    keys = turned[:, heads:].repeat_interleave(heads // kv_heads, 1)
    values = qkv[:, :, heads + kv_heads:].transpose(1, 2).repeat_interleave(heads // kv_heads, 1)
    scores = turned[:, :heads] @ keys.transpose(2, 3) / math.sqrt(qkv.shape[-1]) + mask
    return (scores.softmax(-1) @ values).transpose(1, 2).reshape(batch, length, -1)


def plain_rms_norm(x, weight, epsilon):
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight


class HandMadeGradients(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def same(self, one, other, *inputs):
        """Value and gradients of both for the same inputs, along a random direction."""
        results = []
        for function in (one, other):
            for x in inputs:
                x.grad = None
            out = function(*inputs)
            torch.manual_seed(2)
            (out * torch.randn(out.shape)).sum().backward()
            results.append([out.detach(), *(x.grad.clone() for x in inputs)])
        for a, b in zip(*results):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

    def test_attention_keeps_answers_apart_across_blocks(self):
        length = kernels.BLOCK + 40
        for heads, kv_heads in ((6, 2), (4, 4), (3, 1)):
            qkv = torch.randn(2, length, (heads + 2 * kv_heads) * 16, requires_grad=True)
            positions = torch.arange(length).expand(2, -1)
            segments = torch.stack([(positions[0] >= 70).long() + 1, (positions[0] < 99).long()])
            seen = (segments[:, :, None] == segments[:, None]) & torch.ones(
                length, length, dtype=torch.bool).tril()
            mask = torch.zeros(2, 1, length, length).masked_fill(~seen[:, None], -math.inf)
            angles = torch.rand(2, length, 1, 6)  # 12 of 16 dimensions rotate
            fixed = (angles.cos(), angles.sin(), mask, heads, kv_heads)
            self.same(lambda x: kernels.attention(x, *fixed), lambda x: plain_attention(x, *fixed),
                      qkv)

    def test_norm_and_gate(self):
        x = torch.randn(2, 5, 24, requires_grad=True)
        weight = torch.rand(24, requires_grad=True)
        self.same(lambda a, w: kernels.rms_norm(a, w, 1e-5),
                  lambda a, w: plain_rms_norm(a, w, 1e-5), x, weight)
        self.same(kernels.swiglu, lambda a: torch.nn.functional.silu(a[..., :12]) * a[..., 12:], x)


def plain_distil(x, head, ids, mass, rest):
    """Row by row, as the docstring of losses.py says it."""
    total = torch.zeros(())
    for row, places, p in zip(x, ids, mass):
        q = (head @ row).softmax(-1)
        good = places >= 0
        places, p = places[good], p[good]
        known = p.sum()
        if rest == "bucket":
            left = 1 - known
            total = total + (p * (p / q[places]).log()).sum()
            total = total + torch.xlogy(left, left / (1 - q[places].sum()))
        elif known > 0:
            total = total + (p * (p / known / q[places]).log()).sum()
    return total


class Losses(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.short = ShortList(np.array([1, 3, 4, 7, 8, 9, 12, 13, 17]), 20)
        self.top_ids = torch.stack([torch.randperm(20)[:4] for _ in range(40)])
        self.top_ids[5] = torch.tensor([0, 2, 5, 6])  # nothing that the list has
        self.top_ids[6, 2:] = -1
        self.logprob = torch.rand(40, 5).log_softmax(-1)[:, :4].half()
        self.ids, self.mass = self.short.targets(self.top_ids, self.logprob)

    def test_targets_are_places_on_the_list(self):
        for row, places, mass in zip(self.top_ids, self.ids, self.mass):
            for token, place, p in zip(row.tolist(), places.tolist(), mass.tolist()):
                listed = token in self.short.tokens
                self.assertEqual(place >= 0, listed)
                self.assertEqual(p > 0, listed)
                if listed:
                    self.assertEqual(self.short.tokens[place], token)

    def test_a_list_that_does_not_ascend_is_refused(self):
        for bad in ([], [3, 3], [4, 2], [-1, 2], [5, 20]):
            with self.assertRaisesRegex(ValueError, "short list"):
                ShortList(np.array(bad, np.int32), 20)

    def test_distil_and_its_gradients_are_those_of_the_plain_sum(self):
        for rest in ("drop", "bucket"):
            with self.subTest(rest):
                x = torch.randn(40, 6, requires_grad=True)
                head = torch.randn(9, 6, requires_grad=True)
                loss, hits = distil(x, head, self.ids, self.mass, rest)
                loss.backward()
                found = [loss.detach(), x.grad.clone(), head.grad.clone()]
                x.grad = head.grad = None
                wanted = plain_distil(x, head, self.ids, self.mass, rest)
                wanted.backward()
                for a, b in zip(found, [wanted.detach(), x.grad, head.grad]):
                    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
                first = (x @ head.T).argmax(-1) == self.ids[:, 0]
                self.assertEqual(int(hits), int(first.sum()))

    def test_judge_counts_first_and_first_four(self):
        head = torch.eye(9)
        x = torch.zeros(3, 9)
        x[:, :5] = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
        found = judge(x, head, torch.tensor([[0], [3], [4]]))
        self.assertEqual(found["top1"].tolist(), [True, False, False])
        self.assertEqual(found["top4"].tolist(), [True, True, False])
        wanted = x[0].softmax(-1).max().item()
        self.assertAlmostEqual(found["confidence"][0].item(), wanted, places=5)

    def test_figures_are_shares_of_all_rows_and_of_each_source(self):
        figures = Figures()
        judged = {"top1": torch.tensor([True, False, True]),
                  "top4": torch.tensor([True, True, True]),
                  "confidence": torch.tensor([0.9, 0.8, 0.1])}
        figures.add("exit", judged, torch.tensor([0, 1, 1]), ["maths", "code"])
        rows = figures.rows()
        self.assertAlmostEqual(rows["exit"]["top1"], 2 / 3)
        self.assertAlmostEqual(rows["exit"]["right_if_confident"], 1 / 2)
        self.assertEqual(rows["exit maths"]["positions"], 1)
        self.assertAlmostEqual(rows["exit code"]["confident"], 1 / 2)

    def test_batches_begin_behind_what_the_last_one_committed(self):
        verified = VerifyBatches(chain=3)
        #                    batch: 2 right  | none | 3 right, cap   | 1 right, end of the answer
        verified.add(np.array([1, 1, 0,        0,     1, 1, 1, 1,      1], bool))
        self.assertEqual((verified.batches, verified.committed), (4, 9))
        self.assertEqual(verified.accepted.tolist(), [3, 2, 1])
        self.assertAlmostEqual(verified.figures()["acceptance_length"], 9 / 4)


class Heads(unittest.TestCase):
    def test_a_new_t_head_is_the_logit_lens_for_either_place_of_the_norm(self):
        hidden, norm = torch.randn(4, 8), torch.rand(8)
        lens = plain_rms_norm(hidden, norm, 1e-5)
        for norm_first in (False, True):
            torch.testing.assert_close(THead(norm, 1e-5, norm_first)(hidden).detach(), lens)


if __name__ == "__main__":
    unittest.main()
