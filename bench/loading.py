#!/usr/bin/env python3
"""How long a packed GGUF file takes to load, against reading it, and what memory that takes at most.

    bench/loading.py [--shape configs/shapes/llama-1b.toml] [--types q8_0,q4_1] [--rounds 5] [--folder /tmp]

A file of the shape is made with synthetic weights (cuda/synthetic_gguf.py) and packed by `paceline convert`; the
time and the memory of that are printed too. Then, in turn, the file is read whole by one thread (`read`, 16 MB at a
time) and loaded by `paceline bench` (its load_ns: weights read and packed), once with its pages in memory (warm) and
once without (cold: posix_fadvise DONTNEED before each of the two, which needs no root). Ratios are formed per round;
printed are medians and ranges. `peak` is the largest resident memory of the process over its packed weights
(model_size), with its code, scratch and a KV cache of a few tokens, and without pages of the file (VmHWM counts those,
so it is an upper bound).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from against_llama_cpp import ROOT, spread

sys.path.insert(0, str(ROOT / "bench" / "cuda"))
from peer_report import read_shape  # noqa: E402: found through the line above
from synthetic_gguf import write_gguf  # noqa: E402: found through the line above

BLOCK = bytearray(16 << 20)


def read_seconds(path: Path) -> float:
    begin = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(BLOCK):
            pass
    return time.monotonic() - begin


def forget(path: Path) -> None:
    """Drops the pages of the file from memory; they are clean, since it was synced."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def child(command: list[str]) -> tuple[str, float]:
    """What a program prints, and the most memory that it had, in bytes."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return said, usage.ru_maxrss * 1024


def load(options, path: Path) -> tuple[float, float]:
    """Seconds, and peak memory over packed weights."""
    said, peak = child([options.paceline, "bench", "-m", str(path), "-t", str(options.threads), "-p", "0", "-n", "1",
                        "-r", "1", "-o", "json"])
    row = json.loads(said)[0]
    return row["load_ns"] / 1e9, peak / row["model_size"]


def convert(options, source: Path, kind: str) -> Path:
    path = source.with_name(f"{kind}.gguf")
    begin = time.monotonic()
    _, peak = child([options.paceline, "convert", str(source), str(path), "--type", kind, "-t", str(options.threads)])
    seconds = time.monotonic() - begin
    print(f"converted to {kind}: {source.stat().st_size / 1e9:.2f} GB to {path.stat().st_size / 1e9:.2f} GB in "
          f"{seconds:.1f} s, peak memory {peak / 1e6:.0f} MB", file=sys.stderr)
    return path


def measure(options, path: Path, cold: bool) -> list[str]:
    reads, loads, ratios, peaks = [], [], [], []
    for _ in range(options.rounds):
        times = []
        for work in (read_seconds, lambda file: load(options, file)):
            if cold:
                forget(path)
            else:
                read_seconds(path)
            times.append(work(path))
        seconds, peak = times[1]
        reads.append(times[0])
        loads.append(seconds)
        ratios.append(seconds / times[0])
        peaks.append(peak)
    return [spread(reads, 2), spread(loads, 2), spread(ratios, 2), spread(peaks, 3)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=str(ROOT / "build" / "release" / "paceline"))
    parser.add_argument("--shape", type=Path, default=ROOT / "configs" / "shapes" / "llama-1b.toml")
    parser.add_argument("--types", default="q8_0,q4_1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", help="where the files are made (a few GB)")
    options = parser.parse_args()
    print("type\tGB\tpages\tread, s\tload, s\tload over read\tpeak over packed weights")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        source = Path(name) / "bf16.gguf"
        write_gguf(read_shape(options.shape), source)
        for kind in options.types.split(","):
            path = convert(options, source, kind)
            for cold in (False, True):
                row = measure(options, path, cold)
                print("\t".join([kind, f"{path.stat().st_size / 1e9:.2f}", "cold" if cold else "warm", *row]), flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
