#!/usr/bin/env python3
"""`paceline serve` beside llama-server: the same GGUF file, the same cores, the same requests.

    bench/build_llama_cpp                         # once: the peer, outside this tree
    bench/serving_peers.py [--clients 1,2,4,8,16,32] [--rounds 5] [-n 96] [--method NAME] [--out F.tsv]

All servers run at the same time and are asked in alternation, round by round; who is not asked sleeps:

    on, off    paceline serve, with speculation on or off for each request
    peer       llama-server
    peer-spec  llama-server with its own speculation that needs no second model (--peer-speculation)

For each number of clients: as many streaming clients, each asking one prompt after the other, greedy, without
cached prompts. Printed and written: tokens/s, time to the first token, mean time of a token after it (medians over
the rounds with their range), and the ratios of tokens/s and of both times, formed per round. Clients are
threads of one process on the cores of the servers. Nothing else may run on the machine.
"""

import argparse
import datetime
import http.client
import os
import pathlib
import queue
import re
import socket
import statistics
import subprocess
import sys
import threading
import time

from cache_folder import DEMO_MODEL, LLAMA_CPP
from serving import ROOT, events, prompts, spread, tokens_in

CONTEXT = 1024  # tokens of each request


class Served:
    """A server process that is ready; ends with `stop()`."""

    def __init__(self, command, port):
        self.port = port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while self.port is None and (line := self.process.stderr.readline()):
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        until = time.monotonic() + 120
        while self.health() != 200:
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"bench/serving_peers.py: {command[0]} did not start")
            time.sleep(0.05)

    def health(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port or 1)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def stop(self):
        self.process.terminate()
        self.process.wait()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def peer(options, *more):
    """A llama-server for as many clients."""
    port, requests = free_port(), max(options.clients)
    return Served([str(options.llama / "bin/llama-server"), "-m", str(options.model), "-t", "2", "-tb", "2", "-np",
                   str(requests), "-c", str(CONTEXT * requests), "--host", "127.0.0.1", "--cache-ram", "0", "-lv", "1",
                   "--port", str(port), *more], port)


def servers(options):
    requests = str(max(options.clients))
    ours = [str(options.paceline), "serve", "-m", str(options.model), "--port", "0", "-c", str(CONTEXT), "--requests",
            requests, "--method", options.method]
    made = {"ours": Served(ours, None)}
    if not options.no_peer:
        made["peer"] = peer(options)
    if not options.no_peer and options.peer_speculation != "none":
        made["peer-spec"] = peer(options, "--spec-type", options.peer_speculation)
    return made


def body_of(prompt, tokens, kind, salt):
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    if kind in ("on", "off"):
        return {**body, "cache_salt": salt, "paceline": {"speculation": kind}}
    return {**body, "cache_prompt": False}


def stream(connection, body):
    """(tokens, seconds to the first text, mean seconds of a token after it)"""
    begun = time.monotonic()
    first = last = None
    counted = 0
    for event in events(connection, "/v1/chat/completions", body):
        counted = tokens_in(event, counted)
        if any((choice.get("delta") or {}).get("content") for choice in event["choices"]):
            last = time.monotonic()
            first = first or last
    return counted, first - begun, (last - first) / max(1, counted - 1)


def measured(server, kind, clients, options, salt):
    waiting = queue.SimpleQueue()
    asked = prompts(max(clients, options.least))
    for prompt in asked:
        waiting.put(prompt)
    answers = []

    def client():
        while True:
            try:
                prompt = waiting.get_nowait()
            except queue.Empty:
                return
            # Of its own: llama-server ends some that were used before.
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            answers.append(stream(connection, body_of(prompt, options.n, kind, salt)))
            connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    if len(answers) != len(asked):
        sys.exit("bench/serving_peers.py: a client failed")
    return {"rate": sum(answer[0] for answer in answers) / seconds,
            "first": 1000 * statistics.median(answer[1] for answer in answers),
            "between": 1000 * statistics.median(answer[2] for answer in answers)}


def rows_of(clients, kinds, rounds):
    """(clients, server, figure, median, least, most)"""
    for kind in kinds:
        for figure in ("rate", "first", "between"):
            yield clients, kind, figure, [each[kind][figure] for each in rounds]
    pairs = [("on", "off"), ("on", "peer"), ("off", "peer"), ("on", "peer-spec")]
    for one, other in (pair for pair in pairs if pair[1] in kinds):
        for figure in ("rate", "first", "between"):
            yield clients, f"{one}/{other}", figure, [each[one][figure] / each[other][figure] for each in rounds]


def head_of(options, script="bench/serving_peers.py"):
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return [f"# command: {script} {' '.join(sys.argv[1:])}", f"# commit: {commit.stdout.strip()}",
            f"# date: {datetime.date.today()}",
            f"# machine: {os.cpu_count()} virtual cores, {cpu[1] if cpu else 'unknown'}",
            f"# {options.model.name}, method {options.method}, {options.n} tokens an answer, {options.rounds} rounds",
            "# llama-server of llama-cpp-python 0.3.36, GGML_NATIVE=ON. rate: tokens/s of all clients together; first: ms",
            "# to the first text; between: ms of a token after it. A server of two names is the ratio in one round.",
            "clients\tserver\tfigure\tmedian\tleast\tmost"]


def parse_options(text, clients):
    """The command line of a bench of both servers; `clients`: numbers of them, without --clients."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline")
    parser.add_argument("--llama", type=pathlib.Path, default=LLAMA_CPP / "native")
    parser.add_argument("--no-peer", action="store_true", help="leave llama-server out")
    parser.add_argument("--model", type=pathlib.Path, default=DEMO_MODEL)
    parser.add_argument("--method", default="prompt-lookup")
    parser.add_argument("--peer-speculation", default="ngram-simple", help="of llama-server's --spec-type; none: left out")
    parser.add_argument("--clients", type=lambda word: [int(each) for each in word.split(",")], default=clients)
    parser.add_argument("-n", type=int, default=96)
    parser.add_argument("--least", type=int, default=4, help="prompts of a round, where fewer clients ask")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def data_row(*names, values):
    """A line of the data: names, median, least, most."""
    return "\t".join([*map(str, names), *(f"{each:.3f}" for each in (statistics.median(values), min(values), max(values)))])


def main():
    options = parse_options(__doc__, [1, 2, 4, 8, 16, 32])
    made = servers(options)
    kinds = {"on": made["ours"], "off": made["ours"], **{name: one for name, one in made.items() if name != "ours"}}
    lines = head_of(options)
    try:
        for clients in options.clients:
            rounds = []
            for turn in range(options.rounds + 1):
                salt = str(time.monotonic_ns())
                order = list(kinds)[turn % len(kinds):] + list(kinds)[:turn % len(kinds)]
                found = {kind: measured(kinds[kind], kind, clients, options, f"{salt}-{kind}") for kind in order}
                if turn > 0:  # the first warms up
                    rounds.append(found)
            for row in rows_of(clients, kinds, rounds):
                lines.append(data_row(*row[:3], values=row[3]))
                if row[2] == "rate" or "/" not in row[1]:
                    print(f"{clients:3} {row[1]:14} {row[2]:8} {spread(row[3])}", flush=True)
    finally:
        for server in made.values():
            server.stop()
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
