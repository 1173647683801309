#!/usr/bin/env python3
"""What the daemon costs beside its engine, and what its clients see: `paceline serve` over loopback.

    bench/serving.py [--clients 1,2,4,8,16] [--method auto] [--model FILE] [-n 96] [--rounds 3]

For each number of clients, in alternation round by round:

    engine   `paceline check` with so many requests at once: prompts and answers per second of the
             pipeline alone, without the first start
    on, off  as many streaming clients of one server, each asking one prompt after the other, with
             "speculation" on or off for each request: tokens/s, time to the first token, time
             between two chunks (p50 and p99 of the round)

Prints medians over the rounds with their range, and the ratios daemon over engine and on over off,
formed per round. Every text with speculation is compared with that without. Clients are threads of
one process on the same cores as the stages. Nothing else may run on the machine.
"""

import argparse
import http.client
import json
import pathlib
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from cache_folder import DEMO_MODEL

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUBJECTS = ["the sky", "bread", "a bridge", "the tides", "a clock", "glass", "a volcano", "wool",
            "salt", "a compass", "rain", "a violin", "paper", "a lens", "steel", "the moon"]


def prompts(count):
    return [f"Explain in plain words how {SUBJECTS[i % len(SUBJECTS)]} comes about, part {i // len(SUBJECTS) + 1}."
            for i in range(count)]


def events(connection, path, body):
    """The events of a streamed answer; one that is an error, and another status than 200, end the program."""
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.stderr.write(f"{sys.argv[0]}: {response.status} {response.read(1000).decode(errors='replace')}\n")
        sys.exit(1)  # of a client's thread: its answer is missing then
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            sys.exit(f"{sys.argv[0]}: {event['error']}")
        yield event


def tokens_in(event, before=0):
    """Of the answer so far, where the event says it."""
    return (event.get("usage") or {}).get("completion_tokens", before)


class Server:
    def __init__(self, options, context=1024):
        command = [str(options.paceline), "serve", "-m", str(options.model), "--port", "0", "-c", str(context),
                   "--requests", str(max(options.clients)), "--method", options.method]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        else:
            sys.exit("bench/serving.py: the server did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        while self.health() != 200:
            time.sleep(0.05)

    def health(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/health")
        status = connection.getresponse().status
        connection.close()
        return status

    def stream(self, connection, prompt, tokens, speculation, salt):
        """(text, tokens, seconds to the first chunk, seconds between chunks)"""
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0,
                "stream": True, "stream_options": {"include_usage": True}, "cache_salt": salt,
                "paceline": {"speculation": speculation}}
        begun = last = time.monotonic()
        text, first, gaps, counted = "", None, [], 0
        for event in events(connection, "/v1/chat/completions", body):
            counted = tokens_in(event, counted)
            piece = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
            if not piece:
                continue
            now = time.monotonic()
            if first is None:
                first = now - begun
            else:
                gaps.append(now - last)
            last, text = now, text + piece
        return text, counted, first, gaps

    def stop(self):
        self.process.terminate()
        return self.process.wait()


def served(server, clients, options, speculation):
    salt = str(time.monotonic_ns())  # no run finds prompts of another in the cache
    waiting = queue.SimpleQueue()
    asked = prompts(clients * options.each)
    for index, prompt in enumerate(asked):
        waiting.put((index, prompt))
    answers = [None] * len(asked)

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        while True:
            try:
                index, prompt = waiting.get_nowait()
            except queue.Empty:
                return
            answers[index] = server.stream(connection, prompt, options.n, speculation, salt)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    gaps = sorted(gap for answer in answers for gap in answer[3])
    return {"rate": sum(answer[1] for answer in answers) / seconds,
            "first": statistics.median(answer[2] for answer in answers),
            "p50": gaps[len(gaps) // 2], "p99": gaps[len(gaps) * 99 // 100],
            "texts": [answer[0] for answer in answers]}


def engine(clients, options, folder):
    file, out = folder / "prompts.jsonl", folder / "out.json"
    file.write_text("".join(json.dumps({"messages": [{"role": "user", "content": prompt}]}) + "\n"
                            for prompt in prompts(clients * options.each)))
    command = [options.paceline, "check", "-m", options.model, "--method", options.engine, "-c", 1024, "-n", options.n,
               "--requests", clients, "--prompts", file, "--json", out]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    found = json.loads(out.read_text())
    begun = min(each["begun_ms"] for each in found["prompts"])
    ended = max(each["last_token_ms"] for each in found["prompts"])
    return sum(each["tokens"] for each in found["prompts"]) / (ended - begun) * 1000


def spread(values):
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline")
    parser.add_argument("--model", default=DEMO_MODEL)
    parser.add_argument("--method", default="prompt-lookup", help="of the server")
    parser.add_argument("--engine", default=None, help="of `check`; the server's without it")
    parser.add_argument("--clients", type=lambda word: [int(each) for each in word.split(",")], default=[1, 2, 4, 8, 16])
    parser.add_argument("-n", type=int, default=96)
    parser.add_argument("--each", type=int, default=2, help="prompts of each client in a round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.engine = options.engine or options.method
    server = Server(options)
    print("clients  on tokens/s  on/off  on/engine  first s  p50 ms  p99 ms")
    try:
        with tempfile.TemporaryDirectory() as name:
            for clients in options.clients:
                served(server, clients, options, "on")  # warm: costs are known
                rounds = []
                for _ in range(options.rounds):
                    rounds.append((served(server, clients, options, "on"), served(server, clients, options, "off"),
                                   engine(clients, options, pathlib.Path(name))))
                for on, off, _ in rounds:
                    if on["texts"] != off["texts"]:
                        sys.exit("bench/serving.py: a text with speculation differs")
                print(f"{clients:7}  {spread([on['rate'] for on, _, _ in rounds])}  "
                      f"{spread([on['rate'] / off['rate'] for on, off, _ in rounds])}  "
                      f"{spread([on['rate'] / alone for on, _, alone in rounds])}  "
                      f"{spread([on['first'] for on, _, _ in rounds])}  "
                      f"{spread([1000 * on['p50'] for on, _, _ in rounds])}  "
                      f"{spread([1000 * on['p99'] for on, _, _ in rounds])}", flush=True)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
