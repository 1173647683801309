"""Training through the rounding of the file: weights that are good once they are 4 or 8 bits.

Inside rounded() the matrices hold what a part file of that type can say, so losses, gradients and
figures are those of the file; behind it they hold the exact numbers again, which the optimiser
moves by these gradients (the straight-through estimate). A block is 32 inputs of a row.
"""

import contextlib

import torch

BLOCK = 32


def rounded_q8_0(matrix: torch.Tensor) -> torch.Tensor:
    blocks = matrix.view(-1, BLOCK)
    scale = (blocks.abs().amax(1, keepdim=True) / 127).half().float()
    return ((blocks / scale.clamp_min(1e-12)).round().clamp(-127, 127) * scale).view_as(matrix)


def rounded_q4_1(matrix: torch.Tensor) -> torch.Tensor:
    """From a block's smallest value to its largest in 15 steps."""
    blocks = matrix.view(-1, BLOCK)
    low, high = blocks.aminmax(dim=1, keepdim=True)
    step = ((high - low) / 15).half().float()
    low = low.half().float()
    numbers = ((blocks - low) / step.clamp_min(1e-12)).round().clamp(0, 15)
    return torch.addcmul(low, numbers, step).view_as(matrix)


ROUNDED = {"q8_0": rounded_q8_0, "q4_1": rounded_q4_1}


@contextlib.contextmanager
def rounded(module: torch.nn.Module, kind: str):
    """`kind`: a key of ROUNDED, or "none" for nothing at all."""
    if kind == "none":
        yield
        return
    matrices = [p for name, p in module.named_parameters()
                if p.dim() == 2 and not name.endswith("transform")]  # those stay float16
    exact = [p.data for p in matrices]
    for parameter in matrices:
        if parameter.shape[1] % BLOCK:
            raise ValueError(f"--quantise {kind}: {parameter.shape[1]} inputs are no multiple of "
                             f"{BLOCK}")
        parameter.data = ROUNDED[kind](parameter.data)
    try:
        yield
    finally:
        for parameter, data in zip(matrices, exact):
            parameter.data = data
