"""The pictures of bench/self_speculation.py, from the tables in a folder."""

import chart

RULES = {"constant-d": "constant D", "product": "product of probabilities",
         "marginal": "probability of the last token",
         "probe": "product of probe scores", "probe-marginal": "probe score of the last token"}


def rows_of(file):
    """The records of a table as dictionaries; none if there is no such file."""
    if not file.is_file():
        return []
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()
             if line and not line.startswith("#")]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def setting(row, key):
    for word in row["settings"].split():
        name, _, value = word.partition("=")
        if name == key:
            return value
    return ""


def exits(counts):
    """M over the drafted tokens of a round: what a stop rule makes of the same number of drafts."""
    lines = {}
    for row in counts:
        if row["section"] in ("constant-d", "product", "marginal"):
            name = f"{row['section']}, exit {setting(row, 'exit')}"
            lines.setdefault(name, []).append((float(row["drafted_per_round"]), float(row["M"])))
    return chart.line_chart("Early exit: constant D, product and marginal", "drafted tokens a round",
                            "M", {name: sorted(points) for name, points in lines.items()})


def thresholds(counts):
    lines = {}
    for row in counts:
        if row["section"] in ("product", "marginal"):
            name = f"{row['section']}, exit {setting(row, 'exit')}"
            lines.setdefault(name, []).append((float(setting(row, row["varied"])),
                                               float(row["layer_rows_per_token"])))
    return chart.line_chart("Early exit: thresholds", "threshold", "layer-rows a token", lines)


def six_panels(x_title, y_title, panels):
    """Six line charts with the same axes and one legend. `panels`: {title: {name: [(x, y), ...]}}."""
    if not any(panels.values()):
        return ""
    figure = chart.Figure(figsize=(9.6, 6.0))
    for number, (title, lines) in enumerate(panels.items()):
        axes = figure.add_subplot(2, 3, number + 1)
        for colour, name in zip(chart.COLOURS, RULES.values()):
            points = lines.get(name, [])
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, color=colour,
                      label=name)
        axes.set_title(title, fontsize="medium")
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axes.set_xlim(0.9, 12)
        axes.set_ylim(1.3, 1.9)
        axes.grid(axis="y", color="#dddddd")
        if number >= 3:
            axes.set_xlabel(x_title)
        if number % 3 == 0:
            axes.set_ylabel(y_title)
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="upper center", bbox_to_anchor=(0.5, 0.01), ncols=3, frameon=False)
    figure.subplots_adjust(hspace=0.3)
    return chart.svg_of(figure)


def probe(folder):
    """M over the drafted tokens of a round, a panel for each exit and way of choosing tokens."""
    tables = {"greedy": ("", "-early-exit"), "drawn": ("-sampled", "-early-exit-sampled")}
    exits = {"10": ("exit 10, trained head", 0), "15": ("exit 15, trained head", 0),
             "8": ("exit 8, early-exit target", 1)}
    panels = {}
    for mode, names in tables.items():
        found = [rows_of(folder / f"self-speculation-counts{name}.tsv") for name in names]
        for exit, (title, table) in exits.items():
            lines = {}
            for row in found[table]:
                if row["section"] in RULES and setting(row, "exit") == exit:
                    lines.setdefault(RULES[row["section"]], []).append(
                        (float(row["drafted_per_round"]), float(row["M"])))
            panels[f"{title}, {mode}"] = {name: sorted(points) for name, points in lines.items()}
    return six_panels("drafted tokens a round", "M", panels)


def programme(rows):
    lines = {}
    for row in rows:
        if row["distance"] == "-" and not row["kind"].startswith("small") and row["right"] != "-":
            lines.setdefault(row["kind"], []).append((int(row["skipped"]), float(row["right"])))
    return chart.line_chart("Layers skipped: the same token as the whole model", "skipped layers",
                            "share of the tokens", lines)


def ages(rows):
    lines = {}
    for row in rows:
        if row["distance"] != "-":
            for key in ("jaccard", "right"):
                lines.setdefault(f"{key}, {row['skipped']} layers", []).append(
                    (int(row["distance"]), float(row[key])))
    return chart.line_chart("A set of the programme while the text goes on", "tokens since it was chosen",
                            "Jaccard with the new set; share of right tokens", lines)


def uniform(rows):
    lines = {}
    for row in rows:
        for key in ("top1", "top3", "top5", "top10"):
            lines.setdefault(key, []).append((float(row["ratio"]), float(row[key])))
    return chart.line_chart("Uniform skipping: the text's token among the k likeliest", "skip ratio",
                            "share of the tokens", lines)


def search(rows):
    lines = {}
    for row in rows:
        if row["window"] == "32" and row["bayes_every"] == "25" and row["trials_a_text"] == "50":
            for key in ("window_matchness", "answer_matchness", "uniform_matchness"):
                lines.setdefault(f"{key.split('_')[0]}, ratio {row['ratio']}", []).append(
                    (int(row["text"]), float(row[key])))
    return chart.line_chart("SWIFT's search over texts", "text", "matchness", lines)


def draw(folder):
    counts = rows_of(folder / "self-speculation-counts.tsv")
    pictures = {
        "self-speculation-exits": exits(counts),
        "self-speculation-thresholds": thresholds(counts),
        "self-speculation-probe": probe(folder),
        "skip-sets-programme": programme(rows_of(folder / "skip-sets-programme.tsv")),
        "skip-sets-age": ages(rows_of(folder / "skip-sets-programme.tsv")),
        "skip-sets-uniform": uniform(rows_of(folder / "skip-sets-uniform.tsv")),
        "skip-sets-search": search(rows_of(folder / "skip-sets-search.tsv")),
    }
    for name, text in pictures.items():
        if text:
            (folder / f"{name}.svg").write_text(text, encoding="utf-8")
