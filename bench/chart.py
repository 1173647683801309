"""Line charts as SVG, written by hand: nothing to install."""

COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8e5ea2", "#e09f3e", "#444444", "#17a2b8", "#7f5539")
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 200, 40, 56
LEGEND_LETTER = 7  # pixels, about


def escaped(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def nice_step(span, steps=6):
    """1, 2 or 5 times a power of ten that divides `span` into about `steps`."""
    raw = span / steps if span > 0 else 1.0
    power = 1.0
    while power * 10 <= raw:
        power *= 10
    while power > raw:
        power /= 10
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)


def line_chart(title, x_title, y_title, lines):
    """`lines`: {name: [(x, y), ...]}. x may be numbers or words; words stand in their order."""
    words = []
    for points in lines.values():
        for x, _ in points:
            if not isinstance(x, (int, float)) and x not in words:
                words.append(x)

    def place(x):
        return float(words.index(x)) if words else float(x)

    xs = [place(x) for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    if not xs:
        return ""
    x_low, x_high = min(xs), max(xs)
    x_high = x_high if x_high > x_low else x_low + 1
    step = nice_step(max(ys) * 1.05)
    y_high = step * (int(max(ys) * 1.05 / step) + 1)

    def at(x, y):
        return (LEFT + (place(x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - y / y_high * (HEIGHT - TOP - BOTTOM))

    # The plot keeps its size; a legend with long words widens the picture.
    width = max(WIDTH, WIDTH - RIGHT + 44 + LEGEND_LETTER * max(len(str(name)) for name in lines))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" '
             f'font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{HEIGHT}" fill="white"/>',
             f'<text x="{LEFT}" y="22" font-size="15">{escaped(title)}</text>']
    tick = 0.0
    while tick <= y_high + step / 2:
        y = at(xs[0] if not words else words[0], tick)[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                     f'stroke="#dddddd"/><text x="{LEFT - 8}" y="{y + 4:.1f}" '
                     f'text-anchor="end">{tick:g}</text>')
        tick += step
    for x in words or sorted(set(xs)):
        parts.append(f'<text x="{at(x, 0)[0]:.1f}" y="{HEIGHT - BOTTOM + 18}" '
                     f'text-anchor="middle">{escaped(x if words else f"{x:g}")}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 14}" '
                 f'text-anchor="middle">{escaped(x_title)}</text>'
                 f'<text transform="translate(16 {HEIGHT / 2:.0f}) rotate(-90)" '
                 f'text-anchor="middle">{escaped(y_title)}</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        spots = [at(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                     f'stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots]
        y = TOP + 18 * number
        parts.append(f'<line x1="{WIDTH - RIGHT + 14}" x2="{WIDTH - RIGHT + 34}" y1="{y}" '
                     f'y2="{y}" stroke="{colour}" stroke-width="2"/>'
                     f'<text x="{WIDTH - RIGHT + 40}" y="{y + 4}">{escaped(name)}</text>')
    return "\n".join(parts) + "\n</svg>\n"
