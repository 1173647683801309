"""Configurations of the sweep that are no methods of their own: the same method over so many
target segments, with so many batches in flight. Written to a folder, from the files in configs/."""

import pathlib
import re

CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "configs"
# Where the target's stages stand in a configuration.
TARGET_ROLES = ("segment", "early-verify", "final-verify")


def tables_of(text):
    """The tables of a configuration, each with its header line."""
    return re.split(r"(?m)^(?=\[)", text)


def segment_stages(count, early):
    """[[stage]] tables of `count` segments with even shares of the layers."""
    stages = []
    for i in range(count):
        role = "segment"
        if early and i == 0 and count > 1:
            role = "early-verify"
        if early and i == count - 1:
            role = "final-verify"
        stages.append(f'[[stage]]\nname = "part-{i + 1}"\nrole = "{role}"\nlayers = "auto"\n\n')
    return stages


def with_segments(method, count, batches):
    """The text of the method's configuration over `count` segments. The exit of a method that has
    one stands after the first."""
    kept, early = [], False
    for table in tables_of((CONFIGS / f"{method}.toml").read_text(encoding="utf-8")):
        role = re.search(r'(?m)^role\s*=\s*"([^"]+)"', table)
        if table.startswith("[[stage]]") and role and role.group(1) in TARGET_ROLES:
            early = early or role.group(1) == "early-verify"
            continue
        if table.startswith("[schedule]"):
            table = re.sub(r"(?m)^batches_in_flight.*\n", "", table)
            table = table.replace("[schedule]\n", f"[schedule]\nbatches_in_flight = {batches}\n", 1)
        kept.append(table)
    text = "".join(kept).rstrip() + "\n\n"
    if "[schedule]" not in text:
        text += f"[schedule]\nbatches_in_flight = {batches}\n\n"
    if early and count < 2:
        raise ValueError(f"{method} needs two segments for its exit, not {count}")
    return text + "".join(segment_stages(count, early))


class Folder:
    """Makes each of them once."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def file(self, method, count, batches):
        path = self.path / f"{method}-{count}-{batches}.toml"
        if not path.exists():
            path.write_text(with_segments(method, count, batches), encoding="utf-8")
        return path
