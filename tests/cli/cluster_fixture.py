"""Two machines of a test: the conductor and agents over loopback, and a link between them that can be cut."""

import contextlib
import select
import socket
import subprocess
import threading
from pathlib import Path

from deeper_model import write_deeper
from paceline_cli import BINARY, CliTest, TINY, environment, paceline

DRAFT_AWAY = ('[[stage]]\nname = "draft"\nrole = "draft"\nnode = "b"\n'
              '[[stage]]\nname = "target"\nrole = "segment"\n'
              '[draft]\nsource = "prompt-lookup"\ngamma = 6\nmin_ngram = 1\nmax_ngram = 3\n')
SEGMENT_AWAY = ('[[stage]]\nname = "draft"\nrole = "draft"\n'
                '[[stage]]\nname = "first"\nrole = "segment"\nlayers = "auto"\nthreads = 1\n'
                '[[stage]]\nname = "second"\nrole = "segment"\nlayers = "auto"\nthreads = 1\nnode = "b"\n'
                '[draft]\nsource = "prompt-lookup"\ngamma = 6\nmin_ngram = 1\nmax_ngram = 3\n')
ALL_AWAY = SEGMENT_AWAY.replace('role = "draft"\n', 'role = "draft"\nnode = "b"\n').replace(
    'name = "first"\n', 'name = "first"\nnode = "b"\n')


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Wire:
    """A TCP proxy between the agent and the conductor that can be cut, and held."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.flows = threading.Event()
        self.flows.set()
        self.lock = threading.Lock()
        self.open: list[socket.socket] = []
        self.over: list[socket.socket] = []
        self.threads: list[threading.Thread] = []
        self.begin(self.accept)

    def begin(self, work, *args) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()

    def accept(self) -> None:
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.open += [near, far]
            for source, sink in ((near, far), (far, near)):
                self.begin(self.move, source, sink)

    def move(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(65536):
                self.flows.wait()
                sink.sendall(block)
        self.flows.wait()  # an end is held as well
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        with self.lock:
            cut, self.open = self.open, []
        for one in cut:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            self.over.append(one)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self.flows.set()
        self.cut()
        for thread in self.threads:
            thread.join(10)
        self.cut()
        for one in [self.server, *self.over]:
            one.close()


class Cluster(CliTest):
    def setUp(self) -> None:
        super().setUp()
        self.key = self.folder / "cluster.key"
        done = paceline("agent", "--new-key", str(self.key))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.models = self.folder / "models"
        self.models.mkdir()
        self.model = write_deeper(TINY, self.models / "deeper.gguf", 4)
        self.port = free_port()

    def config(self, text: str) -> str:
        path = self.folder / "pipeline.toml"
        path.write_text('[pipeline]\nname = "test"\n' + text)
        return str(path)

    def agent(self, *args: str, port: int = 0, key: Path | None = None, models: Path | None = None,
              name: str = "b") -> subprocess.Popen:
        process = subprocess.Popen(
            [BINARY, "agent", "--meet", f"127.0.0.1:{port or self.port}", "--key", str(key or self.key),
             "--models", str(models or self.models), "--node-name", name, *args],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        for stream in (process.stdout, process.stderr):
            self.addCleanup(stream.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def conductor(self, config: str, *args: str, machines: int = 2) -> list[str]:
        return [BINARY, "run", "-m", self.model, "--config", config, "--node", f"0/{machines}",
                "--meet", f"127.0.0.1:{self.port}", "--key", str(self.key), *args]

    def plain(self, *args: str) -> bytes:
        done = paceline("run", "-m", self.model, *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def run_on_two(self, config: str, *args: str) -> subprocess.CompletedProcess:
        agent = self.agent()
        done = subprocess.run(self.conductor(config, *args), capture_output=True, timeout=120, env=environment(),
                              check=False)
        said = agent.communicate(timeout=20)[1].decode()
        self.assertEqual(done.returncode, 0, done.stderr.decode() + said)
        self.assertEqual(agent.returncode, 0, said)
        return done
