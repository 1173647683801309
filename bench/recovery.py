#!/usr/bin/env python3
"""How long an answer stands still when a stage is killed: from SIGKILL to the next text.

    bench/recovery.py [--kills 20] [--per-answer 1] [--config FILE] [--stages front,back]
                      [--words 0] [--retain-mb 0]

Every answer is endless until its kills are done, half a second to three seconds apart (seeded); the
stages are killed alternately. "back" is when the conductor says that the stage is at work again
(started, weights packed, channels made); then what was committed goes through the layers once
more, so the time to the next text grows with the text: --per-answer 10 shows how, and --words N
makes the prompt so much longer. --retain-mb N is the key of the first stage: what it has passed on
need not run there again when another stage is lost. The ids of each answer are compared with those
of one process.
"""

import argparse
import json
import os
import pathlib
import random
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from against_llama_cpp import ROOT
from cache_folder import DEMO_MODEL

QUESTION = "Write a long story about a lighthouse keeper and the sea."
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


def one_answer(command, config, ids, stages, kills, pauses):
    """The times of its kills, its length, and whether it is plain decoding's."""
    answer = Answer([*command, "--config", str(config)])
    answer.wait(lambda: answer.text_bytes() > 0)
    times = []
    for kill in range(kills):
        pause = time.monotonic() + pauses.uniform(0.5, 3.0)
        while time.monotonic() < pause:
            answer.read(pause - time.monotonic())
        stage = stages[kill % len(stages)]
        back, text = one_kill(answer, stage)
        times.append((back, text))
        print(f"{stage:10} back after {back:.3f} s, text after {text:.3f} s "
              f"({answer.text_bytes()} bytes said)", flush=True)
    answer.process.send_signal(signal.SIGINT)
    answer.process.communicate(timeout=60)
    killed = json.loads(ids.read_text())
    subprocess.run([*command, "-n", str(len(killed))], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return times, len(killed), json.loads(ids.read_text()) == killed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=str(ROOT / "build" / "release" / "paceline"))
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--config", default=str(ROOT / "configs" / "cpu-two-segments.toml"))
    parser.add_argument("--stages", default="front,back", help="the ones that are killed alternately")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--per-answer", type=int, default=1)
    parser.add_argument("--words", type=int, default=0, help="that the prompt has besides")
    parser.add_argument("--retain-mb", type=int, default=0, help="of the first stage")
    options = parser.parse_args()
    stages = options.stages.split(",")
    pauses = random.Random(1)

    notes = " ".join(f"On day {day} the lamp burned {day * 7 % 13} hours." for day in range(1, options.words // 8 + 1))
    prompt = f"{notes} {QUESTION}".strip()

    times, tokens, same = [], 0, True
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.toml"
        shape = pathlib.Path(options.config).read_text().split("[supervision]")[0]
        if options.retain_mb:
            shape = shape.replace("[[stage]]", f"[[stage]]\nretain_mb = {options.retain_mb}", 1)
        config.write_text(shape + SUPERVISION)
        ids = pathlib.Path(folder) / "ids.json"
        command = [options.paceline, "run", "-v", "-m", options.model, "-p", prompt, "--logit-bias", "2=-inf",
                   "--ids", str(ids)]
        while len(times) < options.kills:
            some, length, equal = one_answer(command, config, ids, stages, options.per_answer, pauses)
            times, tokens, same = times + some, tokens + length, same and equal
            stages = stages[1:] + stages[:1]
    backs, texts = [back for back, _ in times], [text for _, text in times]
    print(f"\n{len(times)} kills, {tokens} tokens, {'the same as' if same else 'NOT THOSE OF'} one process\n"
          f"back p50 {statistics.median(backs):.3f} s, worst {max(backs):.3f} s\n"
          f"text p50 {statistics.median(texts):.3f} s, p90 {percentile(texts, 0.9):.3f} s, worst {max(texts):.3f} s")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
