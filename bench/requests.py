#!/usr/bin/env python3
"""Many requests at once: throughput against llama.cpp, and how long prompts delay the others.

    bench/build_llama_cpp /tmp/llama                  # once: the peer, outside this tree
    bench/requests.py --llama /tmp/llama [--requests 1,2,4,8,16,32,64] [--rounds 3] [--sections peer,long,mixed]

    peer    prompts of 128 tokens and answers of 128, all at once: tokens/s, prompts included, of
            `paceline serve` with and without speculation over those of llama-batched-bench (S t/s),
            same file, same cores, alternating. Paceline's side counts HTTP and its clients.
    long    8 streams decode while prompts of 4,000 tokens join one after the other, with and without
            speculation: p50 and p99 of the time between two events of a stream (an event has the
            tokens of one batch), and the same without the long prompts
    mixed   32 requests of 10 to 4,000 tokens at once: first token of the slowest of the short ones
            (below 100 tokens), over that of the same request alone

Medians over the rounds with their range; ratios are formed per round. Nothing else may run on the
machine. Clients are threads of this process, on the cores of the stages.
"""

import argparse
import http.client
import json
import pathlib
import statistics
import subprocess
import sys
import threading
import time

import serving
from cache_folder import DEMO_MODEL

PROMPT, ANSWER = 128, 128
LONG = 4000
WORDS = ("A clerk of a small library writes down which book was lent, to whom, when it is due and what it costs "
         "when it comes back late. ").split()


def tokens_of(server, text):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/tokenize", json.dumps({"content": text}), {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())["tokens"]


class Prompts:
    """Token ids: `make(n)` has n of them and begins like no other."""

    def __init__(self, server):
        self.server, self.count = server, 0
        self.text = tokens_of(server, " ".join(WORDS * 400))

    def make(self, length):
        self.count += 1
        subject = serving.prompts(self.count)[-1]
        head = tokens_of(self.server, f"Number {self.count}. {subject} ")
        return (head + self.text)[:length]


class Stream:
    """One streamed completion; its times are seconds since `begun`."""

    def __init__(self, server, prompt, tokens, speculation, begun):
        self.server, self.begun, self.tokens, self.moments = server, begun, 0, []
        self.body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                     "stream_options": {"include_usage": True, "continuous_usage_stats": True},
                     "paceline": {"speculation": speculation}}
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
        for event in serving.events(connection, "/v1/completions", self.body):
            counted = serving.tokens_in(event, self.tokens)
            if counted > self.tokens:
                self.moments.append((time.monotonic() - self.begun, counted - self.tokens))
                self.tokens = counted

    def gaps(self, begin, end):
        """Seconds between two events, of those that end in this time."""
        return [now - before for (before, _), (now, _) in zip(self.moments, self.moments[1:]) if begin < now < end]


def ours(server, prompts, count, speculation):
    asked = [prompts.make(PROMPT) for _ in range(count)]
    begun = time.monotonic()
    streams = [Stream(server, prompt, ANSWER, speculation, begun) for prompt in asked]
    for stream in streams:
        stream.thread.join()
    if any(stream.tokens != ANSWER for stream in streams):
        sys.exit("bench/requests.py: an answer is shorter than asked for")
    return count * (PROMPT + ANSWER) / (time.monotonic() - begun)


def theirs(options, count):
    command = [str(options.llama / "native/bin/llama-batched-bench"), "-m", str(options.model), "-t",
               str(options.threads), "-c", str(count * (PROMPT + ANSWER) + 64), "-npp", str(PROMPT), "-ntg", str(ANSWER),
               "-npl", str(count), "--output-format", "jsonl"]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-1000:]}")
    return lines[-1]["speed"]


def peer(options, server, prompts):
    print("requests  on tokens/s  off tokens/s  llama.cpp tokens/s  on/llama.cpp  on/off")
    for count in options.requests:
        rounds = [(ours(server, prompts, count, "on"), theirs(options, count), ours(server, prompts, count, "off"))
                  for _ in range(options.rounds)]
        rates = [f"{statistics.median(values):11.0f}" for values in zip(*rounds)]
        print(f"{count:8}  {rates[0]}  {rates[2]}  {rates[1]}  "
              f"{serving.spread([on / them for on, them, _ in rounds])}  "
              f"{serving.spread([on / off for on, _, off in rounds])}", flush=True)


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))]


def decoding_beside(server, prompts, joins, speculation):
    """Gaps of 8 streams between the first token of the last of them and the end of the first, or of a
    long prompt's time to its first token."""
    begun = time.monotonic()
    streams = [Stream(server, prompts.make(60), 400, speculation, begun) for _ in range(8)]
    while any(not stream.moments for stream in streams):
        time.sleep(0.01)
    first = time.monotonic() - begun
    if joins:
        Stream(server, prompts.make(LONG), 1, speculation, begun).thread.join()
    joined = time.monotonic() - begun
    for stream in streams:
        stream.thread.join()
    last = min(stream.moments[-1][0] for stream in streams)
    end = min(joined, last) if joins else last
    gaps = [gap for stream in streams for gap in stream.gaps(first, end)]
    return percentile(gaps, 0.5) * 1000, percentile(gaps, 0.99) * 1000


def long(options, server, prompts):
    print("8 streams                  p50 ms  p99 ms  p99/p50")
    for speculation in ("off", "on"):
        for name, joins in (("alone", False), ("beside a long prompt", True)):
            rounds = [decoding_beside(server, prompts, joins, speculation) for _ in range(options.rounds)]
            print(f"{name + ', ' + speculation:26} {statistics.median(p50 for p50, _ in rounds):6.1f}  "
                  f"{statistics.median(p99 for _, p99 in rounds):6.1f}  "
                  f"{serving.spread([p99 / p50 for p50, p99 in rounds])}", flush=True)


def mixed(options, server, prompts):
    lengths = [10 + (LONG - 10) * i * i // (31 * 31) for i in range(32)]
    ratios, batch, alone = [], [], []
    for _ in range(options.rounds):
        asked = [prompts.make(length) for length in lengths]
        begun = time.monotonic()
        streams = [Stream(server, prompt, 16, "on", begun) for prompt in reversed(asked)]
        for stream in streams:
            stream.thread.join()
        slowest = max((stream for stream in streams if len(stream.body["prompt"]) < 100),
                      key=lambda stream: stream.moments[0][0])
        begun = time.monotonic()
        again = Stream(server, prompts.make(len(slowest.body["prompt"])), 16, "on", begun)
        again.thread.join()
        batch.append(slowest.moments[0][0])
        alone.append(again.moments[0][0])
        ratios.append(batch[-1] / alone[-1])
    print(f"mixed: first token of the slowest short request {serving.spread(batch)} s, alone {serving.spread(alone)} s, "
          f"ratio {serving.spread(ratios)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=serving.ROOT / "build/release/paceline")
    parser.add_argument("-m", "--model", default=DEMO_MODEL)
    parser.add_argument("--llama", type=pathlib.Path, help="folder of bench/build_llama_cpp; needed by `peer`")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--requests", default="1,2,4,8,16,32,64")
    parser.add_argument("--threads", type=int, default=2, help="of llama.cpp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sections", default="peer,long,mixed")
    options = parser.parse_args()
    options.requests = [int(count) for count in options.requests.split(",")]
    options.clients = [64]
    if "peer" in options.sections and options.llama is None:
        parser.error("peer needs --llama")
    server = serving.Server(options, context=8192)
    prompts = Prompts(server)
    for section, run in (("peer", peer), ("long", long), ("mixed", mixed)):
        if section in options.sections.split(","):
            run(options, server, prompts)
    server.stop()


if __name__ == "__main__":
    main()
