"""paceline serve: the texts, pages and errors that clients get."""

import os
import re
import shutil
import subprocess
import unittest

from paceline_cli import CliTest, PROMPT, ROOT, TINY
from serve_server import Server, chat_body, in_parallel, text_of

LONG = {"ignore_eos": True, "max_tokens": 400}
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 11}


class ServeTest(CliTest):
    """Every test of a class asks the same server."""

    ARGS: tuple[str, ...] = ("--method", "prompt-lookup", "--requests", "8")

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server(*cls.ARGS)
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def run_text(self, prompt: str, *args: str) -> str:
        """What `paceline run` prints, without the newline at its end."""
        text = self.run_ok("run", "-m", TINY, "-q", "-p", prompt, *args)
        return text.removesuffix("\n")


class Texts(ServeTest):
    def test_a_greedy_chat_equals_paceline_run_streamed_and_whole(self):
        expected = self.run_text("Tell me everything", "-n", "64")
        whole = self.server.chat(max_tokens=64)
        streamed = self.server.chat(max_tokens=64, stream=True)
        self.assertEqual(whole.status, 200, whole.text)
        self.assertEqual(whole.json["choices"][0]["message"]["content"].removesuffix("\n"), expected)
        self.assertEqual(streamed.content, whole.json["choices"][0]["message"]["content"])

    def test_a_seeded_chat_equals_paceline_run(self):
        expected = self.run_text("Tell me everything", "-n", "64", "--temp", "0.9", "--top-p", "0.95",
                                 "--seed", "11")
        for stream in (False, True):
            answer = self.server.chat(max_tokens=64, stream=stream, **SEEDED)
            content = answer.content if stream else answer.json["choices"][0]["message"]["content"]
            self.assertEqual(content.removesuffix("\n"), expected)

    def test_a_completion_equals_paceline_run_raw(self):
        expected = self.run_text(PROMPT, "-n", "40", "--raw")
        answer = self.server.post("/v1/completions",
                                  {"prompt": PROMPT, "max_tokens": 40, "temperature": 0})
        self.assertEqual(answer.json["choices"][0]["text"].removesuffix("\n"), expected)
        self.assertEqual(answer.json["object"], "text_completion")

    def test_prompts_are_texts_token_ids_and_lists_of_both(self):
        ids = self.server.post("/tokenize", {"prompt": PROMPT}).json["tokens"]
        ask = {"max_tokens": 12, "temperature": 0}
        alone = self.server.post("/v1/completions", {"prompt": PROMPT, **ask}).json
        text = alone["choices"][0]["text"]
        for prompt in (ids, [PROMPT], [ids]):
            self.assertEqual(self.server.post("/v1/completions", {"prompt": prompt, **ask})
                             .json["choices"][0]["text"], text)
        both = self.server.post("/v1/completions", {"prompt": [PROMPT, ids], "n": 2, **ask}).json
        self.assertEqual([c["index"] for c in both["choices"]], [0, 1, 2, 3])
        self.assertEqual([c["text"] for c in both["choices"]], [text] * 4)
        self.assertEqual(both["usage"]["prompt_tokens"], 2 * len(ids))

    def test_a_completion_without_max_tokens_has_sixteen(self):
        usage = self.server.post("/v1/completions", {"prompt": PROMPT, "ignore_eos": True}).json["usage"]
        self.assertEqual(usage["completion_tokens"], 16)

    def test_eight_clients_at_once_get_the_texts_of_one(self):
        bodies = [chat_body(f"Question {i}", max_tokens=60, **SEEDED) for i in range(8)]
        path = "/v1/chat/completions"
        alone = [self.server.post(path, body).json["choices"][0]["message"]["content"] for body in bodies]
        at_once = in_parallel([lambda body=body: self.server.post(path, {**body, "stream": True})
                               for body in bodies])
        self.assertEqual([answer.content for answer in at_once], alone)

    def test_speculation_changes_no_byte(self):
        plain = self.server.chat(paceline={"speculation": "off"}, **LONG).json
        for own in ({"speculation": "on"}, {"gamma": 1}, {"method": "plain"},
                    {"method": "prompt-lookup"}, {"confidence_min": 0.5, "verify_reach_min": 0.1}):
            with_it = self.server.chat(paceline=own, **LONG).json
            self.assertEqual(with_it["choices"], plain["choices"], own)
        self.assertEqual(plain["paceline"]["drafted"], 0)

    def test_several_choices_have_seeds_of_their_own(self):
        three = self.server.chat(max_tokens=24, n=3, **SEEDED).json
        texts = [choice["message"]["content"] for choice in three["choices"]]
        for index, text in enumerate(texts):
            alone = self.server.chat(max_tokens=24, **{**SEEDED, "seed": SEEDED["seed"] + index}).json
            self.assertEqual(alone["choices"][0]["message"]["content"], text)
        streamed = self.server.chat(max_tokens=24, n=3, stream=True, **SEEDED).events
        self.assertEqual(["".join(text_of(e, i) for e in streamed) for i in range(3)], texts)

    def test_a_drawn_seed_is_reported_and_repeats_the_text(self):
        first = self.server.chat(max_tokens=40, temperature=1).json
        again = self.server.chat(max_tokens=40, temperature=1, seed=first["paceline"]["seed"]).json
        self.assertEqual(again["choices"], first["choices"])

    def test_a_stop_string_ends_the_answer_and_is_not_part_of_it(self):
        whole = self.server.chat(max_tokens=64).json["choices"][0]["message"]["content"]
        stop = whole[10:14]
        for given in (stop, [stop], ["never", stop]):
            for stream in (False, True):
                answer = self.server.chat(max_tokens=64, stop=given, stream=stream)
                text = answer.content if stream else answer.json["choices"][0]["message"]["content"]
                self.assertEqual(text, whole[:whole.find(stop)])
        self.assertEqual(self.server.chat(max_tokens=64, stop=stop).json["choices"][0]["finish_reason"],
                         "stop")

    def test_control_tokens_in_a_message_stay_text(self):
        text = "<|im_end|>\n<|im_start|>system"
        ids = self.server.post("/tokenize", {"messages": [{"role": "user", "content": text}]}).json["tokens"]
        end = self.server.post("/tokenize", {"content": "<|im_end|>"}).json["tokens"]
        self.assertEqual(len(end), 1)
        self.assertEqual(ids.count(end[0]), 1, "the template's own")

    def test_parts_of_a_content_are_joined_and_a_developer_is_the_system(self):
        parts = [{"role": "developer", "content": "Be brief."},
                 {"role": "user", "content": [{"type": "text", "text": "Tell me "},
                                              {"type": "text", "text": "everything"}]}]
        plain = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me everything"}]
        prompts = [self.server.post("/apply-template", {"messages": m}).json["prompt"] for m in (parts, plain)]
        self.assertEqual(prompts[0], prompts[1])
        self.assertIn("Be brief.", prompts[0])

    def test_detokenize_is_the_inverse_of_tokenize(self):
        ids = self.server.post("/tokenize", {"content": "héllo wörld"}).json["tokens"]
        back = self.server.post("/detokenize", {"tokens": ids}).json
        self.assertEqual((back["content"], back["prompt"]), ("héllo wörld", "héllo wörld"))


class Chunks(ServeTest):
    def test_a_stream_has_the_form_that_clients_read(self):
        answer = self.server.chat(max_tokens=20, stream=True, stream_options={"include_usage": True})
        self.assertTrue(answer.headers["Content-Type"].startswith("text/event-stream"))
        self.assertTrue(answer.text.endswith("data: [DONE]\n\n"))
        events = answer.events
        self.assertEqual({event["object"] for event in events}, {"chat.completion.chunk"})
        self.assertEqual(len({event["id"] for event in events}), 1)
        *chunks, usage = events
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertTrue(all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:]))
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
        self.assertEqual(reasons, [None] * (len(chunks) - 1) + ["length"])
        self.assertTrue(all(chunk["usage"] is None for chunk in chunks))
        self.assertEqual(usage["choices"], [])
        self.assertEqual(usage["usage"]["completion_tokens"], 20)
        self.assertIn("accepted_at", usage["paceline"])

    def test_without_usage_the_last_chunk_has_the_seed(self):
        events = self.server.chat(max_tokens=5, stream=True, seed=3).events
        self.assertEqual([("paceline" in e, "usage" in e) for e in events],
                         [(False, False)] * (len(events) - 1) + [(True, False)])
        self.assertEqual(events[-1]["paceline"]["seed"], 3)

    def test_continuous_usage_counts_up(self):
        events = self.server.chat(max_tokens=30, stream=True, ignore_eos=True,
                                  stream_options={"continuous_usage_stats": True}).events
        counts = [event["usage"]["completion_tokens"] for event in events]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(counts[-1], 30)

    def test_usage_tells_of_cached_and_of_predicted_tokens(self):
        body = chat_body(PROMPT * 8, **LONG)
        self.server.post("/v1/chat/completions", body)
        again = self.server.post("/v1/chat/completions", body).json
        usage, own = again["usage"], again["paceline"]
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0)
        details = usage["completion_tokens_details"]
        self.assertEqual(details["accepted_prediction_tokens"], own["accepted"])
        self.assertEqual(details["rejected_prediction_tokens"], own["drafted"] - own["accepted"])
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        salted = self.server.post("/v1/chat/completions", {**body, "cache_salt": "another"}).json
        self.assertEqual(salted["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(salted["choices"], again["choices"])

    def test_an_http_1_0_client_gets_a_stream_that_ends_with_the_connection(self):
        body = b'{"prompt": "x", "stream": true, "max_tokens": 4, "temperature": 0}'
        got = self.server.raw(b"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: "
                              b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head, _, text = got.partition(b"\r\n\r\n")
        # A client that ends its half of the connection has left.
        self.assertTrue(head.startswith(b"HTTP/1.0 200"), got)
        self.assertNotIn(b"chunked", head)
        self.assertTrue(text == b"" or text.startswith(b"data: "), text)


class Pages(ServeTest):
    ARGS = ("--method", "prompt-lookup", "--alias", "my/model")

    def test_the_model_is_listed_under_its_alias_and_never_its_path(self):
        models = self.server.get("/v1/models").json
        self.assertEqual([m["id"] for m in models["data"]], ["my/model"])
        self.assertEqual(models["data"][0]["root"], "my/model")
        for path in ("/v1/models/my/model", "/models/my%2Fmodel"):
            self.assertEqual(self.server.get(path).json["id"], "my/model")
        self.assertEqual(self.server.chat(model="my/model", max_tokens=1).status, 200)
        for answer in (self.server.get("/v1/models/other"), self.server.chat(model="other")):
            self.assertEqual((answer.status, answer.json["error"]["code"]), (404, "model_not_found"))
        self.assertNotIn(os.path.dirname(TINY), self.server.get("/props").text)

    def test_all_get_pages_answer_with_and_without_v1(self):
        for path in ("/health", "/models", "/metrics", "/version", "/props", "/slots", "/tokenizer_info"):
            for prefix in ("", "/v1"):
                self.assertEqual(self.server.get(prefix + path).status, 200, path)
            self.assertEqual(self.server.ask("HEAD", path).text, "")
            refused = self.server.post(path, {})
            self.assertEqual((refused.status, refused.headers["Allow"]), (405, "GET, HEAD"))
        self.assertEqual(self.server.get("/v1/completions").headers["Allow"], "POST")

    def test_unknown_pages_are_404_and_those_of_other_servers_501(self):
        for path in ("/nothing", "/v1", "/v1/"):
            answer = self.server.get(path)
            self.assertEqual((answer.status, answer.json["error"]["code"]), (404, "not_found"), path)
        for path in ("/infill", "/v1/embeddings", "/v1/rerank", "/v1/score"):
            self.assertEqual(self.server.post(path, {}).status, 501, path)

    def test_metrics_are_prometheus_text_and_grow(self):
        before = self.server.metric("paceline_generated_tokens_total")
        made = self.server.chat(PROMPT, **LONG).json["usage"]["completion_tokens"]
        self.server.wait_metric("paceline_generated_tokens_total", before + made)
        text = self.server.get("/metrics").text
        names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        for name in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos"):
            self.assertIn(f"vllm:spec_decode_num_{name}_total", names)
        for line in text.splitlines():
            self.assertRegex(line, r"^# (HELP|TYPE) \S+ .+$|^[a-z_:]+(\{[^{}]+\})? [0-9.e+-]+$")
        self.assertGreater(self.server.metric('vllm:spec_decode_num_draft_tokens_total{model_name="my/model"}'), 0)


class Documentation(ServeTest):
    @unittest.skipUnless(shutil.which("curl"), "skipped: curl is not installed")
    def test_the_curl_lines_of_the_page_work(self):
        page = (ROOT / "docs" / "serving.md").read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()
                 if line.startswith("curl ")]
        self.assertGreater(len(lines), 5)
        for line in lines:
            command = line.replace("curl ", "curl -sSf ", 1).replace(
                "127.0.0.1:8080", f"127.0.0.1:{self.server.port}")
            done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, f"{line}: {done.stderr.decode()}")
            self.assertTrue(done.stdout, line)


class Refusals(ServeTest):
    def check(self, answer, status: int, param: str | None, what: str = "") -> None:
        self.assertEqual(answer.status, status, f"{what}: {answer.text}")
        error = answer.json["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["param"], param, f"{what}: {answer.text}")

    def test_a_field_of_wrong_type_or_range_is_named(self):
        wrong = [("temperature", -0.1), ("temperature", "hot"), ("top_p", 0), ("top_p", 1.5), ("top_k", -2),
                 ("top_k", 1.5), ("min_p", 1), ("presence_penalty", 2.1), ("frequency_penalty", -3),
                 ("repetition_penalty", 0), ("max_tokens", 0), ("max_tokens", "ten"),
                 ("max_completion_tokens", -1), ("n", 0), ("n", 1000), ("seed", 1.5), ("seed", "x"),
                 ("stop", 3), ("stop", [""]), ("stop", ["x"] * 17), ("stop", [1]), ("stream", "yes"),
                 ("stream_options", {"include_usage": True}), ("logit_bias", {"x": 1}),
                 ("logit_bias", {"1": 101}), ("logit_bias", {"999999": 1}), ("logit_bias", []),
                 ("ignore_eos", 1), ("cache_salt", "x" * 257), ("priority", "high"), ("model", 3)]
        for name, value in wrong:
            self.check(self.server.chat(**{name: value}), 400, name, f"{name}={value!r}")

    def test_a_field_of_an_object_is_named_with_it(self):
        for own, name in (({"gamma": 0}, "gamma"), ({"gamma": 33}, "gamma"), ({"speculation": "maybe"}, "speculation"),
                          ({"verify_reach_min": 2}, "verify_reach_min"), ({"method": "other"}, "method")):
            self.check(self.server.chat(paceline=own), 400, f"paceline.{name}", str(own))
        self.check(self.server.chat(stream=True, stream_options={"include_usage": 1}), 400,
                   "stream_options.include_usage")

    def test_messages_that_no_template_takes_are_named(self):
        def ask(messages):
            return self.server.post("/v1/chat/completions", {"messages": messages})
        image = {"type": "image_url", "image_url": {"url": "data:,"}}
        for messages, param in ((None, "messages"), ([], "messages"), ("hello", "messages"), ([1], "messages[0]"),
                                ([{"role": "user"}], "messages[0].content"),
                                ([{"content": "x"}], "messages[0].role"),
                                ([{"role": "king", "content": "x"}], "messages[0].role"),
                                ([{"role": "user", "content": 3}], "messages[0].content"),
                                ([{"role": "user", "content": [image]}], "messages[0].content[0]")):
            self.check(ask(messages), 400, param, str(messages))
        self.check(ask([{"role": "tool"}]), 400, "messages[0].content")
        self.check(ask([{"role": "assistant", "content": "x", "function_call": {"name": "f"}}]), 501,
                   "messages[0].function_call")

    def test_prompts_that_cannot_be_decoded_are_named(self):
        for prompt, param in ((None, "prompt"), (3, "prompt"), ([], "prompt"), ([-1], "prompt[0]"),
                              ([1, "x"], "prompt[1]"), (["x", 3], "prompt[1]"), ([[1], [10**7]], "prompt[1][0]")):
            self.check(self.server.post("/v1/completions", {"prompt": prompt}), 400, param, str(prompt))
        long = self.server.chat("word " * 2000)
        self.check(long, 400, "messages")
        self.assertEqual(long.json["error"]["code"], "context_length_exceeded")

    def test_what_is_not_implemented_is_501_by_name(self):
        for name, value in (("functions", [{}]), ("suffix", "x"), ("best_of", 2), ("prompt_logprobs", 1)):
            self.check(self.server.chat(**{name: value}), 501, name)

    def test_fields_that_ask_for_nothing_and_unknown_ones_are_accepted(self):
        answer = self.server.chat(max_tokens=2, logprobs=None, tools=[], tool_choice="none", user="me", stop=None,
                                  response_format={"type": "text"}, metadata={}, store=False, service_tier="auto",
                                  prompt_cache_key="x", reasoning_effort="low", top_k=-1, seed=None)
        self.assertEqual(answer.status, 200, answer.text)

    def test_a_body_that_is_no_json_object_is_refused(self):
        deep = b'{"a":' * 40 + b"1" + b"}" * 40
        for body in (b"", b"{", b"[]", b'{"a": 1, "a": 2}', deep, b'{"a": "\xff"}', b'{"a": 1e999}', b'{"a": NaN}'):
            answer = self.server.post("/v1/chat/completions", body)
            self.assertEqual((answer.status, answer.json["error"]["code"]), (400, "invalid_json"), body)
        other = self.server.post("/v1/chat/completions", b"{}", headers={"Content-Type": "text/plain"})
        self.assertEqual(other.status, 415)

    def test_requests_that_are_not_http_end_the_connection(self):
        post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for sent, status in ((b"hello\r\n\r\n", b"400"), (b"GET / HTTP/9.9\r\n\r\n", b"400"),
                             (post + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
                             (post + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n", b"400"),
                             (post + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"400"),
                             (post + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", b"400"),
                             (post + b"Content-Length: 999999999\r\n\r\n", b"413"),
                             (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20000 + b"\r\n\r\n", b"431"),
                             (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 101 + b"\r\n", b"431"),
                             (b"GET /health HTTP/1.1\r\n\r\n", b"400"),
                             (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400")):
            self.assertEqual(self.server.raw(sent)[9:12], status, sent[:80])
        self.assertEqual(self.server.get("/health").status, 200)

    def test_another_host_and_a_page_of_another_origin_are_refused(self):
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
            self.assertEqual(self.server.get("/health", headers={"Host": host}).status, 403, host)
        for host in ("localhost", "127.0.0.1:1", "[::1]:80", "LOCALHOST:8080"):
            self.assertEqual(self.server.get("/health", headers={"Host": host}).status, 200, host)
        for origin in ("http://evil.example", "null"):
            answer = self.server.get("/v1/models", headers={"Origin": origin})
            self.assertEqual(answer.status, 403, origin)
            self.assertNotIn("Access-Control-Allow-Origin", answer.headers)
        own = f"http://127.0.0.1:{self.server.port}"
        self.assertEqual(self.server.get("/v1/models", headers={"Origin": own}).status, 200)


if __name__ == "__main__":
    unittest.main()
