#!/usr/bin/env python3
"""llama.cpp on a shape of configs/shapes: the same batches as paceline_cuda_bench times.

    bench/build_llama_cpp --cuda                       # once: the peer, outside this tree
    bench/cuda/llama_peer.py --shape configs/shapes/llama-8b.toml --json 8b.llama.json
    bench/cuda/llama_peer.py --shape configs/shapes/smollm2-135m.toml --gguf SmolLM2.gguf

llama.cpp reads files: without --gguf one of the shape with synthetic bf16 weights is written to --work
(synthetic_gguf.py; 16 GB for 8B) and removed at the end. All layers are on the GPU, flash attention is on,
keys and values are f16.

    tg128, pp2048    llama-bench: tokens one by one from an empty context, and a prompt in batches of 512 and 2,048
    batches          llama-batched-bench: N sequences that share a prompt of C tokens, one token of each in a
                     step; logits of all rows come to the host, and no token is drawn from them

Its steps go on from C, so the mean context of a figure is STEPS / 2 more. Python's standard library only.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cache_folder import LLAMA_CPP  # noqa: E402: by the line above
from peer_report import (Report, add_card_options, card, microseconds, read_shape,  # noqa: E402: by the line above
                         share_of)
from synthetic_gguf import write_gguf  # noqa: E402: likewise

NEEDED = ("llama-bench", "llama-batched-bench")
STEPS = 32  # of a batch; their mean is one figure
UBATCHES = (512, 2048)  # rows of a batch of the prompt


def programs(folder: Path) -> dict[str, Path]:
    """By name, of a build for a GPU; empty where one is missing."""
    for place in (folder / "cuda" / "bin", folder / "bin", folder):
        found = {name: place / name for name in NEEDED if os.access(place / name, os.X_OK)}
        if len(found) == len(NEEDED):
            return found
    return {}


def json_lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class Peer:
    def __init__(self, options, report: Report):
        self.options, self.report = options, report
        self.programs = programs(options.llama)
        self.shape = read_shape(options.shape)
        self.begin = time.monotonic()

    def output_of(self, name: str, *arguments) -> str:
        command = [str(self.programs[name]), *map(str, arguments)]
        self.report.say(name, shlex.join(command))
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                                  timeout=self.options.timeout)
        except subprocess.TimeoutExpired:
            sys.exit(f"llama_peer: {name} was not done after {self.options.timeout} s")
        if done.returncode != 0:
            last = "\n".join(done.stderr.splitlines()[-8:])
            sys.exit(f"llama_peer: {name}: exit code {done.returncode}\n{last}")
        return done.stdout

    def bench(self, model: Path) -> None:
        """tg128 and pp2048, llama.cpp's own yardsticks."""
        decode, prompt = self.options.generate, self.options.prefill
        said = json_lines(self.output_of(
            "llama-bench", "-m", model, "-ngl", 99, "-fa", 1, "-p", prompt, "-n", decode, "-b", max(UBATCHES),
            "-ub", ",".join(map(str, UBATCHES)), "-r", self.options.rounds, "-o", "jsonl"))
        if not said:
            sys.exit("llama_peer: llama-bench printed no line of JSON")
        first = said[0]
        self.report.say("build", f"llama.cpp {first.get('build_commit')}, {first.get('backends')}, "
                        f"{first.get('gpu_info')}; {first.get('model_type')}")
        rows, figures = [], self.report.figures
        for line in said:
            seconds = statistics.median(line["samples_ns"]) / 1e9
            tokens = line["n_prompt"] or line["n_gen"]
            name = f"pp{tokens}, -ub {line['n_ubatch']}" if line["n_prompt"] else f"tg{tokens}"
            if line["n_prompt"]:
                operations = self.shape.prefill_operations(tokens)
                figures[f"prefill.wall.seconds.{line['n_ubatch']}"] = seconds
                if self.options.flops:
                    share = operations / seconds / self.options.flops
                    figures[f"prefill.share.{line['n_ubatch']}"] = share
                    figures["prefill.share"] = max(share, figures.get("prefill.share", 0.0))
                of_card = [f"{operations / seconds / 1e12:.1f}", share_of(operations / seconds, self.options.flops)]
            elif f"decode.seconds.{tokens}" in figures:
                continue  # the other size of a batch: nothing for single tokens
            else:
                figures[f"decode.seconds.{tokens}"] = seconds / tokens
                of_card = ["", ""]
            rows.append([name, f"{1e3 * seconds:.2f}", f"{tokens / seconds:.0f}", *of_card])
        self.report.add("llama-bench", ["test", "ms", "tokens/s", "TFLOP/s", "of the data sheet"], rows)

    def batches(self, model: Path) -> None:
        counts, contexts = self.options.rows, self.options.contexts
        said = json_lines(self.output_of(
            "llama-batched-bench", "-m", model, "-ngl", 99, "-fa", "on", "-kvu", "-pps",
            "-c", max(contexts) + max(counts) * STEPS, "-b", 2048, "-ub", 512,
            "-npp", ",".join(map(str, contexts)), "-ntg", STEPS,
            "-npl", ",".join(map(str, counts * self.options.rounds)), "--output-format", "jsonl"))
        taken: dict[tuple[int, int], list[float]] = {}
        for line in said:
            taken.setdefault((line["pl"], line["pp"]), []).append(line["t_tg"] / line["tg"])
        rows, figures = [], self.report.figures
        for context in contexts:
            for count in counts:
                if (count, context) not in taken:
                    rows.append([str(count), str(context), "not measured", "", "", "", ""])
                    continue
                seconds = statistics.median(taken[count, context])
                one = figures.get(f"batch.wall.seconds.1.{context}", seconds)
                figures[f"batch.wall.seconds.{count}.{context}"] = seconds
                figures[f"batch.wall.ratio.{count}.{context}"] = seconds / one
                # Of a bf16 file: weights of another kind have other bytes.
                read = 0 if self.options.gguf else self.shape.batch_bytes(count, context + STEPS // 2)
                rows.append([str(count), str(context), microseconds(seconds), f"{seconds / one:.3f}",
                             f"{count / seconds:.0f}", *([f"{read / seconds / 1e9:.0f}",
                             share_of(read / seconds, self.options.bandwidth)] if read else ["-", "-"])])
        self.report.add("Batches, logits of all rows on the host",
                        ["rows", "context", "wall µs", "of one row", "tokens/s wall", "GB/s", "of a copy"], rows)

    def run(self) -> None:
        report = self.report
        report.begin(True)
        report.say("shape", f"{self.options.shape} ({self.shape.name})")
        with tempfile.TemporaryDirectory(dir=self.options.work, prefix="llama-peer-") as folder:
            model = self.options.gguf
            if model is None:
                model, begin = Path(folder) / f"{self.shape.name}.gguf", time.monotonic()
                size = write_gguf(self.shape, model)
                report.say("file", f"synthetic, {size / 1e9:.2f} GB in {time.monotonic() - begin:.1f} s")
            else:
                report.say("file", str(model))
            self.bench(model)
            self.batches(model)
        report.say("seconds", f"{time.monotonic() - self.begin:.0f}")
        report.say("card afterwards", card())


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=Path, required=True)
    parser.add_argument("--llama", type=Path, default=LLAMA_CPP, help="folder of bench/build_llama_cpp --cuda")
    parser.add_argument("--gguf", type=Path, help="this file instead of synthetic weights")
    parser.add_argument("--work", type=Path, help="where a synthetic file lies for the time being")
    parser.add_argument("--rows", type=numbers, default=[1, 8, 16])
    parser.add_argument("--contexts", type=numbers, default=[64, 512, 2048])
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--prefill", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeout", type=int, default=150, help="seconds for each of the two programs")
    add_card_options(parser)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not programs(options.llama):
        print(f"llama_peer: {' and '.join(NEEDED)} are not in {options.llama}: bench/build_llama_cpp --cuda makes them",
              file=sys.stderr)
        return 77
    report = Report()
    Peer(options, report).run()
    report.write(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
