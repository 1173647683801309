"""What draft_sources.py runs, and what stands beside its figures: rows, parts, the papers' own figures, goals.

The papers' figures are greedy ones, with targets of 8B to 70B on GPUs: M is tokens a target forward, x is tokens/s over
plain decoding; two figures are the lowest and the highest of the paper's models. Those of REST are its authors'.
"""

EAGLE2_TREE = ["draft.tree=eagle2", "draft.gamma=5", "draft.width=10", "draft.tree_nodes=59", "schedule.shape=tree",
               "schedule.rows_max=60"]

# label: (method, settings). A method that the program does not have is left out.
ROWS = {
    "autoregressive": ("autoregressive", []),
    "prompt-lookup": ("prompt-lookup", []),
    "rest": ("rest", []),
    "jacobi": ("jacobi", []),
    "lookahead": ("lookahead", []),
    "speculative": ("speculative", []),
    "speculative, gamma 8": ("speculative", ["draft.gamma=8"]),  # the chain of ouroboros
    "speculative-adaptive": ("speculative-adaptive", []),
    "speculative-tree": ("speculative-tree", []),
    "speculative, eagle2's tree": ("speculative", EAGLE2_TREE),
    "prompt-lookup+draft": ("prompt-lookup+draft", []),
    "ouroboros": ("ouroboros", []),
    "layerskip": ("layerskip", []),
    "adaspeed": ("adaspeed", []),
    "draft-verify": ("draft-verify", []),
    "swift": ("swift", []),
    "clasp": ("clasp", []),
    "adadecode": ("adadecode", []),
    "kangaroo": ("kangaroo", []),
    "kangaroo, exit 10": ("kangaroo", ["self_draft.exit=10"]),  # as layerskip, which has a T head there
    "heads": ("heads", []),
    "medusa": ("medusa", []),
    "eagle2": ("eagle2", []),
    "eagle2, chain": ("eagle2", ["draft.tree=best-first", "draft.width=1", "schedule.shape=chain"]),
    "pearl": ("pearl", []),
    "fold": ("fold", []),
    "pearl-lookahead": ("pearl-lookahead", []),
    "fold-lookahead": ("fold-lookahead", []),
    "pearl-eagle": ("pearl-eagle", []),
    "fold-eagle": ("fold-eagle", []),
}

# Minutes on two cores of a CPU (docs/training.md, "Time, memory, disk"). The deep draft began as
# the small one after 47 minutes. A part that is not here has no measured time.
MINUTES = {"draft-small": 105, "draft-deep": 131, "heads": 28, "adapter": 33, "early-exit": 56, "medusa": 30, "eagle": 92}

# method: {set: (figure, where it is from)}
PAPERS = {
    "jacobi": {"GSM8K": ("M 1.07..1.11, 0.97..0.99x", "SWIFT, table 2")},
    "lookahead": {"GSM8K": ("M 1.50..1.57, 1.29..1.31x", "SWIFT, table 2"),
                  "HumanEval": ("1.39..1.49x", "AdaDecode, table 2")},
    "speculative": {"GSM8K": ("1.79..2.54x", "FOLD, table 1"), "HumanEval": ("1.71..3.13x", "FOLD, table 1")},
    "speculative-adaptive": {"GSM8K": ("1.77..2.52x", "FOLD, table 1"), "HumanEval": ("1.83..3.08x", "FOLD, table 1")},
    "ouroboros": {"GSM8K": ("2.12x", "FOLD, table 1"), "HumanEval": ("2.84x", "FOLD, table 1")},
    "pearl": {"GSM8K": ("2.54..3.30x", "FOLD, table 1"), "HumanEval": ("2.85..3.73x", "FOLD, table 1")},
    "fold": {"GSM8K": ("2.82..3.60x", "FOLD, table 1"), "HumanEval": ("3.05..4.09x", "FOLD, table 1")},
    "eagle2": {"GSM8K": ("2.46..3.44x", "FOLD, table 1"), "HumanEval": ("3.13..3.92x", "FOLD, table 1")},
    "draft-verify": {"GSM8K": ("1.12..1.14x", "AdaDecode, table 2"), "HumanEval": ("1.14x", "AdaDecode, table 2")},
    "adadecode": {"GSM8K": ("1.48..1.60x", "AdaDecode, table 2"), "HumanEval": ("1.51..1.73x", "AdaDecode, table 2")},
    "swift": {"GSM8K": ("M 2.95..3.13, 1.25..1.39x", "SWIFT, table 2"),
              "HumanEval": ("M 4.75, alpha 0.98, 1.40x", "SWIFT, table 3")},
    "clasp": {"GSM8K": ("M 5.26..6.77, 1.26..1.75x", "CLaSp, table 1"),
              "MT-bench": ("M 3.68..4.55, 1.24..1.64x", "CLaSp, table 1")},
    "rest": {"HumanEval": ("1.6..2.4x", "REST's authors"), "MT-bench": ("1.6..2.4x", "REST's authors")},
}


def over(above, below, key):
    return lambda rows: rows[above][key] / rows[below][key]


def more(above, below, key):
    return lambda rows: rows[above][key] - rows[below][key]


# (goal, set or None for each of them, least value, its value from {label: record of a greedy run with the account off})
GOALS = [
    ("lookahead: tokens a target forward", "GSM8K", 1.3, lambda rows: rows["lookahead"]["M"]),
    ("jacobi: tokens a target forward (1.03 to 1.11)", "GSM8K", 1.03, lambda rows: rows["jacobi"]["M"]),
    ("rest: M above prompt-lookup's", None, 0.2, more("rest", "prompt-lookup", "M")),
    ("ouroboros: M over speculative's, the same draft and gamma", None, 1.1,
     over("ouroboros", "speculative, gamma 8", "M")),
    ("ouroboros: tokens/s over speculative's, the same draft and gamma", None, 1.1,
     over("ouroboros", "speculative, gamma 8", "times_plain")),
    ("kangaroo: first token accepted above the T head's (layerskip)", None, 0.0,
     more("kangaroo, exit 10", "layerskip", "first_accepted")),
    ("eagle2: M of its tree over its chain", None, 1.15, over("eagle2", "eagle2, chain", "M")),
    ("eagle2: M above the small draft's chain", None, 0.0, more("eagle2", "speculative", "M")),
]
