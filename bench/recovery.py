#!/usr/bin/env python3
"""How long an answer stands still when a stage is killed: from SIGKILL to the next text.

    bench/recovery.py [--kills 10] [--config FILE] [--stages front,back]

One endless answer of the demo model; the stages are killed in turns, a second after text has come
again. Each kill is the first within its period, so no back-off is waited for. "back" is when the
conductor says that the stage is at work again (started, weights packed, channels made); then what
was committed goes through the layers once more, so later kills cost more. The ids of the whole
answer are compared with those of one process.
"""

import argparse
import json
import os
import pathlib
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from against_llama_cpp import CACHE, ROOT

PROMPT = ["-p", "Write a long story about a lighthouse keeper and the sea.", "--logit-bias", "2=-inf"]
# Instead of the file's own table.
SUPERVISION = "\n[supervision]\nrestarts_max = 1000\nrestart_period_s = 0.5\nbackoff_ms = [0]\n"


class Answer:
    """A run whose text and news are read as they come."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.streams = {self.process.stdout.fileno(): b"", self.process.stderr.fileno(): b""}

    def read(self, seconds):
        """What comes within `seconds`: the streams that said something."""
        ready, _, _ = select.select(list(self.streams), [], [], max(0.0, seconds))
        for stream in ready:
            block = os.read(stream, 1 << 16)
            if not block:
                sys.exit(f"the run is over:\n{self.news()}")
            self.streams[stream] += block
        return ready

    def text_bytes(self):
        return len(self.streams[self.process.stdout.fileno()])

    def news(self):
        return self.streams[self.process.stderr.fileno()].decode()

    def pid_of(self, stage):
        """Of the newest incarnation: from the placement, later from the news."""
        again = re.findall(rf"stage '{stage}' \(process (\d+)\) is at work again", self.news())
        placed = re.findall(rf"^{stage} +(\d+) ", self.news(), re.MULTILINE)
        return int((again or placed)[-1])

    def wait(self, condition, limit=60):
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                sys.exit(f"nothing happened for {limit} s:\n{self.news()}")
            self.read(deadline - time.monotonic())
        return time.monotonic()


def one_kill(answer, stage):
    back = len(re.findall("is at work again", answer.news()))
    while answer.read(0):
        pass
    begin = time.monotonic()
    os.kill(answer.pid_of(stage), signal.SIGKILL)
    at_work = answer.wait(lambda: len(re.findall("is at work again", answer.news())) > back)
    said = answer.text_bytes()  # what was on its way when the stage died does not count
    next_text = answer.wait(lambda: answer.text_bytes() > said)
    return at_work - begin, next_text - begin


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=str(ROOT / "build" / "release" / "paceline"))
    parser.add_argument("--model", default=str(CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--config", default=str(ROOT / "configs" / "cpu-two-segments.toml"))
    parser.add_argument("--stages", default="front,back", help="the ones that are killed, in turns")
    parser.add_argument("--kills", type=int, default=10)
    options = parser.parse_args()
    stages = options.stages.split(",")

    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.toml"
        shape = pathlib.Path(options.config).read_text().split("[supervision]")[0]
        config.write_text(shape + SUPERVISION)
        ids = pathlib.Path(folder) / "ids.json"
        command = [options.paceline, "run", "-m", options.model, *PROMPT, "--ids", str(ids)]
        answer = Answer([*command, "--config", str(config)])
        answer.wait(lambda: answer.text_bytes() > 0)
        backs, texts = [], []
        for kill in range(options.kills):
            pause = time.monotonic() + 1.0
            while time.monotonic() < pause:
                answer.read(pause - time.monotonic())
            stage = stages[kill % len(stages)]
            back, text = one_kill(answer, stage)
            backs.append(back)
            texts.append(text)
            print(f"kill {kill + 1:2} of {stage:10} back after {back:.3f} s, text after {text:.3f} s "
                  f"({answer.text_bytes()} bytes said)", flush=True)
        answer.process.send_signal(signal.SIGINT)
        answer.process.communicate(timeout=60)
        killed = json.loads(ids.read_text())
        subprocess.run([*command, "-n", str(len(killed))], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        plain = json.loads(ids.read_text())
    print(f"\n{options.kills} kills, {len(killed)} tokens, {'the same as' if killed == plain else 'NOT THOSE OF'} "
          f"one process\nback p50 {statistics.median(backs):.3f} s, worst {max(backs):.3f} s\n"
          f"text p50 {statistics.median(texts):.3f} s, p90 {percentile(texts, 0.9):.3f} s, worst {max(texts):.3f} s")
    return 0 if killed == plain else 1


if __name__ == "__main__":
    sys.exit(main())
