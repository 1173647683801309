"""The fixed tree of look-ahead heads (Medusa), from how often each rank of a head is right.

    accuracies[j][r]     share of held-out positions whose token is that of rank r of head j + 1
    tree                 paths of ranks: (0, 2) is the best token of the first head and, below it, the
                         third of the second head

The tree is grown as in Medusa's paper: the node with the greatest product of accuracies along its
path is added, again and again. The product takes the heads as independent, as the paper does. A
run's tree lies in its folder (ahead_tree.json), where export finds it.
"""

import heapq
import json
import math
import os
from pathlib import Path

import torch

NODES_MAX = 63  # the root takes a row of a batch of 64
RANKS = 10  # of a head that are counted
CHUNK_ROWS = 512
FILE = "ahead_tree.json"

Ranks = tuple[int, ...]


class RankCounts:
    """How often each of a head's best RANKS tokens was the target's."""

    def __init__(self) -> None:
        self.hits = torch.zeros(RANKS, dtype=torch.int64)
        self.rows = 0

    def add(self, x: torch.Tensor, head: torch.Tensor, ids: torch.Tensor) -> None:
        """x [rows, dim]: what `head` [short list, dim] is multiplied with; ids [rows]: places of
        the right tokens on the short list, -1: not on it."""
        for first in range(0, len(x), CHUNK_ROWS):
            rows = slice(first, first + CHUNK_ROWS)
            logits = x[rows].float() @ head.float().T
            best = logits.topk(min(RANKS, logits.shape[1]), -1).indices
            hits = (best == ids[rows, None]).sum(0).cpu()
            self.hits[:len(hits)] += hits
        self.rows += len(x)

    def shares(self) -> list[float]:
        return [hit / max(1, self.rows) for hit in self.hits.tolist()]


def greedy_tree(accuracies: list[list[float]], nodes: int = NODES_MAX) -> list[Ranks]:
    """Parents before their children; a node that was never right is left out, but for the first."""
    tree: list[Ranks] = []
    open_nodes: list[tuple[float, int, Ranks]] = []

    def offer(path: Ranks, product: float) -> None:
        if len(path) == len(accuracies):
            return
        for rank, share in enumerate(accuracies[len(path)]):
            if share > 0:
                heapq.heappush(open_nodes, (-product * share, len(path) + 1, (*path, rank)))

    offer((), 1.0)
    while open_nodes and len(tree) < nodes:
        product, _, path = heapq.heappop(open_nodes)
        tree.append(path)
        offer(path, -product)
    return tree or [(0,)]


def expected_tokens(accuracies: list[list[float]], tree: list[Ranks]) -> float:
    """Candidates of the tree that a pass accepts, were the heads independent."""
    return sum(math.prod(accuracies[depth][rank] for depth, rank in enumerate(path))
               for path in tree)


def tree_text(tree: list[Ranks]) -> str:
    """As in the metadata of a part: "0 1 0.0"."""
    return " ".join(".".join(map(str, path)) for path in tree)


def write_tree(folder: Path, accuracies: list[list[float]], tree: list[Ranks]) -> None:
    path = folder / FILE
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"accuracies": accuracies, "tree": tree_text(tree)}, indent=1)
                    + "\n")
    os.replace(part, path)


def read_tree(folder: Path) -> str | None:
    """As tree_text() gives it; None: the run has none."""
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8"))["tree"] if path.is_file() else None
