#!/usr/bin/env python3
"""How long a build from nothing takes, and which folders its time goes to.

    bench/build_times.py                the program alone, as launch/try builds it
    bench/build_times.py --tests        everything, as tests/run builds it
    bench/build_times.py --only-log BUILD     the parts of a build that was made elsewhere

Clones the last commit into a temporary folder and builds it there without a compiler cache. Prints the elapsed time,
and for each folder the number of steps and the time of its compilers and linkers, added up (ninja's log: elapsed time of
each step, so it grows when other programs use the cores). Python's standard library only.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def parts_of(build: Path) -> dict[str, list[float]]:
    """Steps and seconds by folder: two levels of it in the sources, "programs" for what lies at the top."""
    parts: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        begin, end, _, output, _ = line.split("\t")
        folders = [word for word in Path(output).parts[:-1] if word != "CMakeFiles" and not word.endswith(".dir")]
        if output.startswith("/"):
            continue  # CMake itself
        part = parts["/".join(folders[:2]) or "programs"]
        part[0] += 1
        part[1] += (int(end) - int(begin)) / 1000
    return parts


def print_parts(parts: dict[str, list[float]]) -> None:
    print(f"{'folder':<28} {'steps':>6} {'seconds':>8}")
    for name, (steps, seconds) in sorted(parts.items(), key=lambda item: -item[1][1]):
        print(f"{name:<28} {steps:>6.0f} {seconds:>8.1f}")
    print(f"{'all':<28} {sum(s for s, _ in parts.values()):>6.0f} {sum(t for _, t in parts.values()):>8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("--only-log", type=Path, metavar="BUILD")
    options = parser.parse_args()
    if options.only_log:
        return print_parts(parts_of(options.only_log))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CMAKE_")}
    environment["CCACHE_DISABLE"] = "1"
    with tempfile.TemporaryDirectory() as name:
        clone = Path(name) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        begin = time.monotonic()
        done = subprocess.run([str(clone / "launch/build"), "--tests" if options.tests else "paceline"],
                              env=environment, check=False)
        elapsed = time.monotonic() - begin
        if done.returncode != 0:
            sys.exit("bench/build_times.py: the build failed")
        print_parts(parts_of(clone / "build/release"))
        print(f"elapsed: {elapsed:.0f} s with {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
