"""The training loop that all parts share: budget, schedule, checkpoints, log, held-out figures.

    train(task, data, options)      task: a Task (below)

A run lives in a folder: checkpoint.pt (everything that is needed to go on; written under another
name and renamed), losses.tsv (step, tokens, minutes, measure, value), card.json (what was done
and what came out). A run whose folder has a checkpoint goes on where that was made; Ctrl-C makes
one first. The order of the data, and so the result on one machine and thread count, follows from
the seed; a run that was interrupted begins a new pass where it went on, or with --resume goes on
with the next batch of the pass: then the result after --steps steps is that of a run that was not
interrupted.
"""

import argparse
import json
import math
import os
import platform
import signal
import time
from pathlib import Path
from typing import Protocol

import torch
from tqdm import tqdm

from .batches import Batch, Data
from .rounding import ROUNDED, rounded

LOG_STEPS = 10
RATE_END = 0.02  # of the peak: what the cosine ends at


class Task(Protocol):
    """What a part has to say for itself."""

    module: torch.nn.Module  # its parameters are trained

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        """Mean loss of a batch, to be differentiated, and measures of it for the log."""

    def evaluate(self, batches) -> dict[str, dict[str, float]]:
        """Figures on held-out batches: {row of the report: {column: value}}."""

    def describe(self) -> dict:
        """What export needs to know: plain numbers, texts and lists."""


def add_loop_arguments(parser: argparse.ArgumentParser, rate: float) -> None:
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="RUN",
                        help="the run's folder; a run that has a checkpoint there goes on")
    parser.add_argument("--resume", action="store_true",
                        help="go on with the batch behind the checkpoint: with --steps the result "
                        "is that of a run without interruption; without, with a new pass")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="at most N steps")
    parser.add_argument("--minutes", type=float, default=0, metavar="M",
                        help="at most M minutes, those between an interruption and the next "
                        "start not counted")
    parser.add_argument("--rate", type=float, default=rate,
                        help="peak of the learning rate (%(default)s)")
    parser.add_argument("--quantise", choices=["none", *ROUNDED], default="none",
                        help="train through the rounding of this type, which export then uses; "
                        "a run may begin without and go on with it (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=0.05, metavar="SHARE",
                        help="share of the budget in which the rate rises (%(default)s)")
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradient")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (%(default)s)")
    parser.add_argument("--dtype", choices=["auto", "f32", "bf16"], default="auto",
                        help="to compute in; auto: bf16 where the device is fast at it")
    parser.add_argument("--checkpoint-minutes", type=float, default=3.0, metavar="M")
    parser.add_argument("--evaluate-minutes", type=float, default=10.0, metavar="M")


def prepare(options) -> None:
    """Threads, seed and type, before anything of torch is made."""
    if not options.steps and not options.minutes:
        raise ValueError("a run needs a budget: --steps or --minutes")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a checkpoint before the end
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    if options.dtype == "auto":
        fast = options.device != "cpu" or torch.cpu._is_avx512_bf16_supported()
        options.dtype = "bf16" if fast else "f32"
    options.kind = torch.bfloat16 if options.dtype == "bf16" else torch.float32


def rate_at(progress: float, peak: float, warm_up: float) -> float:
    """The learning rate when this share of the budget is spent."""
    if progress < warm_up:
        return peak * max(progress / warm_up, 0.01)
    along = (min(progress, 1.0) - warm_up) / (1 - warm_up)
    return peak * (RATE_END + (1 - RATE_END) * 0.5 * (1 + math.cos(math.pi * along)))


class Run:
    """The folder of a run, and how far it is."""

    def __init__(self, task: Task, fingerprint: str, options) -> None:
        self.task = task
        self.fingerprint = fingerprint
        self.options = options
        self.folder: Path = options.out
        self.folder.mkdir(parents=True, exist_ok=True)
        # Matrices decay; norms do not.
        parameters = [p for p in task.module.parameters() if p.requires_grad]
        self.parameters = parameters
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in parameters if p.dim() > 1],
              "weight_decay": options.weight_decay},
             {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}],
            lr=options.rate, betas=(0.9, 0.95), fused=True)
        self.step = self.tokens = self.passes = 0
        self.batches = 0  # of the pass that are done
        self.answers = 0  # of a pass
        self.torn = False  # weights and counters are of different steps
        self.seconds = 0.0
        self._resume()

    def _resume(self) -> None:
        path = self.folder / "checkpoint.pt"
        log = self.folder / "losses.tsv"
        if not path.is_file():
            log.write_text("step\ttokens\tminutes\tmeasure\tvalue\n")
            return
        saved = torch.load(path, map_location=self.options.device, weights_only=True)
        if saved["target"] != self.fingerprint:
            raise ValueError(f"{path}: was trained for target {saved['target']}, the answers are "
                             f"of {self.fingerprint}")
        try:
            self.task.module.load_state_dict(saved["module"])
        except RuntimeError as error:
            raise ValueError(f"{path}: a checkpoint of another part: {error}") from None
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.tokens, self.passes, self.seconds = (
            saved[name] for name in ("step", "tokens", "passes", "seconds"))
        if self.options.resume:
            self.batches, self.answers = saved.get("batches", 0), saved.get("answers", 0)
            if "random" in saved:
                torch.set_rng_state(saved["random"].cpu())
        else:
            self.passes += 1  # the same order again would repeat what this pass has shown
        # Lines that were written behind the checkpoint will be written again.
        lines = log.read_text().splitlines()
        kept = [line for line in lines[1:] if int(line.split("\t")[0]) <= self.step]
        log.write_text("\n".join([lines[0], *kept]) + "\n")
        tqdm.write(f"{path}: goes on after {self.step} steps, {self.tokens} tokens, "
                   f"{self.seconds / 60:.1f} minutes")

    def learn_from(self, answers: int) -> None:
        """Raises ValueError if a run that is resumed would see its batches in another order."""
        if self.answers not in (0, answers):
            raise ValueError(f"{self.folder}: --resume with {answers} answers, the checkpoint was "
                             f"made with {self.answers}; without --resume a new pass begins")
        self.answers = answers

    def save(self) -> None:
        path = self.folder / "checkpoint.pt"
        part = path.with_suffix(".part")
        torch.save({"module": self.task.module.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "step": self.step, "tokens": self.tokens, "passes": self.passes,
                    "seconds": self.seconds, "seed": self.options.seed,
                    "batches": self.batches, "answers": self.answers,
                    "random": torch.get_rng_state(),
                    "quantise": self.options.quantise,
                    "target": self.fingerprint, "part": self.task.describe()}, part)
        os.replace(part, path)

    def as_stored(self):
        """A context in which the module computes as its part file will."""
        return rounded(self.task.module, self.options.quantise)

    def evaluate(self, data: Data) -> dict[str, dict[str, float]]:
        with self.as_stored():
            figures = self.task.evaluate(data.heldout_batches())
        self.log(flat(figures))
        return figures

    def progress(self) -> float:
        """Share of the budget that is spent: 1 and more is the end."""
        steps, minutes = self.options.steps, self.options.minutes
        return max(self.step / steps if steps else 0.0,
                   self.seconds / (60 * minutes) if minutes else 0.0)

    def log(self, measures: dict[str, float]) -> None:
        with open(self.folder / "losses.tsv", "a") as file:
            for name, value in measures.items():
                file.write(f"{self.step}\t{self.tokens}\t{self.seconds / 60:.2f}\t{name}\t"
                           f"{value:.6g}\n")

    def update(self, batch: Batch) -> dict[str, float]:
        """One step; the measures of the batch."""
        rate = rate_at(self.progress(), self.options.rate, self.options.warm_up)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with self.as_stored():
            loss, measures = self.task.loss(batch)
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.options.clip).item()
        # Before the step: weights that are no numbers would replace the last good checkpoint.
        if not (math.isfinite(loss.item()) and math.isfinite(norm)):
            raise ValueError(f"{self.folder}: the loss is {loss.item()}, the norm of its gradient "
                             f"{norm} at step {self.step}; try a smaller --rate")
        self.torn = True
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.batches += 1
        self.tokens += batch.used_tokens
        self.torn = False
        return {"loss": loss.item(), "rate": rate, **measures}


def _mean(window: list[dict[str, float]]) -> dict[str, float]:
    """Of each measure over the steps that have it: a task need not train all it has every time."""
    found: dict[str, list[float]] = {}
    for measures in window:
        for name, value in measures.items():
            found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def flat(figures: dict[str, dict[str, float]]) -> dict[str, float]:
    return {f"heldout.{row}.{column}": value for row, columns in figures.items()
            for column, value in columns.items()}


def train(task: Task, data: Data, options) -> dict[str, dict[str, float]]:
    """Until the budget is spent; leaves the run's files and returns the last held-out figures."""
    task.module.to(options.device)
    run = Run(task, data.fingerprint, options)
    run.learn_from(len(data.answers))
    saved = evaluated = run.seconds
    window: list[dict[str, float]] = []
    clock = time.perf_counter()
    bar = tqdm(total=100, unit="%", desc=str(run.folder.name), mininterval=5,
               bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed}<{remaining} {postfix}")
    try:
        while run.progress() < 1:
            batches = data.training(options.seed + run.passes, run.batches)
            run.answers = len(data.answers)
            for batch in batches:
                window.append(run.update(batch.to(options.device)))
                now = time.perf_counter()
                run.seconds += now - clock
                clock = now
                if run.step % LOG_STEPS == 0:
                    run.log(_mean(window))
                    bar.n = round(100 * min(run.progress(), 1), 1)
                    bar.set_postfix_str(f"loss {_mean(window)['loss']:.3f} step {run.step} "
                                        f"{run.tokens / run.seconds:.0f} tokens/s")
                    window.clear()
                if run.progress() >= 1:
                    break
                if run.seconds - saved > 60 * options.checkpoint_minutes:
                    saved = run.seconds
                    run.save()
                if run.seconds - evaluated > 60 * options.evaluate_minutes:
                    evaluated = run.seconds
                    run.evaluate(data)
            else:
                run.passes += 1
                run.batches = 0
    finally:
        if window:
            run.log(_mean(window))
        if not run.torn:
            run.save()
        bar.close()
    figures = run.evaluate(data)
    write_card(run, data, figures)
    return figures


def write_card(run: Run, data: Data, figures: dict[str, dict[str, float]]) -> None:
    """card.json: what was done, on what, how long it took, and what came out."""
    kept = {name: str(value) if isinstance(value, (Path, torch.dtype)) else value
            for name, value in vars(run.options).items()
            if isinstance(value, (int, float, str, Path, torch.dtype))}
    kept["answers"] = [str(path) for path in run.options.answers]
    kept["heldout"] = [str(path) for path in run.options.heldout]
    card = {
        "part": {key: value for key, value in run.task.describe().items() if key != "tokens"},
        "target": data.fingerprint,
        "target_name": data.target.path.name, "options": kept,
        "answers": len(data.answers), "answer_tokens": sum(len(a) for a in data.answers),
        "heldout_answers": len(data.heldout), "short_list": len(data.short),
        "steps": run.step, "trained_tokens": run.tokens, "passes": run.passes,
        "seconds": round(run.seconds, 1),
        "tokens_per_second": round(run.tokens / max(run.seconds, 1e-9), 1),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
                   f"{run.options.device}, {run.options.threads} threads",
        "torch": torch.__version__, "heldout": figures,
    }
    path = run.folder / "card.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(card, indent=1) + "\n")
    os.replace(part, path)


def print_table(figures: dict[str, dict[str, float]], head: str) -> None:
    """The held-out figures as a table in Markdown."""
    columns = list(dict.fromkeys(c for row in figures.values() for c in row))
    print(f"| {head} | " + " | ".join(c.replace("_", " ") for c in columns) + " |")
    print("| --- |" + " ---: |" * len(columns))
    for name, row in figures.items():
        cells = [f"{row[c]:.3f}" if isinstance(row.get(c), float) else str(row.get(c, ""))
                 for c in columns]
        print(f"| {name} | " + " | ".join(cells) + " |")
