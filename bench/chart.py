"""Line charts as SVG text, drawn with Matplotlib (`pip install matplotlib`, Debian: python3-matplotlib)."""

import io
import sys

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
except ImportError:
    sys.exit("drawing needs Matplotlib: pip install matplotlib, or apt install python3-matplotlib")

COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8e5ea2", "#e09f3e", "#444444", "#17a2b8", "#7f5539")

TICKS_MAX = 12  # with at most so many x, each is a tick


def svg_of(figure: Figure) -> str:
    """The figure as SVG text that is the same for the same figure: no date, no random identifiers."""
    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "paceline"}):
        figure.savefig(text, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def line_chart(title: str, x_title: str, y_title: str, lines: dict) -> str:
    """`lines`: {name: [(x, y), ...]}; x are numbers, or words in their order. Empty without a point."""
    if not any(lines.values()):
        return ""
    figure = Figure(figsize=(7.6, 4.2))
    axes = figure.add_subplot()
    for number, (name, points) in enumerate(lines.items()):
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=4,
                  color=COLOURS[number % len(COLOURS)], label=str(name).replace("$", r"\$"))  # which begins a formula
    values = sorted({x for points in lines.values() for x, _ in points}, key=str)
    if len(values) <= TICKS_MAX and not any(isinstance(x, str) for x in values):
        axes.set_xticks(values)
    axes.set(title=title, xlabel=x_title, ylabel=y_title)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#dddddd")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return svg_of(figure)
