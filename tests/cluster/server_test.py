"""paceline serve on hosts of their own: a link that is cut while an answer streams, a machine that is restarted."""

import json
import signal
from pathlib import Path

import starters
from cluster_case import GREEDY, ClusterCase, main, needs, segments, stages_on, until
from namespaces import Wire
from paceline_cli import PROMPT
from serve_server import Answer, Stream, UnixConnection, events_of, text_of

TOKENS = 400
BODY = {"prompt": PROMPT, "temperature": 0, "logit_bias": {"2": -100}, "max_tokens": TOKENS}
ARGS = ["--raw", "-p", PROMPT, "-n", str(TOKENS), "--logit-bias", "2=-100", *GREEDY]
LEASE_LIMIT = 30.0  # s: a lease of 5 s with its margin, and what a loaded machine adds


class Client:
    """Asks the server of host a over its Unix socket: files are those of all hosts."""

    def __init__(self, path: str) -> None:
        self.path = path

    def request(self, method: str, path: str, body: dict | None = None) -> tuple:
        connection = UnixConnection(self.path)
        connection.request(method, path, None if body is None else json.dumps(body),
                           {} if body is None else {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def ask(self, method: str, path: str, body: dict | None = None) -> Answer:
        connection, response = self.request(method, path, body)
        with response:
            answer = Answer(response)
        connection.close()
        return answer

    def stream(self, body: dict) -> Stream:
        return Stream(*self.request("POST", "/v1/completions", {**body, "stream": True}))

    def health(self) -> dict:
        return self.ask("GET", "/health").json


class ServeCase(ClusterCase):
    def setUp(self) -> None:
        super().setUp()
        self.socket = str(self.folder / "serve.sock")
        self.client = Client(self.socket)

    def server_words(self, config: str) -> list[str]:
        launch, config, *rest = self.words(config)
        return [launch, config, "--daemon", *rest, "--unix", self.socket]

    def wait_health(self, job: starters.Job, status: str, limit: float = 60.0) -> dict:
        found: dict = {}

        def is_so() -> bool:
            self.assertIsNone(job.code, job.err)
            if not Path(self.socket).exists():
                return False
            found.clear()
            found.update(self.client.health())
            return found["status"] == status

        until(is_so, limit, f"the state {status}, {found}: {job.err}")
        return found

    def serve(self, config: str) -> starters.Job:
        job = starters.by_hand(self.network, ["a", "b"], self.server_words(config), environment=self.environment)
        self.addCleanup(job.close)
        self.wait_health(job, "ok")
        return job

    def end(self, job: starters.Job, sent: signal.Signals = signal.SIGTERM) -> None:
        job.first.send_signal(sent)
        self.assertEqual(job.wait(60), 0, job.err)
        self.check_nothing_left()

    def text(self, events: list[dict]) -> str:
        return "".join(text_of(event) for event in events)

    def plain_text(self) -> str:
        return self.plain(*ARGS).decode().removesuffix("\n")


class Links(ServeCase):
    # 5 ms a way: an answer of some hundred tokens takes seconds, so the cut meets it in the middle.
    wires = {"b": Wire(delay_ms=5)}

    def test_a_link_is_cut_while_an_answer_streams_and_it_goes_on_with_the_same_text(self):
        job = self.serve(self.config(segments("", "b")))
        stream = self.client.stream(BODY)
        stream.read_until("data: {")
        self.network.cut("b")
        until(lambda: not stages_on(self.network, "b"), LEASE_LIMIT, "stages outlive the lease")
        health = self.wait_health(job, "recovering")
        self.assertEqual(health["waiting_for"], "machine 'b' at a:47600")
        self.assertNotIn("[DONE]", stream.text)
        self.network.heal("b")
        rest = stream.rest()
        self.assertTrue(rest.endswith("data: [DONE]\n\n"), rest[-300:])
        self.assertEqual(self.text(events_of(rest)), self.plain_text())
        self.wait_health(job, "ok")
        self.end(job)


class Machines(ServeCase):
    def test_a_machine_that_is_restarted_is_let_in_again(self):
        job = self.serve(self.config(segments("", "b")))
        # While nothing is decoded the conductor sends next to nothing, and learns of the end when the lease ends; or
        # at once, if something that it had sent was not acknowledged yet.
        self.network.restart("b")
        job.forget(1)
        back = self.agent("b")
        self.assertTrue(back.wait_for_line("serving a"), back.err)
        self.wait_health(job, "ok", LEASE_LIMIT)
        answer = self.client.ask("POST", "/v1/completions", BODY)
        self.assertEqual(answer.json["choices"][0]["text"], self.plain_text())
        job.first.terminate()
        self.assertEqual(back.wait(60), 0, back.err)
        self.assertEqual(job.wait(60), 0, job.err)
        self.check_nothing_left()

    @needs("mpirun")
    def test_open_mpi_starts_server_and_agent_and_its_signal_ends_both(self):
        job = starters.by_mpirun(self.network, ["a", "b"], self.server_words(self.config(segments("", "b"))),
                                 folder=self.folder, environment=self.environment_of_tasks())
        self.addCleanup(job.close)
        self.wait_health(job, "ok")
        answer = self.client.ask("POST", "/v1/completions", BODY)
        self.assertEqual(answer.json["choices"][0]["text"], self.plain_text())
        self.end(job, signal.SIGUSR1)  # which mpirun passes on

    @needs("srun")
    def test_slurm_starts_server_and_agent_and_its_signal_ends_both(self):
        with starters.Slurm(self.network, ["a", "b"], self.folder) as slurm:
            job = starters.by_srun(self.network, ["a", "b"], self.server_words(self.config(segments("", "b"))),
                                   slurm=slurm, environment=self.environment)
            self.addCleanup(job.close)
            self.wait_health(job, "ok")
            answer = self.client.ask("POST", "/v1/completions", BODY)
            self.assertEqual(answer.json["choices"][0]["text"], self.plain_text())
            job.first.send_signal(signal.SIGUSR1)  # which srun passes on
            self.assertEqual(job.wait(60), 0, job.err)
        self.check_nothing_left()


if __name__ == "__main__":
    main()
