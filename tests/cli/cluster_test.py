"""A pipeline on two machines: the conductor and an agent, over loopback with TLS. The bytes are those of one process."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
import unittest
from pathlib import Path

from deeper_model import write_deeper
from paceline_cli import BINARY, CliTest, PROMPT, TINY, environment, paceline
from recovery_test import is_alive, stages_of

SAMPLED = ["--temp", "0.8", "--seed", "7", "--top-p", "0.95"]
NEVER_END = ["-p", PROMPT, "--logit-bias", "2=-inf"]  # without its end token it goes on to the context's end
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


class TwoMachines(Cluster):
    def test_the_answer_is_that_of_one_process(self):
        for name, text in (("draft", DRAFT_AWAY), ("segment", SEGMENT_AWAY), ("all", ALL_AWAY)):
            for sampling in ([], SAMPLED):
                with self.subTest(away=name, sampling=sampling):
                    args = ["-p", PROMPT, "-n", "40", *sampling]
                    done = self.run_on_two(self.config(text), *args)
                    self.assertEqual(done.stdout, self.plain(*args), done.stderr)

    def test_a_method_without_nodes_is_shared_out(self):
        args = ["-p", PROMPT, "-n", "40"]
        agent = self.agent()
        done = subprocess.run([BINARY, "run", "-m", self.model, "--method", "pearl", "--node", "0/2", "--meet",
                               f"127.0.0.1:{self.port}", "--key", str(self.key), *args], capture_output=True,
                              timeout=120, env=environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, self.plain(*args))
        self.assertEqual(agent.wait(20), 0)


class Answer:
    """A run that has begun to answer."""

    def __init__(self, test: Cluster, config: str, *args: str) -> None:
        self.test = test
        self.errors = test.folder / f"errors-{time.monotonic_ns()}"
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(test.conductor(config, *args), stdout=subprocess.PIPE, stderr=errors,
                                            env=environment())
        test.addCleanup(self.process.stdout.close)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)
        self.said = b""

    def error(self) -> str:
        return self.errors.read_text(errors="replace")

    def wait_for_text(self, size: int, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while len(self.said) < size:
            left = max(0.0, deadline - time.monotonic())
            self.test.assertTrue(select.select([self.process.stdout], [], [], left)[0], self.error())
            block = os.read(self.process.stdout.fileno(), 4096)
            self.test.assertTrue(block, "the answer was over too soon: " + self.error())
            self.said += block

    def wait_for_news(self, word: str, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while word not in self.error():
            self.test.assertLess(time.monotonic(), deadline, f"never said: {word}\n{self.error()}")
            time.sleep(0.02)

    def finish(self, timeout: float = 120) -> bytes:
        out = self.process.communicate(timeout=timeout)[0]
        self.test.assertEqual(self.process.returncode, 0, self.error())
        return self.said + out


class Losses(Cluster):
    """Machines and connections that are lost in mid-answer: the same bytes, and nothing left."""

    ARGS = [*NEVER_END, "-n", "440"]

    def setUp(self) -> None:
        super().setUp()
        # Deep enough that an answer takes seconds.
        self.model = write_deeper(TINY, self.models / "deep.gguf", 240)

    def lose(self, text: str, hurt, sampling: list[str], returns: bool) -> Answer:
        args = [*self.ARGS, *sampling]
        wire = Wire(self.port)
        self.addCleanup(wire.close)
        agent = self.agent(port=wire.port)
        config = self.config(text + "[supervision]\nmachine_wait_s = 40\nlease_s = 1\n")
        run = Answer(self, config, *args)
        run.wait_for_text(60)
        before = stages_of(agent.pid)
        self.assertTrue(before, "no stage in the agent")
        self.assertIsNone(run.process.poll(), run.error())
        hurt(agent, wire)
        if returns:
            self.agent(port=wire.port)
        self.assertEqual(run.finish(), self.plain(*args), run.error())
        for pid in before:
            self.assertFalse(is_alive(pid), "a stage outlived its machine")
        return run

    def test_an_agent_that_is_killed_with_the_draft_changes_no_byte(self):
        for sampling in ([], SAMPLED):
            with self.subTest(sampling=sampling):
                run = self.lose(DRAFT_AWAY, lambda agent, wire: agent.kill(), sampling, returns=False)
                self.assertIn("machine 'b'", run.error())

    def test_an_agent_that_is_killed_with_a_segment_is_replaced_by_another_one(self):
        run = self.lose(SEGMENT_AWAY, lambda agent, wire: agent.kill(), [], returns=True)
        self.assertIn("is at work again", run.error())

    def test_a_connection_that_is_cut_comes_back_and_changes_no_byte(self):
        for text in (DRAFT_AWAY, SEGMENT_AWAY):
            for sampling in ([], SAMPLED):
                with self.subTest(text=text, sampling=sampling):
                    self.lose(text, lambda agent, wire: wire.cut(), sampling, returns=False)

    def test_a_link_that_says_nothing_ends_the_lease_and_the_answer_goes_on_when_it_is_back(self):
        def hold(agent: subprocess.Popen, wire: Wire) -> None:
            wire.flows.clear()
            deadline = time.monotonic() + 20
            while stages_of(agent.pid):
                self.assertLess(time.monotonic(), deadline, "the agent's lease did not end")
                time.sleep(0.02)
            wire.flows.set()

        self.lose(SEGMENT_AWAY, hold, [], returns=False)

    def test_a_stage_of_an_agent_that_is_killed_is_replaced_there(self):
        def kill(agent: subprocess.Popen, wire: Wire) -> None:
            os.kill(stages_of(agent.pid)[0], signal.SIGKILL)

        run = self.lose(SEGMENT_AWAY, kill, SAMPLED, returns=False)
        self.assertIn("was killed by signal 9", run.error())
        self.assertIn("is at work again (epoch 2)", run.error())

    def test_a_machine_that_does_not_come_back_ends_the_run_with_its_story(self):
        agent = self.agent()
        run = Answer(self, self.config(SEGMENT_AWAY + "[supervision]\nmachine_wait_s = 1\nlease_s = 1\n"), *self.ARGS)
        run.wait_for_text(60)
        agent.kill()
        self.assertEqual(run.process.wait(60), 1)
        self.assertIn("stage 'second' waited 1 s for a machine", run.error())
        self.assertIn("machine 'b'", run.error())

    def test_a_signal_to_all_machines_lets_the_answer_end(self):
        for sent in (signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(signal=sent):
                agent = self.agent()
                run = Answer(self, self.config(SEGMENT_AWAY), *self.ARGS)
                run.wait_for_text(60)
                self.assertIsNone(run.process.poll())
                agent.send_signal(sent)
                run.process.send_signal(sent)
                self.assertEqual(run.finish(), self.plain(*self.ARGS), run.error())
                self.assertEqual(agent.wait(20), 0, agent.stderr.read())

    def test_a_conductor_that_is_killed_leaves_no_stage(self):
        agent = self.agent()
        run = Answer(self, self.config(ALL_AWAY), *self.ARGS)
        run.wait_for_text(60)
        before = stages_of(agent.pid)
        self.assertEqual(len(before), 3)
        run.process.kill()
        deadline = time.monotonic() + 20
        while any(is_alive(pid) for pid in before):
            self.assertLess(time.monotonic(), deadline, "a stage outlived the run")
            time.sleep(0.02)


class Refused(Cluster):
    """Within 15 s, with machine and value."""

    ARGS = ["-p", PROMPT, "-n", "4"]

    def refuse(self, config: str, *args: str, code: int = 1, words: tuple[str, ...] = ()) -> str:
        begun = time.monotonic()
        done = subprocess.run(self.conductor(config, *args, *self.ARGS), capture_output=True, timeout=60,
                              env=environment(), check=False)
        self.assertLess(time.monotonic() - begun, 17)
        error = done.stderr.decode()
        self.assertEqual(done.returncode, code, error)
        for word in words:
            self.assertIn(word, error)
        return error

    def test_no_agent_at_the_meeting_place(self):
        self.refuse(self.config(DRAFT_AWAY), words=("0 of 1 other machines are there", f"127.0.0.1:{self.port}"))

    def test_another_key(self):
        other = self.folder / "other.key"
        self.assertEqual(paceline("agent", "--new-key", str(other)).returncode, 0)
        agent = self.agent(key=other)
        self.refuse(self.config(DRAFT_AWAY), words=("0 of 1 other machines are there", "key"))
        self.assertEqual(agent.wait(20), 1)
        self.assertIn(b"key", agent.stderr.read())

    def test_a_key_that_others_may_read(self):
        self.key.chmod(0o644)
        self.refuse(self.config(DRAFT_AWAY), words=(str(self.key), "0600"))

    def test_no_key(self):
        done = paceline("run", "-m", self.model, "--config", self.config(DRAFT_AWAY), "--node", "0/2", "--meet",
                        f"127.0.0.1:{self.port}", *self.ARGS)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"several machines need a key", done.stderr)

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", self.port)):
            self.refuse(self.config(DRAFT_AWAY), code=2, words=(f"127.0.0.1:{self.port}",))

    def test_two_tasks_on_a_machine(self):
        first = self.agent()
        second = self.agent()
        done = subprocess.run(self.conductor(self.config(DRAFT_AWAY), *self.ARGS, machines=3), capture_output=True,
                              timeout=60, env=environment(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"1 of 2 other machines are there", done.stderr)
        self.assertIn(b"machine 'b' has an agent already: two tasks on one machine", done.stderr)
        self.assertEqual({first.wait(20), second.wait(20)}, {0, 1})

    def test_more_machines_than_stages(self):
        agents = [self.agent(name=name) for name in ("b", "c")]
        done = subprocess.run([BINARY, "run", "-m", self.model, "--method", "pearl", "--node", "0/3", "--meet",
                               f"127.0.0.1:{self.port}", "--key", str(self.key), *self.ARGS], capture_output=True,
                              timeout=60, env=environment(), check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"3 machines are more than its 1 segment can use", done.stderr)
        for agent in agents:
            self.assertEqual(agent.wait(20), 0)

    def test_a_node_that_is_not_there(self):
        agent = self.agent(name="x")
        self.refuse(self.config(DRAFT_AWAY), code=2, words=('node = "b" is not there; the other machines are: x',))
        self.assertEqual(agent.wait(20), 0)

    def test_a_model_that_the_agent_does_not_have(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.agent(models=empty)
        self.refuse(self.config(SEGMENT_AWAY), words=("stage 'second'", "machine 'b'", f"--models {empty}", "deeper.gguf"))

    def test_another_model_of_the_same_name(self):
        models = self.folder / "others"
        models.mkdir()
        other = Path(write_deeper(TINY, models / "deeper.gguf", 4))
        data = bytearray(other.read_bytes())
        data[-100] ^= 1
        other.write_bytes(data)
        self.agent(models=models)
        self.refuse(self.config(SEGMENT_AWAY), code=2, words=("stage second loaded other weights than first",))

    def test_strange_bytes_cost_one_connection_and_a_line(self):
        config = self.config(DRAFT_AWAY)
        log = self.folder / "run.log"
        process = subprocess.Popen(self.conductor(config, *self.ARGS, "--log", str(log)), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 10
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port)) as strange:
                    strange.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    strange.settimeout(10)
                    while strange.recv(4096):
                        pass
                break
            except ConnectionRefusedError:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            except ConnectionResetError:
                break
        self.agent()
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, error)
        self.assertEqual(out, self.plain(*self.ARGS))
        self.assertIn("TLS", log.read_text())

    def test_starters(self):
        for name, variables, word in (
                ("two tasks", {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1",
                               "SLURM_STEP_NODELIST": "a"}, "SLURM_LOCALID is 1"),
                ("mpirun", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
                            "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, "PACELINE_MEET"),
                ("two starters", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
                                  "OMPI_COMM_WORLD_LOCAL_RANK": "0", "RANK": "1", "WORLD_SIZE": "2",
                                  "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "x"}, "RANK = 1")):
            with self.subTest(name=name):
                done = paceline("agent", "--key", str(self.key), "--models", str(self.models),
                                env={**environment(), **variables})
                self.assertEqual(done.returncode, 2)
                self.assertIn(word, done.stderr.decode())


class Starters(Cluster):
    """launch/paceline-launch finds its place in the environment of each starter."""

    def test_each_starter_starts_the_same_run(self):
        launch = str(Path(__file__).resolve().parent.parent.parent / "launch" / "paceline-launch")
        args = ["-p", PROMPT, "-n", "20"]
        plain = self.plain(*args)
        meet = f"127.0.0.1:{self.port}"
        starters = {
            "srun": ({"SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "x",
                      "PACELINE_MEET": meet}, "SLURM_PROCID"),
            "mpirun": ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "PACELINE_MEET": meet},
                       "OMPI_COMM_WORLD_RANK"),
            "torchrun": ({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                          "MASTER_PORT": "1", "PACELINE_MEET": meet}, "RANK"),
        }
        for name, (variables, rank) in starters.items():
            with self.subTest(starter=name):
                tasks = [subprocess.Popen(
                    [launch, "pearl", "-m", self.model, *args, "--node-name", f"m{number}"], stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**environment(), **variables, rank: str(number), "PACELINE_BINARY": BINARY,
                         "PACELINE_KEY": self.key.read_text().strip()}) for number in (1, 0)]
                outputs = [task.communicate(timeout=60) for task in tasks]
                self.assertEqual([task.returncode for task in tasks], [0, 0], outputs)
                self.assertEqual(outputs[1][0], plain)


if __name__ == "__main__":
    unittest.main()
