"""A `paceline serve` of a test's own, and the requests that tests send to it."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from paceline_cli import BINARY, TINY, environment

LIMIT_S = 120  # of every wait: far beyond what a loaded machine takes


def wait_until(condition, what: str, limit: float = LIMIT_S):
    """The first true value of `condition`."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {limit} s: {what}")


class Answer:
    """A response: status, headers, text, and the JSON or the events in it."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode("utf-8")

    @property
    def json(self) -> dict:
        return json.loads(self.text)

    @property
    def events(self) -> list[dict]:
        return events_of(self.text)

    @property
    def content(self) -> str:
        return "".join(text_of(event) for event in self.events)


def events_of(text: str) -> list[dict]:
    """The JSON of all events but [DONE]."""
    return [event for _, event in events_with_ids(text)]


def events_with_ids(text: str) -> list[tuple[int | None, dict]]:
    """The same with the id of each event; None: it has none."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields.get("data", "[DONE]") != "[DONE]":
            found.append((int(fields["id"]) if "id" in fields else None, json.loads(fields["data"])))
    return found


def text_of(event: dict, index: int = 0) -> str:
    """What a chunk adds to the text of choice `index`."""
    parts = [choice for choice in event.get("choices", []) if choice["index"] == index]
    return "".join(choice["delta"].get("content", "") if "delta" in choice else choice["text"]
                   for choice in parts)


class Stream:
    """A streamed answer that is read bit by bit."""

    def __init__(self, connection: http.client.HTTPConnection,
                 response: http.client.HTTPResponse) -> None:
        self.connection = connection
        self.response = response
        self.text = ""

    def read_until(self, part: str) -> None:
        while part not in self.text:
            line = self.response.readline()
            assert line, f"the stream ended before {part!r}: {self.text!r}"
            self.text += line.decode("utf-8")

    def rest(self) -> str:
        self.text += self.response.read().decode("utf-8")
        self.connection.close()
        return self.text

    def close(self) -> None:
        self.response.close()
        self.connection.close()


# Prompt lookup that always proposes: without the account of costs and gains, which depends on the machine's load.
ALWAYS_PROPOSES = 'extends = "prompt-lookup"\n[schedule]\ncontroller = "off"\n'


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=LIMIT_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Server:
    """The process. `with Server(...) as server:` ends it by SIGTERM and checks its exit code."""

    def __init__(self, *args: str, model: str = TINY, wait_ready: bool = True,
                 place: tuple[str, ...] = ("--port", "0"), variables: dict | None = None,
                 command: tuple[str, ...] = (BINARY, "serve")) -> None:
        """`place`: where it listens; empty: as `variables` or the --config file say."""
        self.process = subprocess.Popen([*command, "-m", model, *place, *args],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        env={**environment(), **(variables or {})})
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        address = wait_until(lambda: self._address() or self.process.poll() is not None, "a port")
        if address is True:
            self.reader.join()
            raise AssertionError("\n".join(self.lines))
        self.host, self.port, self.path = address
        if wait_ready:
            wait_until(lambda: self.get("/health").status == 200, "the model is loaded")

    def _read(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))
        self.process.stderr.close()

    def _address(self):
        found = [m for line in list(self.lines)
                 if (m := re.search(r"listening on (?:http://\[?([^\]]+?)\]?:(\d+)|unix:(.+)),", line))]
        return (found[0][1], int(found[0][2] or 0), found[0][3]) if found else None

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind, *_) -> None:
        if self.process.poll() is None:
            self.continue_stages()
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.reader.join()
        if kind is None and not getattr(self, "ended_by_test", False):
            assert code == 0, f"exit code {code}:\n" + "\n".join(self.lines)

    # ---- Requests

    def connect(self) -> http.client.HTTPConnection:
        if self.path:
            return UnixConnection(self.path)
        return http.client.HTTPConnection(self.host, self.port, timeout=LIMIT_S)

    def ask(self, method: str, path: str, body=None, headers: dict | None = None) -> Answer:
        connection = self.connect()
        try:
            sent = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            given = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, sent, {**given, **(headers or {})})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str, **kwargs) -> Answer:
        return self.ask("GET", path, **kwargs)

    def post(self, path: str, body, **kwargs) -> Answer:
        return self.ask("POST", path, body, **kwargs)

    def chat(self, text: str = "Tell me everything", **fields) -> Answer:
        return self.post("/v1/chat/completions", chat_body(text, **fields))

    def stream(self, body: dict, path: str = "/v1/chat/completions") -> Stream:
        connection = self.connect()
        connection.request("POST", path, json.dumps({**body, "stream": True}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        return Stream(connection, response)

    def raw(self, data: bytes) -> bytes:
        """What comes back for bytes of any kind, until the server closes."""
        with socket.create_connection((self.host, self.port), timeout=LIMIT_S) as client:
            client.sendall(data)
            try:
                client.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the server has ended the connection already
            got = b""
            while block := client.recv(65536):
                got += block
            return got

    def metric(self, name: str) -> float:
        for line in self.get("/metrics").text.splitlines():
            if line.rsplit(" ", 1)[0] == name:
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name}")

    def wait_metric(self, name: str, value: float) -> None:
        wait_until(lambda: self.metric(name) == value, f"{name} is {value}")

    # ---- Processes

    def stages(self) -> list[int]:
        """Process ids of the living stages."""
        found = []
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                found += [int(pid) for pid in (task / "children").read_text().split()]
            except OSError:
                continue
        return sorted(found)

    def stage(self, name: str) -> int:
        """The living process whose name begins so; the kernel keeps 15 letters of "paceline: NAME"."""
        def find():
            return [pid for pid in self.stages()
                    if Path(f"/proc/{pid}/comm").read_text().startswith(f"paceline: {name[:5]}")]
        return wait_until(find, f"a stage {name}")[0]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop_stages(self) -> list[int]:
        """Holds all answers; the stages do nothing until continue_stages()."""
        self.stopped = self.stages()
        for pid in self.stopped:
            os.kill(pid, signal.SIGSTOP)
        return self.stopped

    def continue_stages(self) -> None:
        for pid in getattr(self, "stopped", []):
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.stopped = []


def chat_body(text: str, **fields) -> dict:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


def in_parallel(calls: list) -> list:
    """The results of all calls, each in a thread of its own."""
    results: list = [None] * len(calls)

    def run(index: int) -> None:
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
