"""What the papers on drafting without a second model report, as rows of self_speculation_accounting.py.

SWIFT: arXiv 2410.06916, tables 2, 4, 5, 8 and 10, fp16 on RTX A6000. CLaSp: tables 1 (temperature 0) and section 5.3, fp16 on
A800. AdaSPEED: table I. M is tokens per verification, alpha accepted tokens per draft step; where a paper has no
alpha, the one that is assumed is marked in `note`.
"""

from typing import NamedTuple


class Paper(NamedTuple):
    paper: str
    method: str
    model: str
    task: str
    shape: str       # configs/shapes
    card: str        # projections.CARDS
    skipped: int     # sub-layers that a draft step leaves out, half layers
    m: float
    alpha: float
    speedup: float   # over plain decoding
    source: str = "skip"  # or "exit": the last `skipped` sub-layers
    stops: bool = True    # a chain ends after a doubtful token; otherwise after `gamma`
    gamma: int = 25
    optimise: bool = False  # CLaSp's programme runs between drafts
    note: str = ""


def swift_skipped(layers, ratio):
    """SWIFT's code: the first and last layer are kept, the others' sub-layers skipped by ratio, rounded down."""
    return int(2 * (layers - 2) * ratio)


def swift(model, shape, layers, ratio, figures):
    for task, m, alpha, speedup in figures:
        yield Paper("SWIFT", "SWIFT", model, task, shape, "A6000", swift_skipped(layers, ratio), m, alpha, speedup)


SWIFT_TASKS = ("CNN/DM", "GSM8K", "TinyStories")
SWIFT = [
    *swift("LLaMA-2-13B", "llama2-13b", 40, 0.45,
           [("CNN/DM", 4.34, 0.99, 1.37), ("GSM8K", 3.13, 0.98, 1.31), ("TinyStories", 8.21, 1.00, 1.53)]),
    *swift("LLaMA-2-13B-Chat", "llama2-13b", 40, 0.45,
           [("CNN/DM", 3.54, 0.90, 1.28), ("GSM8K", 2.95, 0.92, 1.25), ("TinyStories", 7.42, 0.99, 1.50)]),
    *swift("CodeLLaMA-13B", "llama2-13b", 40, 0.45, [("HumanEval", 4.75, 0.98, 1.40)]),
    *swift("LLaMA-2-70B", "llama2-70b", 80, 0.5,
           [("CNN/DM", 3.85, 0.99, 1.43), ("GSM8K", 2.99, 0.98, 1.39), ("TinyStories", 6.17, 0.99, 1.62)]),
    *swift("LLaMA-2-70B-Chat", "llama2-70b", 80, 0.5,
           [("CNN/DM", 3.43, 0.85, 1.31), ("GSM8K", 3.12, 0.89, 1.32), ("TinyStories", 5.45, 0.95, 1.53)]),
    *swift("LLaMA-3-70B", "llama-70b", 80, 0.4,
           [("CNN/DM", 5.43, 0.99, 1.41), ("GSM8K", 4.11, 0.99, 1.37), ("TinyStories", 7.80, 0.99, 1.51)]),
]

# SWIFT's tables 8 and 10, LLaMA-2-13B on CNN/DM.
COMPARED = Paper("SWIFT", "SWIFT", "LLaMA-2-13B", "CNN/DM, tables 8 and 10", "llama2-13b", "A6000", 34, 5.82, 0.98, 1.56)
SWIFT_COMPARED = [
    COMPARED,
    COMPARED._replace(method="SWIFT without its tree", m=4.39, alpha=0.90, speedup=1.342),
    COMPARED._replace(method="SWIFT, uniform set", m=2.15, alpha=0.90, speedup=1.224),
    COMPARED._replace(method="SWIFT without its stop rule", m=11.16, alpha=0.43, speedup=0.896, stops=False, gamma=24,
                      note="the paper's own formula gives 0.80: its steps took 0.48 of a pass, with 34 of 80 "
                           "sub-layers left out"),
    COMPARED._replace(method="Self-SD", m=4.02, alpha=0.85, speedup=1.29),
    COMPARED._replace(method="Self-SD with SWIFT's tree", m=5.69, alpha=0.98, speedup=1.52),
    COMPARED._replace(method="LayerSkip", m=2.42, alpha=0.64, speedup=1.64, skipped=64, source="exit"),
]

# CLaSp gives tau, taken as M, and no alpha: 0.90 is that of a chain with a confidence stop (SWIFT's table 8,
# without the tree), 0.85 that of Self-SD (its table 10). Of Llama-3-70B 44 of 80 layers are skipped (section 5.3.1).
CLASP_TASKS = ("MT-bench", "WMT14", "CNN/DM", "NQ", "GSM8K", "DPR")


def clasp(method, model, shape, skipped, alpha, taus, speedups, **more):
    for task, m, speedup in zip(CLASP_TASKS, taus, speedups):
        yield Paper("CLaSp", method, model, task, shape, "A800", skipped, m, alpha, speedup, **more)


CLASP_8B = ((3.68, 4.14, 6.22, 4.03, 5.26, 4.17), (1.24, 1.23, 1.22, 1.27, 1.26, 1.22))
CLASP = [
    *clasp("CLaSp", "LLaMA-3-70B", "llama-70b", 88, 0.90, (4.55, 5.81, 7.19, 5.37, 6.77, 4.05),
           (1.64, 1.69, 1.66, 1.72, 1.75, 1.56), optimise=True, note="alpha assumed"),
    *clasp("Self-SD", "LLaMA-3-70B", "llama-70b", 84, 0.85, (2.57, 4.10, 5.46, 2.60, 3.10, 3.59),
           (1.38, 1.55, 1.57, 1.42, 1.49, 1.43), note="alpha assumed"),
    *clasp("CLaSp, half of the layers", "LLaMA-3-8B", "llama-8b", 32, 0.90, *CLASP_8B, optimise=True,
           note="alpha assumed; layers not stated for this model: the paper's times are those of steps that "
                "take 0.60 to 0.66 of a pass, not 0.54"),
    *clasp("CLaSp, 0.4 of the layers", "LLaMA-3-8B", "llama-8b", 26, 0.90, *CLASP_8B, optimise=True,
           note="alpha assumed; layers not stated for this model"),
]

PAPERS = [*SWIFT, *SWIFT_COMPARED, *CLASP]

# AdaSPEED: tokens/s over LayerSkip with a constant D that is not stated; neither are M and alpha. Greedy.
# (model, shape, layers, stop rule, speed-up over constant D)
ADASPEED = [
    ("LayerSkip-7B", "llama2-7b", 32, {"Draft & Verify": 1.12, "product": 1.18, "probe": 1.12}),
    ("LayerSkip-1B", "llama-1b", 16, {"Draft & Verify": 1.10, "product": 1.16, "probe": 1.10}),
]
ADASPEED_EXIT = 6
ADASPEED_PROBE_RELIABILITY = 0.75  # the accuracy of its probes, section III
