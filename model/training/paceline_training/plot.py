"""paceline-train plot: the curves of runs as an SVG.

    paceline-train plot RUN ... -o curves.svg [--measure loss --measure heldout.all.top1]
                                              [--against tokens | minutes | step]

Reads the losses.tsv of each run; one panel a measure, one line a run. A measure may hold a star:
every measure that fits gets a line of its own.
"""

import argparse
import fnmatch
from pathlib import Path

import numpy as np

DEFAULT = ["loss", "heldout.*.top1"]
COLUMNS = {"step": 0, "tokens": 1, "minutes": 2}
UNITS = {"tokens": "tokens trained on (million)", "minutes": "minutes", "step": "steps"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folders of runs")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE.svg")
    parser.add_argument("--measure", action="append", default=[], metavar="NAME",
                        help="may be repeated (loss and heldout.*.top1)")
    parser.add_argument("--against", choices=list(UNITS), default="tokens")


def read_losses(folder: Path) -> dict[str, np.ndarray]:
    """{measure: [[step, tokens, minutes, value], ...]}."""
    path = folder / "losses.tsv"
    if not path.is_file():
        raise ValueError(f"{folder}: no losses.tsv: not the folder of a run")
    found: dict[str, list[list[float]]] = {}
    for number, line in enumerate(path.read_text().splitlines()[1:], 2):
        words = line.split("\t")
        try:
            step, tokens, minutes, value = (float(words[i]) for i in (0, 1, 2, 4))
        except (ValueError, IndexError):
            raise ValueError(f"{path}:{number}: no line of five columns: {line!r}") from None
        found.setdefault(words[3], []).append([step, tokens, minutes, value])
    return {name: np.array(rows) for name, rows in found.items()}


def smoothed(values: np.ndarray) -> np.ndarray:
    """A running mean over a fiftieth of the curve, with fewer values at its ends."""
    width = max(1, len(values) // 50)
    ones = np.ones(width)
    return np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")


def draw(axis, panel: str, runs: dict[str, dict[str, np.ndarray]], against: str,
         by_source: bool) -> None:
    """One panel: the measures that fit its pattern, a line for each run and measure."""
    for folder, curves in runs.items():
        for name in fnmatch.filter(curves, panel):
            if " " in name and not by_source:
                continue  # of prompts of one source: too many lines if nobody asked for them
            rows = curves[name]
            x = rows[:, COLUMNS[against]] / (1e6 if against == "tokens" else 1)
            held = name.startswith("heldout.")
            label = f"{folder} {name.split('.')[1]}" if "*" in panel else folder
            label = label.replace("$", r"\$")  # which begins a formula
            axis.plot(x, rows[:, 3] if held else smoothed(rows[:, 3]),
                      marker="." if held else None, linewidth=1, label=label)
    axis.set_xlabel(UNITS[against])
    axis.set_title(panel.replace("$", r"\$"), fontsize=10)
    axis.grid(alpha=0.3)
    if axis.lines:
        axis.legend(fontsize=7)


def run(options) -> int:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "paceline"  # the same picture has the same bytes
    from matplotlib import pyplot

    runs = {folder.name: read_losses(folder) for folder in options.runs}
    panels = options.measure or DEFAULT
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5 * len(panels), 3.6), squeeze=False)
    for axis, panel in zip(axes[0], panels):
        draw(axis, panel, runs, options.against, bool(options.measure))
    figure.tight_layout()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, metadata={"Date": None})
    if options.out.suffix == ".svg":  # whose lines end in blanks
        lines = options.out.read_text(encoding="utf-8").splitlines()
        options.out.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
    return 0
