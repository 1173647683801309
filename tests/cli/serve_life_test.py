"""paceline serve: keys, start and end, clients that leave, stages that die."""

import os
import signal
import unittest

from paceline_cli import CliTest, TINY, pipeline_toml
from serve_server import Answer, Server, chat_body, events_of, in_parallel, text_of, wait_until

LONG = {"ignore_eos": True, "max_tokens": 400}


class Access(CliTest):
    def test_with_keys_everything_but_health_needs_one(self):
        keys = self.folder / "keys"
        keys.write_text("# ours\nfirst-key-1\n\nsecond-key-2\n")
        with Server("--method", "autoregressive", "--api-key-file", str(keys)) as server:
            self.assertEqual(server.get("/health").status, 200)
            for path in ("/v1/models", "/metrics", "/version", "/props", "/nothing"):
                for given in ({}, {"Authorization": "Bearer wrong-key-1"}, {"Authorization": "Bearer "},
                              {"Authorization": "first-key-1"}, {"X-Api-Key": "x"}):
                    answer = server.get(path, headers=given)
                    self.assertEqual(answer.status, 401, (path, given))
                    self.assertEqual(answer.json["error"]["code"], "invalid_api_key")
            self.assertEqual(server.chat().status, 401)
            for given in ({"Authorization": "Bearer first-key-1"}, {"Authorization": "bearer second-key-2"},
                          {"X-Api-Key": "second-key-2"}):
                self.assertEqual(server.get("/v1/models", headers={"Host": "any.example", **given}).status, 200)
            different = server.get("/v1/models", headers={"Authorization": "Bearer first-key-1",
                                                          "X-Api-Key": "second-key-2"})
            self.assertEqual((different.status, different.json["error"]["code"]), (400, "different_api_keys"))
            for pair in (("first-key-1", "wrong-key-1"), ("wrong-key-1", "first-key-1"), ("first-key-1", "first-key-1")):
                head = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + "".join(f"X-Api-Key: {key}\r\n" for key in pair)
                self.assertEqual(server.raw((head + "\r\n").encode())[9:12], b"400", pair)
        self.assertNotIn("first-key", "\n".join(server.lines))

    def test_an_allowed_origin_gets_its_headers(self):
        with Server("--method", "autoregressive", "--cors-origin", "http://localhost:3000") as server:
            page = {"Origin": "http://localhost:3000"}
            for answer in (server.get("/v1/models", headers=page),
                           server.ask("OPTIONS", "/v1/chat/completions", headers=page)):
                self.assertIn(answer.status, (200, 204))
                self.assertEqual(answer.headers["Access-Control-Allow-Origin"], page["Origin"])
            self.assertEqual(server.get("/v1/models", headers={"Origin": "http://localhost:3001"}).status, 403)

    def test_what_cannot_be_served_ends_the_program_before_it_listens(self):
        empty = self.folder / "empty"
        empty.write_text("# none\n")
        for args, code, part in ((("--host", "0.0.0.0"), 2, "--api-key-file"),
                                 (("--api-key-file", str(empty)), 2, "holds no key"),
                                 (("--api-key-file", "/nothing"), 2, "/nothing"),
                                 (("--cors-origin", "*", "--api-key-file", str(empty)), 2, "holds no key"),
                                 (("--method", "nothing"), 2, "nothing"), (("--alias", "a b"), 2, "--alias"),
                                 (("--port", "70000"), 2, "--port"), (("--parallel", "4"), 2, "--requests")):
            stderr = self.run_fails(code, "serve", "-m", TINY, "--port", "0", *args)
            self.assertIn(part, stderr)
            self.assertNotIn("listening", stderr)

    def test_a_model_or_port_that_is_not_to_be_had_is_named(self):
        self.assertIn("/nothing.gguf", self.run_fails(1, "serve", "-m", "/nothing.gguf", "--port", "0"))
        with Server("--method", "autoregressive") as server:
            stderr = self.run_fails(1, "serve", "-m", TINY, "--port", str(server.port))
            self.assertIn(str(server.port), stderr)


class Life(CliTest):
    """Stages are stopped (SIGSTOP) where an answer must be under way for sure."""

    def pipeline(self) -> str:
        path = self.folder / "pipeline.toml"
        path.write_text(pipeline_toml(1, True) + "[supervision]\nrestarts_max = 1000\n")
        return str(path)

    def slow_config(self) -> tuple:
        """A configuration that cannot be read to its end until the pipe is written."""
        pipe = self.folder / "pipe.toml"
        os.mkfifo(pipe)
        config = self.folder / "config.toml"
        config.write_text('extends = "pipe.toml"\n')
        return str(config), pipe

    def test_while_the_model_loads_health_says_so_and_requests_are_503(self):
        config, pipe = self.slow_config()
        with Server("--config", config, wait_ready=False) as server:
            health = server.get("/health")
            self.assertEqual((health.status, health.json["status"]), (503, "loading"))
            for answer in (server.chat(), server.get("/v1/models")):
                self.assertEqual((answer.status, answer.json["error"]["code"]), (503, "loading"))
                self.assertIsNotNone(answer.headers["Retry-After"])
            pipe.write_text(pipeline_toml(1, False))
            wait_until(lambda: server.get("/health").status == 200, "the model is loaded")
            self.assertEqual(server.chat(max_tokens=2).status, 200)

    def test_a_signal_while_the_model_loads_ends_the_program_at_once(self):
        config, _ = self.slow_config()
        with Server("--config", config, wait_ready=False) as server:
            server.ended_by_test = True
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(timeout=120), -signal.SIGTERM)

    def test_a_client_that_closes_frees_its_request_and_no_other(self):
        with Server("--config", self.pipeline(), "--requests", "2", "--queue", "4") as server:
            expected = server.chat(**LONG).json["choices"][0]["message"]["content"]
            server.stop_stages()
            stays = server.stream(chat_body("Tell me everything", **LONG))
            leaves = server.stream(chat_body("Tell me everything", **LONG))
            waits = server.stream(chat_body("Tell me everything", **LONG))
            whole = server.connect()  # not streamed, and it leaves as well
            whole.request("POST", "/v1/completions", '{"prompt": "x"}', {"Content-Type": "application/json"})
            server.wait_metric("paceline_requests_waiting", 2)
            waits.close()
            whole.close()
            server.wait_metric("paceline_requests_waiting", 0)
            leaves.close()
            server.wait_metric("paceline_client_disconnects_total", 3)
            server.continue_stages()
            text = "".join(text_of(event) for event in events_of(stays.rest()))
            self.assertEqual(text, expected)
            server.wait_metric("paceline_requests_running", 0)
            server.wait_metric("paceline_answers_cancelled_total", 3)
            server.wait_metric("paceline_answers_total", 2)

    def test_a_client_that_closes_in_the_middle_of_its_text_is_noticed(self):
        with Server("--config", self.pipeline()) as server:
            before = server.descriptors()
            for _ in range(10):
                stream = server.stream(chat_body("Tell me everything", **LONG))
                stream.read_until('"content":"')
                stream.close()
            wait_until(lambda: server.metric("paceline_requests_running") == 0
                       and server.metric("paceline_answers_cancelled_total")
                       + server.metric("paceline_answers_total") == 10, "all are over")
            wait_until(lambda: server.descriptors() <= before, "their descriptors are closed")

    def test_a_full_queue_is_429_and_those_that_wait_see_comments(self):
        with Server("--config", self.pipeline(), "--requests", "1", "--queue", "1",
                    "--keep-alive", "0.1") as server:
            server.stop_stages()
            streams = [server.stream(chat_body("Tell me everything", max_tokens=5)) for _ in range(2)]
            refused = server.chat()
            self.assertEqual((refused.status, refused.json["error"]["code"]), (429, "queue_full"))
            self.assertIsNotNone(refused.headers["Retry-After"])
            for stream in streams:
                stream.read_until(": waiting\n")
            server.continue_stages()
            for stream in streams:
                self.assertTrue(stream.rest().endswith("data: [DONE]\n\n"))

    def test_sigterm_lets_answers_finish_and_refuses_others(self):
        with Server("--config", self.pipeline()) as server:
            expected = server.chat(**LONG).json["choices"][0]["message"]["content"]
            server.stop_stages()
            stream = server.stream(chat_body("Tell me everything", **LONG))
            server.process.send_signal(signal.SIGTERM)
            health = wait_until(lambda: (h := server.get("/health")).json["status"] == "draining" and h,
                                "health says draining")
            self.assertEqual(health.status, 503)
            refused = server.chat()
            self.assertEqual((refused.status, refused.json["error"]["code"]), (503, "server_shutting_down"))
            self.assertIsNotNone(refused.headers["Retry-After"])
            server.continue_stages()
            text = "".join(text_of(event) for event in events_of(stream.rest()))
            self.assertEqual(text, expected)
            self.assertEqual(server.process.wait(timeout=120), 0)

    def test_an_answer_that_outlives_the_drain_ends_with_an_error_event(self):
        config = self.folder / "slow.toml"
        config.write_text(pipeline_toml(1, False))
        with Server("--config", str(config), "--drain", "0") as server:
            stages = server.stop_stages()
            stream = server.stream(chat_body("Tell me everything", **LONG))
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: server.lines and any("draining" in line for line in server.lines), "it drains")
            server.continue_stages()
            last = events_of(stream.rest())[-1]
            self.assertEqual(server.process.wait(timeout=120), 0)
            self.assertTrue("error" in last or last["choices"][0]["finish_reason"] == "length", last)
            self.assertFalse([pid for pid in stages if os.path.exists(f"/proc/{pid}")])

    def test_a_second_signal_ends_the_program_and_its_stages_at_once(self):
        with Server("--config", self.pipeline()) as server:
            server.ended_by_test = True
            stages = server.stop_stages()
            stream = server.stream(chat_body("Tell me everything", **LONG))
            server.process.send_signal(signal.SIGINT)
            wait_until(lambda: any("draining" in line for line in server.lines), "it drains")
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(timeout=120), -signal.SIGINT)
            stream.close()
            server.stopped = []
            wait_until(lambda: not [pid for pid in stages if alive(pid)], "no stage is left")

    def test_a_killed_stage_changes_no_byte_of_four_streams(self):
        with Server("--config", self.pipeline(), "--requests", "4") as server:
            bodies = [chat_body(f"Question {i}", ignore_eos=True, max_tokens=400, seed=i, temperature=0.8)
                      for i in range(4)]
            alone = [server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
                     for body in bodies]
            def texts_of(streams: list) -> tuple[list[str], list[int]]:
                events = [events_of(rest) for rest in in_parallel([stream.rest for stream in streams])]
                return (["".join(text_of(event) for event in each) for each in events],
                        [each[-1]["paceline"]["replays"] for each in events])

            # While nothing moves: each answer is begun again.
            server.stop_stages()
            streams = [server.stream(body) for body in bodies]
            server.wait_metric("paceline_requests_running", 4)
            os.kill(server.stage("segment"), signal.SIGKILL)
            server.continue_stages()
            texts, replays = texts_of(streams)
            self.assertEqual(texts, alone)
            self.assertTrue(all(count > 0 for count in replays), replays)
            # In the middle of the texts, wherever that is.
            for victim in ("segment", "draft") * 2:
                wait_until(lambda: server.get("/health").json["status"] == "ok", "all stages are back")
                streams = [server.stream(body) for body in bodies]
                for stream in streams:
                    stream.read_until('"content":"')
                os.kill(server.stage(victim), signal.SIGKILL)
                self.assertEqual(texts_of(streams)[0], alone)

    def test_a_pipeline_that_cannot_continue_is_failed_and_says_so_to_everyone(self):
        config = self.folder / "once.toml"
        config.write_text(pipeline_toml(1, False) + "[supervision]\nrestarts_max = 0\n")
        with Server("--config", str(config)) as server:
            stages = server.stop_stages()
            stream = server.stream(chat_body("Tell me everything", **LONG))
            whole = server.connect()
            whole.request("POST", "/v1/completions", '{"prompt": "x"}', {"Content-Type": "application/json"})
            server.wait_metric("paceline_requests_running", 2)
            os.kill(stages[0], signal.SIGKILL)
            error = events_of(stream.rest())[-1]["error"]
            self.assertEqual((error["type"], error["code"]), ("unavailable_error", "pipeline_failed"))
            self.assertNotIn("[DONE]", stream.text)
            for answer in (Answer(whole.getresponse()), server.chat()):
                self.assertEqual((answer.status, answer.json["error"]["code"]), (503, "pipeline_failed"))
                self.assertIsNotNone(answer.headers["Retry-After"])
            whole.close()
            health = server.get("/health")
            self.assertEqual((health.status, health.json["status"]), (503, "failed"))
            self.assertEqual(server.get("/v1/models").status, 200)

    def test_health_follows_a_lost_stage(self):
        with Server("--config", self.pipeline()) as server:
            before = server.stages()
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: server.get("/health").json["status"] == "ok"
                       and len(server.stages()) == len(before) and not set(before) & set(server.stages()),
                       "other stages took their place")
            self.assertEqual(server.chat(max_tokens=5).status, 200)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
