#!/usr/bin/env python3
"""Keeps one `paceline serve` alive under mixed clients, cancels and kills, and says what came of it.

    tests/soak_run/serve_soak.py [--minutes 60] [--clients 8] [--fault-every 5] [--method four-stages] [--seed 1]

Clients ask, each in a way drawn at random: whole answers and streams, greedy and drawn, chat and completions, streams
that are left after some events, and streams that are left and resumed. Every text is compared with that of
`paceline run --method plain`; every --fault-every seconds a stage is killed. The memory (resident) and the descriptors
of the server's process are sampled each second; the first quarter of the run is left out of their slopes.

Exit code 1: a wrong byte, an answer that failed, a client that waited longer than --hang-limit, a slope above its bound
(1 MiB and one descriptor an hour; in a short run what noise makes: 8 MiB and 8 descriptors over the sampled time), an
exit code of the server other than 0, a process that is left. It stops by itself.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/fixtures/models/tiny-chat.gguf"
WORDS = "one two three four five six seven eight nine ten".split()
HOUR = 3600.0


class Failure(Exception):
    """What ends the run with exit code 1."""


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}


def drawn_requests(count, seed):
    """Prompts of several lengths, with greedy and drawn answers of several lengths."""
    chance = random.Random(seed)
    made = []
    for index in range(count):
        words = [chance.choice(WORDS) for _ in range(chance.choice([3, 12, 40, 90]))]
        made.append({"prompt": " ".join(words), "max_tokens": chance.choice([1, 8, 24, 60]),
                     "temperature": 0 if index % 2 else 0.8, "seed": 100 + index})
    return made


def plain_text(options, request):
    command = [options.paceline, "run", "-m", options.model, "--method", "plain", "-q", "-c", "512",
               "-p", request["prompt"], "-n", str(request["max_tokens"]), "--temp", str(request["temperature"]),
               "--seed", str(request["seed"])]
    done = subprocess.run(command, capture_output=True, check=True, env=environment())
    return done.stdout.decode(errors="replace")


def stages_of(pid):
    """Processes of the server, by name."""
    found = {}
    children = Path(f"/proc/{pid}/task/{pid}/children")
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split() if (task / "children").exists() else []:
            try:
                found[int(child)] = Path(f"/proc/{child}/comm").read_text().strip()
            except OSError:
                continue
    assert children.exists(), "the kernel lists no children"
    return found


def slope(samples):
    """Per hour, by least squares; samples are (seconds, value)."""
    count = len(samples)
    mean_t = sum(t for t, _ in samples) / count
    mean_v = sum(v for _, v in samples) / count
    spread = sum((t - mean_t) ** 2 for t, _ in samples)
    return HOUR * sum((t - mean_t) * (v - mean_v) for t, v in samples) / spread if spread else 0.0


class Server:
    def __init__(self, options):
        # As many restarts as the kills of a day need.
        config = Path(options.folder) / "soak.toml"
        config.write_text(f'extends = "{options.method}"\n[supervision]\nrestarts_max = 1000000\nbackoff_ms = [0]\n')
        command = [options.paceline, "serve", "-m", options.model, "--port", "0", "-c", "512", "--requests", "4",
                   "--queue", "64", "--config", str(config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=environment())
        said = []
        for line in self.process.stdout:
            said.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        else:
            raise Failure("the server did not start: " + "".join(said))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def get(self, path, timeout):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()

    def wait_healthy(self):
        while self.get("/health", 30)[0] != 200:
            time.sleep(0.05)

    def sample(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return (int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024,
                len(os.listdir(f"/proc/{self.process.pid}/fd")))


class Client:
    """One request after the other until the end."""

    def __init__(self, soak, number):
        self.soak = soak
        self.chance = random.Random(1000 * soak.options.seed + number)

    def run(self):
        try:
            while not self.soak.over.is_set():
                getattr(self, self.chance.choice(["whole", "stream", "leave", "resume", "completion"]))()
        except (Failure, OSError, http.client.HTTPException, ValueError) as error:
            self.soak.fail(f"{type(error).__name__}: {error}")

    def draw(self):
        index = self.chance.randrange(len(self.soak.requests))
        request = self.soak.requests[index]
        body = {"messages": [{"role": "user", "content": request["prompt"]}],
                **{key: request[key] for key in ("max_tokens", "temperature", "seed")}}
        return body, self.soak.texts[index]

    def post(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.soak.server.port,
                                                timeout=self.soak.options.hang_limit)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status in (429, 503):  # full, or a stage is away for long: told to come back
            response.read()
            self.soak.count("refused")
            time.sleep(0.2)
            return connection, None
        if response.status != 200:
            raise Failure(f"{path}: status {response.status}: {response.read()[:300]!r}")
        return connection, response

    def check(self, got, expected, kind):
        if got != expected.rstrip("\n") and got != expected:
            raise Failure(f"{kind}: {got!r} instead of {expected!r}")
        self.soak.count(kind)

    def whole(self):
        body, expected = self.draw()
        connection, response = self.post("/v1/chat/completions", body)
        if response:
            self.check(json.loads(response.read())["choices"][0]["message"]["content"] or "", expected, "whole")
        connection.close()

    def completion(self):
        """Its prompt is read as it is: the answer is only asked for twice, and must be the same."""
        body, _ = self.draw()
        prompt = body.pop("messages")[0]["content"]
        texts = []
        for _ in range(2):
            connection, response = self.post("/v1/completions", {"prompt": prompt, **body})
            if not response:
                return connection.close()
            texts.append(json.loads(response.read())["choices"][0]["text"])
            connection.close()
        return self.check(texts[1], texts[0], "completion")

    def events(self, response):
        """(id, text) of each event of a stream that has not ended."""
        number = None
        for line in response:
            if line.startswith(b"id: "):
                number = int(line[4:])
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise Failure(f"an event says {event['error']}")
            yield number, event.get("id"), "".join(
                choice["delta"].get("content") or "" for choice in event.get("choices", []))

    def stream(self):
        body, expected = self.draw()
        connection, response = self.post("/v1/chat/completions", {**body, "stream": True})
        if response:
            self.check("".join(text for _, _, text in self.events(response)), expected, "stream")
        connection.close()

    def leave(self):
        body, _ = self.draw()
        connection, response = self.post("/v1/chat/completions", {**body, "stream": True})
        if response:
            for _ in zip(range(self.chance.randrange(6)), self.events(response)):
                pass
            self.soak.count("left")
        if connection.sock:
            connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()

    def resume(self):
        body, expected = self.draw()
        connection, response = self.post("/v1/chat/completions",
                                         {**body, "stream": True, "paceline": {"resume": True}})
        if not response:
            return connection.close()
        text, last, stream = "", None, None
        for _, (number, stream, piece) in zip(range(1 + self.chance.randrange(5)), self.events(response)):
            text, last = text + piece, number if number is not None else last
        connection.close()
        if stream is None or last is None:
            return None
        connection = http.client.HTTPConnection("127.0.0.1", self.soak.server.port,
                                                timeout=self.soak.options.hang_limit)
        connection.request("GET", f"/v1/streams/{stream}", headers={"Last-Event-ID": str(last)})
        response = connection.getresponse()
        if response.status != 200:
            raise Failure(f"resumed: status {response.status}: {response.read()[:300]!r}")
        text += "".join(piece for _, _, piece in self.events(response))
        connection.close()
        return self.check(text, expected, "resumed")


class Soak:
    def __init__(self, options):
        self.options = options
        self.requests = drawn_requests(24, options.seed)
        self.texts = [plain_text(options, request) for request in self.requests]
        self.server = Server(options)
        self.server.wait_healthy()
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.counts = {}
        self.failures = []

    def count(self, kind):
        with self.lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1

    def fail(self, why):
        with self.lock:
            self.failures.append(why)
        self.over.set()

    def kill_one(self, chance):
        stages = stages_of(self.server.process.pid)
        if stages:
            os.kill(chance.choice(sorted(stages)), signal.SIGKILL)
            self.count("killed")

    def run(self):
        clients = [threading.Thread(target=Client(self, number).run) for number in range(self.options.clients)]
        for client in clients:
            client.start()
        chance = random.Random(self.options.seed)
        begun = time.monotonic()
        samples, next_kill = [], self.options.fault_every
        while not self.over.wait(1.0):
            passed = time.monotonic() - begun
            if passed >= 60 * self.options.minutes:
                break
            if passed >= next_kill:
                self.kill_one(chance)
                next_kill += self.options.fault_every
            if self.server.get("/health", self.options.hang_limit)[0] not in (200, 503):
                self.fail("/health")
            if passed >= 15 * self.options.minutes:
                samples.append((passed, *self.server.sample()))
        self.over.set()
        for client in clients:
            client.join()
        return samples

    def finish(self):
        stages = stages_of(self.server.process.pid)
        self.server.process.send_signal(signal.SIGTERM)
        code = self.server.process.wait(timeout=self.options.hang_limit)
        if code != 0:
            self.failures.append(f"the server's exit code is {code}")
        self.failures += [f"process {pid} ({name}) is left" for pid, name in stages.items()
                          if Path(f"/proc/{pid}").exists()]


def judge(soak, samples):
    if len(samples) < 2:
        return
    hours = (samples[-1][0] - samples[0][0]) / HOUR
    for what, index, an_hour, noise in (("MiB", 1, 1.0, 8.0), ("descriptors", 2, 1.0, 8.0)):
        values = [(sample[0], sample[index]) for sample in samples]
        found, bound = slope(values), max(an_hour, noise / hours)
        print(f"{what:12} {min(v for _, v in values):8.1f} .. {max(v for _, v in values):8.1f}   "
              f"{found:+8.2f} an hour, at most {bound:.2f}")
        if found > bound:
            soak.failures.append(f"{what} grow by {found:.2f} an hour")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--fault-every", type=float, default=5, help="seconds between kills; 0.5 at least")
    parser.add_argument("--hang-limit", type=float, default=120, help="seconds that a client waits for a byte")
    parser.add_argument("--method", default="four-stages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default=str(TINY))
    parser.add_argument("--paceline", default=str(ROOT / "build/release/paceline"))
    return parser.parse_args()


def main():
    options = parse_options()
    with tempfile.TemporaryDirectory() as folder:
        options.folder = folder
        soak = Soak(options)
        samples = soak.run()
        soak.finish()
    print("  ".join(f"{kind} {count}" for kind, count in sorted(soak.counts.items())))
    judge(soak, samples)
    for failure in soak.failures:
        print(failure, file=sys.stderr)
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
