"""Small SVG charts: panels with lines or points, a legend below. Python's standard library only.

The same data give the same bytes. Series differ in colour and in marker. The colours have a
contrast of at least 3 to white and to black; background, text and grid follow the colour scheme.
"""

import math
from dataclasses import dataclass
from html import escape

COLOURS = ("#2778b5", "#d1495b", "#2e8b57", "#8e6ab8", "#b8771f", "#7d7d7d", "#1591a3", "#a0694a")
STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.back{fill:#fff}.band{fill:#eee}"
    ".title{font-weight:bold}"
    ".grid{stroke:#ddd;fill:none}.axis{stroke:#777;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.back{fill:#16191d}.band{fill:#2a2e33}"
    ".grid{stroke:#3a3f45}.axis{stroke:#999}}</style>"
)
LETTER = 7.3  # pixels: a letter's mean width at 12 pixels
LEFT, TOP, BOTTOM, GAP = 54, 26, 44, 16  # around the plot of one panel
ROW = 18  # height of a legend's row


@dataclass
class Panel:
    """One plot. `lines`: {name: [(x, y), ...]}; a name has one colour in all panels."""

    title: str
    x_title: str
    y_title: str
    lines: dict
    x_ticks: tuple = ()  # the numbers to print; empty: round ones
    x_range: tuple = ()  # empty: that of the data
    y_range: tuple = ()  # empty: from 0
    x_log: bool = False
    joined: bool = True  # a line through the points
    markers: bool = True
    diagonal: float = 0.0  # with equal axes: draws y = x and a band of this share around it


def number(value: float) -> str:
    """A coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return (
        f'<line class="{kind}" x1="{number(x1)}" y1="{number(y1)}" '
        f'x2="{number(x2)}" y2="{number(y2)}"/>'
    )


def words(x: float, y: float, text: str, extra: str = "") -> str:
    return f'<text x="{number(x)}" y="{number(y)}"{extra}>{escape(text)}</text>'


def document(width: float, height: float, body: list[str]) -> str:
    size = f'width="{number(width)}" height="{number(height)}"'
    box = f"0 0 {number(width)} {number(height)}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="{box}">'
    return "\n".join([head, STYLE, f'<rect class="back" {size}/>', *body, "</svg>"]) + "\n"


def marker(x: float, y: float, series: int) -> str:
    """A path that draws a circle, square, triangle or diamond around (x, y)."""
    shapes = (
        "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
        "m-2.7-2.7h5.4v5.4h-5.4z",
        "m0-3.6l3.4 6h-6.8z",
        "m0-3.8l3.8 3.8l-3.8 3.8l-3.8-3.8z",
    )
    return f"M{number(x)} {number(y)}{shapes[series % len(shapes)]}"


def round_ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """About `wanted` round numbers from `low` to `high`."""
    power = 10.0 ** math.floor(math.log10((high - low) / wanted))
    step = next(
        power * factor for factor in (1, 2, 2.5, 5, 10) if (high - low) / (power * factor) <= wanted
    )
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]


class Axes:
    """Where the values of one panel lie in a plot whose upper left corner is (left, top)."""

    def __init__(self, panel: Panel, left: float, top: float, width: float, height: float):
        points = [point for of_line in panel.lines.values() for point in of_line]
        self.log = panel.x_log
        self.x_low, self.x_high = panel.x_range or self.widened([x for x, _ in points])
        self.y_low, self.y_high = panel.y_range or (0.0, 1.05 * max(y for _, y in points))
        self.left, self.top, self.width, self.height = left, top, width, height

    @staticmethod
    def widened(values: list[float]) -> tuple[float, float]:
        margin = 0.04 * (max(values) - min(values)) or 1.0
        return min(values) - margin, max(values) + margin

    def x(self, value: float) -> float:
        low, high = self.x_low, self.x_high
        if self.log:
            low, high, value = math.log2(low), math.log2(high), math.log2(value)
        return self.left + self.width * (value - low) / (high - low)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - (value - self.y_low) / (self.y_high - self.y_low))


def grid(panel: Panel, axes: Axes) -> list[str]:
    """Frame, ticks and titles of a panel."""
    right, bottom = axes.left + axes.width, axes.top + axes.height
    rows = round_ticks(axes.y_low, axes.y_high)
    columns = panel.x_ticks or round_ticks(axes.x_low, axes.x_high)
    lines = "".join(
        f"M{number(axes.left)} {number(axes.y(value))}H{number(right)}" for value in rows
    )
    ticks = "".join(f"M{number(axes.x(value))} {number(bottom)}v4" for value in columns)
    frame = f"M{number(axes.left)} {number(axes.top)}V{number(bottom)}H{number(right)}"
    out = [f'<path class="grid" d="{lines}"/>', f'<path class="axis" d="{frame}{ticks}"/>']
    out += [
        words(axes.left - 6, axes.y(value) + 4, f"{value:g}", ' text-anchor="end"')
        for value in rows
    ]
    out += [
        words(axes.x(value), bottom + 17, f"{value:g}", ' text-anchor="middle"')
        for value in columns
    ]
    middle = ' text-anchor="middle"'
    out.append(
        words(axes.left + axes.width / 2, axes.top - 10, panel.title, f'{middle} class="title"')
    )
    out.append(words(axes.left + axes.width / 2, bottom + 35, panel.x_title, middle))
    x, y = axes.left - 42, axes.top + axes.height / 2
    out.append(
        words(x, y, panel.y_title, f'{middle} transform="rotate(-90 {number(x)} {number(y)})"')
    )
    return out


def diagonal(axes: Axes, share: float) -> list[str]:
    """y = x, and a band of `share` of y around it, inside the plot."""
    ends = (axes.x_low, axes.x_high)
    inside = [
        (x, min(max(x * factor, axes.y_low), axes.y_high))
        for factor, order in ((1 + share, 1), (1 - share, -1))
        for x in sorted({*ends, axes.y_high / (1 + share), axes.y_low / (1 - share)})[::order]
        if ends[0] <= x <= ends[1]
    ]
    corners = " ".join(f"{number(axes.x(x))},{number(axes.y(y))}" for x, y in inside)
    return [
        f'<polygon class="band" points="{corners}"/>',
        line(*(axes.x(ends[0]), axes.y(ends[0])), *(axes.x(ends[1]), axes.y(ends[1])), "axis"),
    ]


def series(panel: Panel, axes: Axes, names: list[str]) -> list[str]:
    """The lines and markers of a panel: at most two elements a series."""
    out = []
    for name, points in panel.lines.items():
        index = names.index(name)
        colour = COLOURS[index % len(COLOURS)]
        places = [(axes.x(x), axes.y(y)) for x, y in points]
        if panel.joined and len(places) > 1:
            route = " ".join(f"{number(x)},{number(y)}" for x, y in places)
            out.append(
                f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{route}"/>'
            )
        if panel.markers:
            shapes = "".join(marker(x, y, index) for x, y in places)
            out.append(f'<path fill="{colour}" d="{shapes}"/>')
    return out


def legend(names: list[str], width: float, top: float) -> tuple[list[str], float]:
    """The names with their colours in as many columns as fit, and the height of the rows."""
    column = 34 + LETTER * max(len(name) for name in names)
    columns = max(1, min(len(names), int(width / column)))
    out = []
    for index, name in enumerate(names):
        x, y = 14 + column * (index % columns), top + ROW * (index // columns)
        colour = COLOURS[index % len(COLOURS)]
        out.append(
            f'<path fill="{colour}" stroke="{colour}" d="M{number(x - 8)} {number(y)}h16'
            f'{marker(x, y, index)}"/>'
        )
        out.append(words(x + 14, y + 4, name))
    return out, ROW * math.ceil(len(names) / columns)


def chart(panels: list[Panel], columns: int = 1, plot: tuple[int, int] = (420, 220)) -> str:
    """The panels in rows of `columns`, each with a plot of `plot` pixels, and one legend."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    body = []
    for index, panel in enumerate(panels):
        left = (index % columns) * (LEFT + plot[0] + GAP) + LEFT
        top = (index // columns) * (TOP + plot[1] + BOTTOM) + TOP
        axes = Axes(panel, left, top, *plot)
        body += diagonal(axes, panel.diagonal) if panel.diagonal else []
        body += grid(panel, axes) + series(panel, axes, names)
    width = columns * (LEFT + plot[0] + GAP)
    height = math.ceil(len(panels) / columns) * (TOP + plot[1] + BOTTOM)
    if len(names) > 1:
        below, rows = legend(names, width - 10, height + 10)
        body += below
        height += rows + 8
    return document(width, height, body)
