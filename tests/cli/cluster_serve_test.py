"""paceline serve on two machines: readiness, texts, machines that are lost and come back, the end, refusals."""

import signal
import subprocess
import unittest
from pathlib import Path

from cluster_fixture import Cluster, DRAFT_AWAY, SEGMENT_AWAY
from deeper_model import write_deeper
from paceline_cli import BINARY, PROMPT, ROOT, TINY, environment, paceline
from recovery_test import is_alive, stages_of
from serve_server import LIMIT_S, Server, events_of, in_parallel, text_of, wait_until

ENDLESS = {"prompt": PROMPT, "temperature": 0, "logit_bias": {"2": -100}}  # without its end token
SAMPLED = {"temperature": 0.8, "top_p": 0.95, "seed": 7}
THREE = SEGMENT_AWAY.replace('[draft]', '[[stage]]\nname = "third"\nrole = "segment"\nlayers = "auto"\nthreads = 1\n'
                             'node = "c"\n[draft]')
QUICK = "[supervision]\nmachine_wait_s = 60\nlease_s = 1\n"


class Served(Cluster):
    def server(self, config: str, *args: str, machines: int = 2, **kwargs) -> Server:
        return Server("--config", config, "--node", f"0/{machines}", "--meet", f"127.0.0.1:{self.port}", "--key", str(self.key),
                      "--node-name", "a", *args, model=str(self.model), **kwargs)

    def plain_text(self, tokens: int, *args: str) -> str:
        return self.plain("--raw", "-p", PROMPT, "-n", str(tokens), "--logit-bias", "2=-100", *args).decode().removesuffix(
            "\n")

    def wait_health(self, server: Server, status: str) -> dict:
        return wait_until(lambda: (found := server.get("/health").json)["status"] == status and found, status)


class Life(Served):
    def test_it_says_what_it_waits_for_and_answers_once_the_machine_is_there(self):
        other = self.folder / "other.key"
        self.assertEqual(paceline("agent", "--new-key", str(other)).returncode, 0)
        with self.server(self.config(SEGMENT_AWAY), wait_ready=False) as server:
            place = f"127.0.0.1:{self.port}"
            health = wait_until(lambda: (found := server.get("/health")).json.get("waiting_for") and found, "a wait")
            self.assertEqual((health.status, health.json["status"]), (503, "loading"))
            self.assertEqual(health.json["waiting_for"], f"1 other machine at {place}")
            self.assertEqual(server.chat().json["error"]["code"], "loading")
            stranger = self.agent(key=other)
            self.assertEqual(stranger.wait(LIMIT_S), 1)
            self.assertIn(b"key", stranger.stderr.read())
            agent = self.agent()
            wait_until(lambda: server.get("/health").status == 200, "the model is loaded")
            self.assertNotIn("waiting_for", server.get("/health").json)
            answers = in_parallel([lambda: server.post("/v1/completions", {**ENDLESS, "max_tokens": 60}),
                                   lambda: server.post("/v1/completions", {**ENDLESS, **SAMPLED, "max_tokens": 60})])
            self.assertEqual([answer.json["choices"][0]["text"] for answer in answers], [
                self.plain_text(60), self.plain_text(60, "--temp", "0.8", "--top-p", "0.95", "--seed", "7")])
            self.assertEqual(server.metric('paceline_stage_up{process="second"}'), 1)
            self.assertEqual(server.get("/health?deep=1").json["decoded"], True)
        self.assertEqual(agent.wait(LIMIT_S), 0, agent.stderr.read())
        self.assertIn(f"paceline serve: waiting for 1 other machine at {place}", server.lines)

    def test_a_machine_of_a_draft_is_missed_by_no_answer(self):
        with_agent = self.agent()
        with self.server(self.config(DRAFT_AWAY + QUICK)) as server:
            body = {**ENDLESS, "max_tokens": 60}
            before = server.post("/v1/completions", body).json["choices"][0]["text"]
            self.assertEqual(before, self.plain_text(60))
            with_agent.kill()
            health = self.wait_health(server, "degraded")
            self.assertIn("machine 'b'", health["waiting_for"])
            self.assertEqual(health["lost_stages"], "stage 'draft'")
            self.assertEqual(server.post("/v1/completions", body).json["choices"][0]["text"], before)
            back = self.agent()
            self.wait_health(server, "ok")
            self.assertEqual(server.post("/v1/completions", body).json["choices"][0]["text"], before)
        self.assertEqual(back.wait(LIMIT_S), 0)

    def test_the_starter_of_all_machines_starts_server_and_agent(self):
        launch = (str(ROOT / "launch" / "paceline-launch"), self.config(SEGMENT_AWAY), "--daemon", "--meet",
                  f"127.0.0.1:{self.port}", "--key", str(self.key))
        variables = {"PACELINE_BINARY": BINARY}
        agent = subprocess.Popen([*launch, "-m", str(self.model), "--node", "1/2", "--node-name", "b"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**environment(), **variables})
        self.addCleanup(agent.communicate)
        self.addCleanup(agent.kill)
        with Server("--node", "0/2", "--node-name", "a", model=str(self.model), command=launch,
                    variables=variables) as server:
            answer = server.post("/v1/completions", {**ENDLESS, "max_tokens": 20})
            self.assertEqual(answer.json["choices"][0]["text"], self.plain_text(20))
        self.assertEqual(agent.wait(LIMIT_S), 0)


class Losses(Served):
    """The machine of a segment is lost while an answer streams."""

    TOKENS = 300
    BODY = {**ENDLESS, "max_tokens": TOKENS}

    def setUp(self) -> None:
        super().setUp()
        # Deep enough that an answer takes seconds.
        self.model = Path(write_deeper(TINY, self.models / "deep.gguf", 160))

    def stream(self, server: Server, **fields):
        stream = server.stream({**self.BODY, **fields}, "/v1/completions")
        stream.read_until("data: {")
        return stream

    def text(self, events: list[dict]) -> str:
        return "".join(text_of(event) for event in events)

    def test_the_stream_has_the_same_text_once_another_agent_is_there(self):
        agent = self.agent()
        with self.server(self.config(SEGMENT_AWAY + QUICK)) as server:
            stream, drawn = self.stream(server), self.stream(server, **SAMPLED)
            before = stages_of(agent.pid)
            agent.kill()
            health = self.wait_health(server, "recovering")
            self.assertEqual(health["waiting_for"], f"machine 'b' at 127.0.0.1:{self.port}")
            self.assertEqual(health["lost_stages"], "stage 'second'")
            self.assertEqual(server.metric('paceline_stage_up{process="second"}'), 0)
            self.assertNotIn("[DONE]", stream.text + drawn.text)
            for pid in before:
                wait_until(lambda pid=pid: not is_alive(pid), "the stages of the lost machine end")
            back = self.agent()
            rest = stream.rest()
            self.assertTrue(rest.endswith("data: [DONE]\n\n"), rest[-300:])
            self.assertEqual(self.text(events_of(rest)), self.plain_text(self.TOKENS))
            self.assertEqual(self.text(events_of(drawn.rest())), self.plain_text(
                self.TOKENS, "--temp", "0.8", "--top-p", "0.95", "--seed", "7"))
            self.wait_health(server, "ok")
            # A signal to all machines lets the answer end.
            last = self.stream(server)
            back.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(self.text(events_of(last.rest())), self.plain_text(self.TOKENS))
        self.assertEqual(back.wait(LIMIT_S), 0, back.stderr.read())

    def test_without_another_machine_the_stream_ends_with_the_story_and_the_server_goes_on_when_it_is_back(self):
        agent, stays = self.agent(), self.agent(name="c")
        config = self.config(THREE + "[supervision]\nmachine_wait_s = 0.001\nlease_s = 1\n")
        with self.server(config, machines=3) as server:
            self.lose_for_too_long(server, agent, stays)
            refused = server.post("/v1/completions", self.BODY)
            self.assertEqual((refused.status, refused.json["error"]["code"]), (503, "pipeline_failed"))
            again = self.agent()
            self.wait_health(server, "ok")
            answer = server.post("/v1/completions", {**self.BODY, "max_tokens": 40})
            self.assertEqual(answer.json["choices"][0]["text"], self.plain_text(40))
            self.lose_for_too_long(server, again, stays)  # and it ends in order
        self.assertEqual(stays.wait(LIMIT_S), 0, stays.stderr.read())
        self.assertEqual(server.lines.count("paceline serve: the pipeline answers again"), 1)
        self.assertEqual(server.lines[-1], "paceline serve: all stages have ended")

    def lose_for_too_long(self, server: Server, agent: subprocess.Popen, stays: subprocess.Popen) -> None:
        stream = self.stream(server)
        agent.kill()
        events = events_of(stream.rest())
        self.assertNotIn("[DONE]", stream.text)
        self.assertRegex(events[-1]["error"]["message"], "stage 'second' waited .* s for a machine")
        self.assertEqual(events[-1]["error"]["code"], "pipeline_failed")
        self.assertTrue(self.plain_text(self.TOKENS).startswith(self.text(events[:-1])))
        health = self.wait_health(server, "failed")
        self.assertIn("the connection to machine 'b' is lost", health["error"])
        self.assertEqual(health["waiting_for"], f"machine 'b' at 127.0.0.1:{self.port}")
        wait_until(lambda: not stages_of(stays.pid) and not server.stages(), "the stages of the other machines end")


class Refused(Served):
    """Before anything listens."""

    def refused(self, *args: str, code: int = 2) -> str:
        done = paceline("serve", "-m", str(self.model), "--port", "0", *args)
        error = done.stderr.decode()
        self.assertEqual(done.returncode, code, error)
        self.assertNotIn("listening", error)
        return error

    def test_methods_without_stages_keys_and_places_that_cannot_be(self):
        meet = ("--meet", f"127.0.0.1:{self.port}")
        two = ("--node", "0/2", *meet)
        key = ("--key", str(self.key))
        for method in ((), ("--method", "auto"), ("--method", "plain")):
            self.assertIn("2 machines decode with stages; give --method", self.refused(*method, *two, *key))
        self.assertIn("several machines need a key", self.refused("--method", "pearl", *two))
        self.assertIn("paceline agent", self.refused("--method", "pearl", "--node", "1/2", *meet, *key))
        self.assertIn("--gpus", self.refused("--method", "pearl", "--gpus", "all", *two, *key))
        self.assertIn("--node: '2' is not K/N", self.refused("--method", "pearl", "--node", "2", *meet, *key))
        self.key.chmod(0o644)
        self.assertIn("0600", self.refused("--method", "pearl", *two, *key, code=1))


if __name__ == "__main__":
    unittest.main()
