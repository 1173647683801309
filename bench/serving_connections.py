#!/usr/bin/env python3
"""What many clients that do nothing useful cost `paceline serve`: memory, and the pace of those that decode.

    bench/serving_connections.py [--idle 10000] [--slow 1000] [--streams 4] [--rounds 3] [--method NAME] [--out F.tsv]

Crowds are connections of a process of their own, with descriptor limits raised as far as they go:

    idle        connected, without a request
    slow-heads  a request's head, one byte a second
    slow-reads  many requests for the page at once, and nothing of the answers is read

In alternation, without and with each crowd: streams of one server side by side, with "speculation" on; p50 and p99 of
the time between two chunks over all streams, and tokens/s. Printed: the number of connections that the server had, the
memory that one of them costs it (resident, of the server's process), and ratios with over without, formed per round:
medians with their range. Clients are on the cores of the stages. Nothing else may run on the machine.
"""

import argparse
import http.client
import pathlib
import re
import resource
import select
import socket
import statistics
import subprocess
import sys
import threading
import time

from cache_folder import DEMO_MODEL
from serving import ROOT, events, prompts, spread, tokens_in
from serving_peers import CONTEXT, Served, body_of, head_of

KINDS = ("idle", "slow-heads", "slow-reads")
STEP_S = 1.0  # of a slow head


def raise_descriptors():
    """Returns how many connections the server then takes: half of its descriptors."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard // 2


def crowd(kind, count, port):
    """In a process of its own: keeps `count` connections until stdin ends."""
    raise_descriptors()
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def connected():
        one = socket.socket()
        if kind == "slow-reads":
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", port))
        if kind == "slow-reads":
            one.sendall(head * 40)
        one.setblocking(False)
        return one

    held = []
    for _ in range(count):
        try:
            held.append(connected())
        except OSError as error:
            print(f"after {len(held)} connections: {error}", file=sys.stderr)
            break
    print(len(held), flush=True)
    step = 0
    while not select.select([sys.stdin], [], [], STEP_S)[0]:
        step += 1
        if kind != "slow-heads":
            continue
        for index, one in enumerate(held):
            try:
                one.send(head[step % len(head):step % len(head) + 1])
            except BlockingIOError:
                pass
            except OSError:  # its time for a head was over: another one
                one.close()
                held[index] = connected()


class Crowd:
    def __init__(self, kind, count, port):
        command = [sys.executable, __file__, "--crowd", kind, str(count), str(port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.count = int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def resident_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def metric(port, name):
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        text = b"".join(iter(lambda: one.recv(65536), b"")).decode()
    return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])


def streams(server, options):
    """p50 and p99 between two chunks (ms), tokens/s."""
    gaps, tokens = [], []
    salt = str(time.monotonic_ns())

    def one(prompt):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        body = body_of(prompt, options.n, "on", salt)
        last = None
        for event in events(connection, "/v1/chat/completions", body):
            tokens.append(tokens_in(event))
            if any(choice["delta"].get("content") for choice in event["choices"]):
                now = time.monotonic()
                if last is not None:
                    gaps.append(now - last)
                last = now

    begun = time.monotonic()
    threads = [threading.Thread(target=one, args=(prompt,)) for prompt in prompts(options.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    gaps.sort()
    return {"p50": 1000 * gaps[len(gaps) // 2], "p99": 1000 * gaps[len(gaps) * 99 // 100], "rate": sum(tokens) / seconds}


def with_crowd(kind, server, options):
    count = options.idle if kind == "idle" else options.slow
    before = resident_kib(server.process.pid)
    made = Crowd(kind, count, server.port)
    try:
        time.sleep(1.0)
        reached = int(metric(server.port, "paceline_http_connections")) - 1
        kib = (resident_kib(server.process.pid) - before) / max(1, reached)
        return {**streams(server, options), "reached": reached, "kib": kib}
    finally:
        made.end()


def wait_alone(server):
    until = time.monotonic() + 60
    while metric(server.port, "paceline_http_connections") > 1 and time.monotonic() < until:
        time.sleep(0.1)


def main():
    if sys.argv[1:2] == ["--crowd"]:
        return crowd(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline")
    parser.add_argument("--model", type=pathlib.Path, default=DEMO_MODEL)
    parser.add_argument("--method", default="prompt-lookup")
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--slow", type=int, default=1_000)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("-n", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    most = raise_descriptors() - options.streams - 8  # places for those that decode, and for metrics
    options.idle, options.slow = min(options.idle, most), min(options.slow, most)
    server = Served([str(options.paceline), "serve", "-m", str(options.model), "--port", "0", "-c", str(CONTEXT),
                     "--requests", str(options.streams), "--method", options.method], None)
    lines = [*head_of(options, "bench/serving_connections.py")[:5], "crowd\tfigure\tmedian\tleast\tmost"]
    try:
        streams(server, options)  # warm
        for kind in KINDS:
            rounds = []
            for _ in range(options.rounds):
                wait_alone(server)
                alone = streams(server, options)
                rounds.append((alone, with_crowd(kind, server, options)))
            rows = {"connections": [w["reached"] for _, w in rounds], "KiB each": [w["kib"] for _, w in rounds],
                    "p99 ms without": [a["p99"] for a, _ in rounds], "p99 ms with": [w["p99"] for _, w in rounds]}
            rows |= {f"{figure} with/without": [w[figure] / a[figure] for a, w in rounds] for figure in ("p50", "p99", "rate")}
            for figure, values in rows.items():
                print(f"{kind:10} {figure:18} {spread(values)}", flush=True)
                lines.append("\t".join([kind, figure, *(f"{each:.3f}" for each in
                                                        (statistics.median(values), min(values), max(values)))]))
    finally:
        server.stop()
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
