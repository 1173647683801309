"""Training through the rounding of a file: what is trained is what the file says."""

import unittest

import gguf
import numpy as np
import torch

from paceline_training.export import quantised
from paceline_training.rounding import ROUNDED, rounded

TYPES = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_1": gguf.GGMLQuantizationType.Q4_1}


class Rounding(unittest.TestCase):
    def test_the_file_holds_exactly_the_numbers_that_were_trained(self):
        torch.manual_seed(1)
        matrix = torch.randn(64, 96) * torch.logspace(-2, 1, 64)[:, None]
        for kind, stored_type in TYPES.items():
            trained = ROUNDED[kind](matrix)
            stored = quantised(trained.numpy(), kind)
            back = gguf.quants.dequantize(stored, stored_type)
            largest = np.abs(trained.numpy()).max(1, keepdims=True)
            self.assertLess((np.abs(back - trained.numpy()) / largest).max(), 1e-3, kind)
            self.assertGreater((matrix - trained).abs().max().item(), 0, kind)

    def test_a_matrix_is_rounded_inside_and_exact_again_behind_even_after_an_error(self):
        module = torch.nn.Linear(64, 8)
        exact = module.weight.detach().clone()
        with self.assertRaises(RuntimeError):
            with rounded(module, "q4_1"):
                self.assertFalse(torch.equal(module.weight, exact))
                raise RuntimeError
        self.assertTrue(torch.equal(module.weight, exact))

    def test_a_layer_trained_through_rounding_is_better_in_four_bits_than_one_rounded_after(self):
        torch.manual_seed(2)
        inputs = torch.randn(512, 6) @ torch.randn(6, 64) + 0.1 * torch.randn(512, 64)
        wanted = inputs @ torch.randn(16, 64).T

        def error_in_four_bits(kind):
            torch.manual_seed(3)
            module = torch.nn.Linear(64, 16, bias=False)
            optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
            for step in range(600):
                for group in optimizer.param_groups:
                    group["lr"] = 1e-2 * (1 - step / 600)
                with rounded(module, kind):
                    loss = (module(inputs) - wanted).square().mean()
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            with torch.no_grad(), rounded(module, "q4_1"):
                return (module(inputs) - wanted).square().mean().item()

        self.assertLess(error_in_four_bits("q4_1"), 0.9 * error_in_four_bits("none"))

    def test_rows_that_are_no_whole_blocks_are_refused_by_number(self):
        with self.assertRaisesRegex(ValueError, "33 inputs"):
            with rounded(torch.nn.Linear(33, 4), "q8_0"):
                pass


if __name__ == "__main__":
    unittest.main()
