#!/usr/bin/env python3
"""Paceline's batches on a GPU beside those of its peers, one after the other in one run: a table of ratios.

    bench/cuda/peers.py --shape configs/shapes/llama-8b.toml --out /tmp/peers \\
        --bench build/gpu/bench/cuda/paceline_cuda_bench [--llama FOLDER]

In this order: paceline_cuda_bench, torch_peer.py, llama_peer.py, paceline_cuda_bench again, all with bf16
weights synthesized for the same shape; Paceline's figure is the mean of its two, and how far they are apart
is told. What each printed and its JSON are kept in --out. Exit code 77 where no peer can be brought, with
the reasons; 1 where something failed. Python's standard library only (torch_peer.py needs more).
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from peer_report import Report, read_shape  # noqa: E402: found through the line above

MISSING = 77
PEERS = {"transformers": "torch", "llama.cpp": "llama"}  # as people call them: as files are called


class Failed(Exception):
    """A program ended with an error, or did not end in time."""


class Runs:
    def __init__(self, options, report: Report):
        self.options, self.report = options, report
        self.stem = read_shape(options.shape).name
        self.why: dict[str, str] = {}  # a peer is not there
        self.failed: list[str] = []

    def figures(self, name: str, command: list) -> dict[str, float] | None:
        """Of one program, None where it says that something is missing."""
        written = self.options.out / f"{self.stem}.{name}.json"
        log = written.with_suffix(".log")
        written.unlink(missing_ok=True)
        command = [str(word) for word in [*command, "--shape", self.options.shape, "--json", written]]
        begin = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                                  timeout=self.options.timeout)
        except subprocess.TimeoutExpired as late:
            why = f"{name}: not done after {self.options.timeout} s"
            if not written.exists():
                raise Failed(why) from late
            self.failed.append(why + "; what it had measured by then counts")
            return self.taken(name, written, log, begin)
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
        last = ([line for line in done.stderr.splitlines() if line.strip()] or ["no message"])[-1]
        if done.returncode == MISSING:
            self.why[name] = last
            return None
        if done.returncode != 0:
            raise Failed(f"{name}: exit code {done.returncode}: {last} (all of it in {log})")
        return self.taken(name, written, log, begin)

    def taken(self, name: str, written: Path, log: Path, begin: float) -> dict[str, float]:
        head = json.loads(written.read_text(encoding="utf-8"))
        self.report.say(name, f"{time.monotonic() - begin:.0f} s, {head['card']}, {head.get('versions') or log.name}")
        self.report.figures |= {f"{name}.{figure}": value for figure, value in head["figures"].items()}
        return head["figures"]

    def peer(self, name: str, command: list) -> dict[str, float] | None:
        """The same; one that fails does not take the others along."""
        try:
            return self.figures(name, command)
        except Failed as error:
            self.failed.append(str(error))
            return None

    def all(self) -> tuple[list[dict], dict[str, dict]]:
        """Paceline's figures, twice, and the peers' by name."""
        options = self.options
        own = [options.bench, "--only", "batches", "--rows", ",".join(map(str, options.rows)),
               "--contexts", ",".join(map(str, options.contexts)), "--prefill", options.prefill, *options.own]
        tests = ["--device", "cpu", "--threads", 1] if options.without_gpu else []
        llama = ["--llama", options.llama] if options.llama else []
        cases = ",".join(f"{r}@{c}" for c in self.contexts_by_weight() for r in options.rows)
        ours, theirs = [self.figures("paceline", own)], {}
        card = self.card_options(ours[0] or {})
        found = self.peer("torch", [options.python, HERE / "torch_peer.py", "--cases", cases, "--prefill",
                                    options.prefill, "--seconds", options.seconds, *card, *tests])
        theirs |= {"transformers": found} if found else {}
        found = self.peer("llama", [sys.executable, HERE / "llama_peer.py", *llama, "--work", options.out,
                                    "--rows", ",".join(map(str, options.rows)), "--contexts",
                                    ",".join(map(str, options.contexts)), "--prefill", options.prefill, *card])
        theirs |= {"llama.cpp": found} if found else {}
        again = self.peer("paceline-again", own) if theirs else None
        ours += [again] if again else []
        return ours, theirs

    @staticmethod
    def card_options(ours: dict[str, float]) -> list:
        """Peers' shares are of what Paceline's bench measured, and of the data sheet that it found."""
        known = {"--bandwidth": ours.get("copy.bytes_per_s"), "--flops": ours.get("sheet.flops")}
        return [word for option, value in known.items() if value for word in (option, value)]

    def contexts_by_weight(self) -> list[int]:
        """That of the goals first: what takes too long to compile is left out from the end."""
        return sorted(self.options.contexts, key=lambda context: (context != 512, context))


def best_prefill(figures: dict[str, float]) -> float:
    """Seconds, in batches of the size that suits it best; 0 if there is none."""
    taken = [value for name, value in figures.items() if name.startswith("prefill.wall.seconds.")]
    return min(taken, default=0.0)


def ratio_table(report: Report, options, ours: list[dict], theirs: dict[str, dict]) -> float:
    """Rates and their ratios. Returns how far Paceline's two runs are apart at most, as a share."""
    cases = [(f"batch of {rows} after {context}", rows, lambda f, n=f"batch.wall.seconds.{rows}.{context}": f.get(n, 0))
             for context in options.contexts for rows in options.rows]
    if options.prefill:
        cases.append((f"prefill of {options.prefill}", options.prefill, best_prefill))
    rows, apart = [], 0.0
    for name, count, seconds_of in cases:
        own = [seconds_of(figures) for figures in ours]
        if not all(own):
            continue
        mean = sum(own) / len(own)
        apart = max(apart, max(own) / min(own) - 1)
        cells = [name, f"{count / mean:.0f}"]
        for peer in PEERS:
            seconds = seconds_of(theirs.get(peer, {}))
            cells += [f"{count / seconds:.0f}", f"**{seconds / mean:.2f}**"] if seconds else ["-", "-"]
            if seconds:
                report.figures[f"ratio.{PEERS[peer]}.{name.replace(' ', '.')}"] = seconds / mean
        rows.append(cells)
    report.add("Tokens/s, wall; a ratio above 1: Paceline is faster",
               ["what", "Paceline", *(word for peer in PEERS for word in (peer, f"over {peer}"))], rows)
    return apart


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=Path, required=True)
    parser.add_argument("--bench", type=Path, required=True, help="paceline_cuda_bench")
    parser.add_argument("--llama", type=Path, help="folder of bench/build_llama_cpp --cuda")
    parser.add_argument("--python", default=sys.executable, help="one that has torch and transformers")
    parser.add_argument("--out", type=Path, required=True, help="folder of logs, figures and synthetic files")
    parser.add_argument("--rows", type=numbers, default=[1, 8, 16])
    parser.add_argument("--contexts", type=numbers, default=[64, 512, 2048])
    parser.add_argument("--prefill", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=150, help="that transformers may compile")
    parser.add_argument("--timeout", type=int, default=400, help="seconds for each program")
    parser.add_argument("--without-gpu", action="store_true", help="for tests: transformers on the CPU")
    parser.add_argument("--own", action="append", default=[], metavar="WORD", help="one more word for --bench")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    report = Report()
    report.begin(not options.without_gpu)
    runs = Runs(options, report)
    try:
        ours, theirs = runs.all()
    except (Failed, OSError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    for name, why in runs.why.items():
        report.say(f"{name} is left out", why)
    for failed in runs.failed:
        report.say("failed", failed)
        print(f"peers: {failed}", file=sys.stderr)
    if not theirs:
        print("peers: " + "; ".join(runs.why.values()), file=sys.stderr)
        return 1 if runs.failed else MISSING
    apart = ratio_table(report, options, ours, theirs)
    report.say("Paceline's two runs", f"at most {100 * apart:.1f} % apart")
    report.write(options.out / f"{runs.stem}.peers.json")
    return 1 if runs.failed else 0


if __name__ == "__main__":
    sys.exit(main())
