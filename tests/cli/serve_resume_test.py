"""paceline serve: streams that clients come back to."""

import os
import signal
import unittest

from paceline_cli import CliTest, PROMPT, pipeline_toml
from serve_server import Server, chat_body, events_of, events_with_ids, in_parallel, text_of, wait_until

LONG = {"ignore_eos": True, "max_tokens": 200}
RESUME = {"stream": True, "stream_options": {"include_usage": True}, "paceline": {"resume": True}}


def joined(events: list[dict]) -> str:
    return "".join(text_of(event) for event in events)


def ended(events: list[dict]) -> tuple:
    """What the end of a stream says beside its text."""
    reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
    return [reason for reason in reasons if reason], events[-1]["usage"], events[-1]["paceline"]["seed"]


class Resumption(CliTest):
    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server("--method", "prompt-lookup", "--requests", "4")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def resume(self, stream_id: str, at: int, **kwargs):
        return self.server.get(f"/v1/streams/{stream_id}?from={at}", **kwargs)

    def check_every_place(self, path: str, body: dict) -> None:
        answer = self.server.post(path, {**body, **RESUME})
        self.assertEqual(answer.status, 200, answer.text)
        pairs = events_with_ids(answer.text)
        events = [event for _, event in pairs]
        stream_id = answer.headers["X-Stream-Id"]
        self.assertEqual({event["id"] for event in events}, {stream_id})
        text, end = joined(events), ended(events)
        self.assertGreater(len(events), 2)
        for index, (at, _) in enumerate(pairs):
            rest = self.resume(stream_id, at)
            self.assertEqual(rest.status, 200, rest.text)
            self.assertEqual(rest.headers["X-Stream-Id"], stream_id)
            self.assertTrue(rest.text.endswith("data: [DONE]\n\n"))
            self.assertEqual(joined(events[:index + 1]) + rest.content, text, f"behind event {index}")
            self.assertEqual(ended(rest.events), end)
        # Between events too: what a token made certain is with it.
        tokens = end[1]["completion_tokens"]
        rests = [self.resume(stream_id, at).content for at in range(tokens + 2)]
        self.assertEqual((rests[0], rests[-1]), (text, ""))
        for longer, shorter in zip(rests, rests[1:]):
            self.assertTrue(longer.endswith(shorter))
        self.assertEqual(self.resume(stream_id, tokens + 2).status, 400)

    def test_a_stream_resumed_at_every_event_has_the_same_text(self):
        whole = self.server.chat(max_tokens=64).json["choices"][0]["message"]["content"]
        seeded = {"temperature": 0.9, "seed": 7}
        for fields in ({}, seeded, {"max_tokens": 64, "stop": whole[20:24]}, {"max_tokens": 1}):
            self.check_every_place("/v1/chat/completions", chat_body("Tell me everything", **{**LONG, **fields}))
        self.check_every_place("/v1/completions", {"prompt": PROMPT * 4, **LONG, **seeded})

    def test_the_text_is_that_of_a_stream_without_resumption(self):
        without = self.server.chat(stream=True, **LONG)
        with_it = self.server.chat(**LONG, **RESUME)
        self.assertEqual(with_it.content, without.content)
        self.assertNotIn("\nid: ", without.text)
        self.assertIsNone(without.headers["X-Stream-Id"])

    def test_last_event_id_counts_more_than_the_query(self):
        answer = self.server.chat(**LONG, **RESUME)
        stream_id, at = answer.headers["X-Stream-Id"], events_with_ids(answer.text)[3][0]
        expected = self.resume(stream_id, at).content
        self.assertEqual(self.resume(stream_id, 0, headers={"Last-Event-ID": str(at)}).content, expected)
        self.assertEqual(self.server.get(f"/v1/streams/{stream_id}").content, answer.content)

    def test_what_cannot_be_resumed_is_named(self):
        known = self.server.chat(max_tokens=2, **RESUME).headers["X-Stream-Id"]
        for path, status, param in ((f"/v1/streams/{known}?from=-1", 400, "from"),
                                    (f"/v1/streams/{known}?from=x", 400, "from"),
                                    (f"/v1/streams/{known}?from=", 400, "from"),
                                    (f"/v1/streams/{known}?from=99999999999999999999", 400, "from"),
                                    ("/v1/streams/chatcmpl-00", 404, "id")):
            refused = self.server.get(path)
            self.assertEqual((refused.status, refused.json["error"]["param"]), (status, param), path)
        self.assertEqual(self.server.ask("HEAD", f"/v1/streams/{known}").status, 405)
        for fields in ({}, {"stream": True, "n": 2}):
            refused = self.server.chat(paceline={"resume": True}, **fields)
            self.assertEqual((refused.status, refused.json["error"]["param"]), (400, "paceline.resume"))
        two = self.server.post("/v1/completions", {"prompt": ["a", "b"], **RESUME})
        self.assertEqual((two.status, two.json["error"]["param"]), (400, "paceline.resume"))


class Lost(CliTest):
    """Clients that are lost in the middle of their answers: stages are held (SIGSTOP)."""

    def pipeline(self) -> str:
        path = self.folder / "pipeline.toml"
        path.write_text(pipeline_toml(1, True) + "[supervision]\nrestarts_max = 1000\n")
        return str(path)

    def test_an_answer_goes_on_without_its_client_and_over_a_killed_stage(self):
        with Server("--config", self.pipeline(), "--requests", "2") as server:
            body = chat_body("Tell me everything", temperature=0.8, seed=3, **LONG)
            expected = server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
            for victim in ("segment", "draft"):
                stream = server.stream({**body, **RESUME})
                stream.read_until('"content":"')
                stream_id = stream.response.headers["X-Stream-Id"]
                stream.close()
                os.kill(server.stage(victim), signal.SIGKILL)
                got = events_with_ids(stream.text.rpartition("\n\n")[0])
                rest = server.get(f"/v1/streams/{stream_id}?from={got[-1][0] if got else 0}")
                self.assertEqual(joined([event for _, event in got]) + rest.content, expected)
                wait_until(lambda: server.get("/health").json["status"] == "ok", "all stages are back")
            server.wait_metric("paceline_answers_cancelled_total", 0)

    def test_eight_streams_that_lose_client_and_stage_have_their_texts(self):
        with Server("--config", self.pipeline(), "--requests", "8") as server:
            bodies = [chat_body(f"Question {i}", temperature=0.8, seed=i, **LONG) for i in range(8)]
            expected = [server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
                        for body in bodies]
            server.stop_stages()
            streams = [server.stream({**body, **RESUME}) for body in bodies]
            server.wait_metric("paceline_requests_running", 8)
            os.kill(server.stage("segment"), signal.SIGKILL)
            server.continue_stages()
            got = []
            for stream in streams:
                stream.read_until('"content":"')
                stream.close()
                got.append(events_with_ids(stream.text.rpartition("\n\n")[0]))
            rests = in_parallel([lambda s=s, g=g: server.get(
                f"/v1/streams/{s.response.headers['X-Stream-Id']}?from={g[-1][0] if g else 0}")
                for s, g in zip(streams, got)])
            self.assertEqual([joined([event for _, event in g]) + rest.content for g, rest in zip(got, rests)],
                             expected)
            self.assertTrue(all(rest.events[-1]["paceline"]["replays"] > 0 for rest in rests))

    def test_a_client_that_comes_back_early_waits_for_the_rest(self):
        with Server("--config", self.pipeline()) as server:
            expected = server.chat(**LONG).json["choices"][0]["message"]["content"]
            server.stop_stages()
            first = server.stream(chat_body("Tell me everything", **LONG, **RESUME))
            stream_id = first.response.headers["X-Stream-Id"]
            first.close()
            server.wait_metric("paceline_client_disconnects_total", 1)
            self.assertEqual(server.get(f"/v1/streams/{stream_id}?from=1").status, 400)
            connection = server.connect()
            connection.request("GET", f"/v1/streams/{stream_id}")
            response = connection.getresponse()
            server.continue_stages()
            self.assertEqual(joined(events_of(response.read().decode())), expected)
            connection.close()

    def test_a_stream_whose_client_does_not_come_back_is_forgotten_and_cancelled(self):
        with Server("--config", self.pipeline(), "--resume", "0.2") as server:
            server.stop_stages()
            stream = server.stream(chat_body("Tell me everything", **LONG, **RESUME))
            stream_id = stream.response.headers["X-Stream-Id"]
            stream.close()
            wait_until(lambda: server.get(f"/v1/streams/{stream_id}?from=x").status == 404, "it is forgotten")
            server.continue_stages()
            server.wait_metric("paceline_answers_cancelled_total", 1)
            server.wait_metric("paceline_requests_running", 0)
        with Server("--config", self.pipeline(), "--resume", "0") as server:
            refused = server.chat(**RESUME)
            self.assertEqual((refused.status, refused.json["error"]["param"]), (400, "paceline.resume"))

    def test_another_key_does_not_find_the_stream(self):
        keys = self.folder / "keys"
        keys.write_text("first-key-1\nsecond-key-2\n")
        with Server("--config", self.pipeline(), "--api-key-file", str(keys)) as server:
            own, other = ({"Authorization": f"Bearer {key}"} for key in ("first-key-1", "second-key-2"))
            answer = server.post("/v1/chat/completions", chat_body("x", max_tokens=4, **RESUME), headers=own)
            path = f"/v1/streams/{answer.headers['X-Stream-Id']}?from=0"
            self.assertEqual(server.get(path, headers=own).content, answer.content)
            self.assertEqual(server.get(path, headers=other).status, 404)
            self.assertEqual(server.get(path).status, 401)


if __name__ == "__main__":
    unittest.main()
