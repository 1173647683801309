"""Configurations of the sweep that are no methods of their own: the same method over so many
target segments, with so many batches in flight. Written to a folder."""

import pathlib
import re
import subprocess

# Where the target's stages stand in a configuration.
TARGET_ROLES = ("segment", "early-verify", "final-verify")


def text_of(method, program):
    """The method's settings with those that its file extends, as `program` (paceline) prints them."""
    return subprocess.run([program, "run", "--method", method, "--print-config"], capture_output=True, text=True,
                          check=True).stdout


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


def with_segments(text, count, batches):
    """A method's configuration (text_of) over `count` segments. The exit of a method that has one
    stands after the first."""
    kept, early = [], False
    for table in tables_of(text):
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
        raise ValueError(f"an exit needs two segments, not {count}")
    return text + "".join(segment_stages(count, early))


class Folder:
    """Makes each of them once."""

    def __init__(self, path, program):
        self.path, self.program = pathlib.Path(path), program

    def file(self, method, count, batches):
        path = self.path / f"{method}-{count}-{batches}.toml"
        if not path.exists():
            text = with_segments(text_of(method, self.program), count, batches)
            path.write_text(text, encoding="utf-8")
        return path
