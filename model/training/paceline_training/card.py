"""paceline-train card: the model card of a folder of part files, from the records of their runs.

Everything in it is read: what each run was told, saw and reached (card.json, losses.tsv), and what
the part files say of themselves. Text for people (--about FILE) is put in front as it is.
"""

import argparse
import hashlib
import json
import re
from pathlib import Path

from safetensors import safe_open

HEADS_COLUMNS = ["lens_top1", "top1", "top4", "confident", "right_if_confident"]
LORA_COLUMNS = ["plain_lens_top1", "top1", "top4", "accepted_sampled", "kl_from_plain",
                "agrees_with_plain", "plain_perplexity", "perplexity"]
PROBE_COLUMNS = ["accuracy", "auc", "base_rate"]
DRAFT_COLUMNS = ["top1", "top4", "acceptance_length"] + [f"accepted_{j}" for j in range(1, 9)]
COLUMNS = {"draft": DRAFT_COLUMNS, "lora": LORA_COLUMNS, "probe": PROBE_COLUMNS}
SETTINGS = ["rate", "warm_up", "weight_decay", "clip", "layer_dropout", "full_every",
            "other_weight", "final_weight", "sampled", "batch_tokens", "length", "seed", "dtype",
            "rest", "quantise"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", type=Path, required=True, metavar="DIR",
                        help="the folder of part files; the card is written there as README.md")
    parser.add_argument("--run", type=Path, action="append", default=[], metavar="RUN",
                        help="the folder of a run that a part came from; repeatable")
    parser.add_argument("--about", type=Path, metavar="FILE", help="Markdown to begin with")


def read_card(run: Path) -> dict:
    path = run / "card.json"
    if not path.is_file():
        raise ValueError(f"{run}: no card.json: not the folder of a finished run")
    return json.loads(path.read_text(encoding="utf-8"))


def cell(text: object) -> str:
    """Text from outside as a cell of a Markdown table, on one line."""
    line = "".join(c if c.isprintable() else "?" for c in str(text))
    return re.sub(r"([\\|`*\[<&~])", r"\\\1", line)


def files_table(folder: Path) -> list[str]:
    lines = ["| file | part | bytes | matrices | short list | licence | SHA-256, first 16 digits |",
             "| --- | --- | ---: | --- | ---: | --- | --- |"]
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            said = file.metadata()
            listed = "tokens" in file.keys()
            tokens = file.get_slice("tokens").get_shape()[0] if listed else ""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        lines.append(f"| {cell(path.name)} | {cell(said['paceline.part'])} | {path.stat().st_size} | "
                     f"{cell(said.get('matrices', ''))} | {tokens} | {cell(said['licence'])} | {digest} |")
    if len(lines) == 2:
        raise ValueError(f"{folder}: no part files (*.safetensors)")
    return lines


def first_and_last_loss(run: Path) -> tuple[float, float]:
    losses = [float(row[4]) for row in
              (line.split("\t") for line in (run / "losses.tsv").read_text().splitlines()[1:])
              if row[3] == "loss"]
    if not losses:
        raise ValueError(f"{run}/losses.tsv: no losses")
    return losses[0], losses[-1]


def run_lines(run: Path, card: dict) -> list[str]:
    part, options = card["part"], card["options"]
    told = ", ".join(f"{name} {options[name]}" for name in SETTINGS if name in options)
    first, last = first_and_last_loss(run)
    what = ", ".join(f"{name} {part[name]}" for name in
                     ("layers", "from_layers", "transform", "rank", "alpha", "exit", "exits",
                      "ahead", "ahead_block", "norm_first")
                     if part.get(name) not in (None, [], False))
    return [f"### {cell(run.name)}: {part['part']}", "",
            f"{what}. Trained on {card['answers']} answers ({card['answer_tokens']} tokens with "
            f"their prompts), {card['steps']} steps, {card['trained_tokens']} positions, "
            f"{card['trained_tokens'] / max(1, card['answer_tokens']):.1f} passes, "
            f"{card['seconds'] / 60:.0f} minutes on {card['machine']}, PyTorch {card['torch']}. "
            f"Loss {first:.2f} at the first record, {last:.2f} at the last. {told}.", "",
            f"On {card['heldout_answers']} held-out answers, greedy:", ""]


def figures_table(card: dict) -> list[str]:
    columns = COLUMNS.get(card["part"]["part"], HEADS_COLUMNS)
    columns = [name for name in columns
               if any(name in figures for figures in card["heldout"].values())]
    lines = ["| | positions | " + " | ".join(name.replace("_", " ") for name in columns) + " |",
             "| --- | ---: |" + " ---: |" * len(columns)]
    for name, figures in card["heldout"].items():
        values = " | ".join(f"{figures[column]:.3f}" if column in figures else ""
                            for column in columns)
        lines.append(f"| {cell(name)} | {figures['positions']:.0f} | {values} |")
    return lines + [""]


def run(options) -> int:
    cards = [(folder, read_card(folder)) for folder in options.run]
    lines = [options.about.read_text(encoding="utf-8-sig").rstrip(), ""] if options.about else []
    lines += ["## Files", "", *files_table(options.parts), ""]
    if cards:
        lines += ["## Training", ""]
    for folder, card in cards:
        lines += run_lines(folder, card) + figures_table(card)
    path = options.parts / "README.md"
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    print(path)
    return 0
