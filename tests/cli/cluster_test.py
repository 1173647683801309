"""A pipeline on two machines: the conductor and an agent, over loopback with TLS. The bytes are those of one process."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import time
import unittest
from pathlib import Path

from cluster_fixture import ALL_AWAY, Cluster, DRAFT_AWAY, SEGMENT_AWAY, Wire
from deeper_model import write_deeper
from paceline_cli import BINARY, PROMPT, TINY, environment
from recovery_test import is_alive, stages_of

SAMPLED = ["--temp", "0.8", "--seed", "7", "--top-p", "0.95"]
NEVER_END = ["-p", PROMPT, "--logit-bias", "2=-inf"]  # without its end token it goes on to the context's end


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
        self.assertEqual(agent.wait(60), 0)

    def test_the_trace_shows_what_stages_of_the_other_machine_did(self):
        trace = self.folder / "trace.json"
        begin = time.monotonic()
        self.run_on_two(self.config(SEGMENT_AWAY), "-p", PROMPT, "-n", "40", "--trace", str(trace))
        seconds = time.monotonic() - begin
        events = json.loads(trace.read_text())["traceEvents"]
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        for name in ("first", "second"):
            spans = [event for event in events if event["ph"] == "X" and names[event["pid"]] == name
                     and event["name"].startswith(("prefill", "verify"))]
            self.assertTrue(spans, f"no job of {name}")
            for span in spans:
                self.assertTrue(0 <= span["ts"] <= seconds * 1e6, span)


class Early(Cluster):
    """SIGUSR1 before there is an answer that could end."""

    def test_a_conductor_that_waits_for_machines_ends_with_a_sentence(self):
        process = subprocess.Popen(self.conductor(self.config(DRAFT_AWAY), "-p", PROMPT), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except ConnectionRefusedError:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
        process.send_signal(signal.SIGUSR1)
        _, error = process.communicate(timeout=10)
        self.assertEqual(process.returncode, 143, error)
        self.assertIn(b"SIGUSR1 came before the answer began", error)

    def test_an_agent_that_waits_for_its_conductor_ends(self):
        with socket.create_server(("127.0.0.1", self.port)) as server:
            agent = self.agent()
            server.settimeout(60)
            server.accept()[0].close()
            agent.send_signal(signal.SIGUSR1)
            self.assertEqual(agent.wait(10), 143)

    def test_one_machine_ends_with_a_sentence(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, writer)
        process = subprocess.Popen([BINARY, "run", "-m", self.model, "-f", "-"], stdin=reader, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())
        os.close(reader)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while not waits_for_input(process.pid):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGUSR1)
        _, error = process.communicate(timeout=10)
        self.assertEqual(process.returncode, 143, error)
        self.assertIn(b"SIGUSR1 came before the answer began", error)


def waits_for_input(pid: int) -> bool:
    """Whether it reads its standard input, which has nothing; also where the kernel does not say that."""
    try:
        words = Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        time.sleep(1)
        return True
    return words[:2] == ["0", "0x0"]


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
            deadline = time.monotonic() + 60
            while stages_of(agent.pid):
                self.assertLess(time.monotonic(), deadline, "the agent's lease did not end")
                time.sleep(0.02)
            wire.flows.set()

        self.lose(SEGMENT_AWAY, hold, [], returns=False)

    def test_a_machine_that_is_back_before_its_lease_has_ended_is_let_in_when_it_has(self):
        back = []

        def power_off_and_on(agent: subprocess.Popen, wire: Wire) -> None:
            back.append(self.agent())
            self.assertIn(b"refused for now: machine 'b' has an agent already", back[0].stderr.readline())
            wire.flows.clear()  # the end of the first one's connection does not arrive
            agent.kill()

        run = self.lose(SEGMENT_AWAY, power_off_and_on, [], returns=False)
        self.assertIn("nothing came from it until its lease ended", run.error())
        said = back[0].communicate(timeout=60)[1].decode()
        self.assertEqual(back[0].returncode, 0, said)
        self.assertNotIn("refused", said)  # once is enough

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
                self.assertEqual(agent.wait(60), 0, agent.stderr.read())

    def test_a_stopped_stage_of_an_agent_is_waited_for_as_long_as_the_file_says(self):
        agent = self.agent()
        run = Answer(self, self.config(SEGMENT_AWAY + "[supervision]\nstop_grace_s = 1\n"), *self.ARGS)
        run.wait_for_text(60)
        os.kill(stages_of(agent.pid)[0], signal.SIGSTOP)
        self.assertEqual(run.finish(), self.plain(*self.ARGS), run.error())
        waited = re.search(r"was stopped and not continued for ([\d,]+) ms", run.error())
        self.assertIsNotNone(waited, run.error())
        self.assertLess(int(waited[1].replace(",", "")), 4_900)

    def test_a_conductor_that_is_killed_leaves_no_stage(self):
        agent = self.agent()
        run = Answer(self, self.config(ALL_AWAY), *self.ARGS)
        run.wait_for_text(60)
        before = stages_of(agent.pid)
        self.assertEqual(len(before), 3)
        run.process.kill()
        deadline = time.monotonic() + 60
        while any(is_alive(pid) for pid in before):
            self.assertLess(time.monotonic(), deadline, "a stage outlived the run")
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
