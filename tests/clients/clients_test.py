"""paceline serve asked by openai, langchain-openai and litellm. Run by with_clients_python."""

import asyncio
import os
import signal
import tempfile
import threading
import unittest
from pathlib import Path

import litellm
import openai
from langchain_openai import ChatOpenAI

from paceline_cli import CliTest, PROMPT, TINY, pipeline_toml
from serve_server import ALWAYS_PROPOSES, Server, chat_body, wait_until

litellm.suppress_debug_info = True
KEY = "a-key-of-clients"
ASK = [{"role": "user", "content": "Tell me everything"}]
LONG = {"ignore_eos": True}


class ClientTest(CliTest):
    """Every test of a class asks the same server, which wants a key."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.expected = {}
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        (folder / "keys").write_text(KEY + "\n")
        (folder / "config.toml").write_text(ALWAYS_PROPOSES)
        cls.server = Server("--config", str(folder / "config.toml"), "--requests", "4", "--alias", "tiny",
                            "--api-key-file", str(folder / "keys"))
        cls.addClassCleanup(cls.server.__exit__, None, None, None)
        cls.url = f"http://127.0.0.1:{cls.server.port}/v1"

    def run_text(self, prompt: str, *args: str) -> str:
        """What `paceline run` prints, without the newline at its end."""
        key = (prompt, args)
        if key not in self.expected:
            self.expected[key] = self.run_ok("run", "-m", TINY, "-q", "-p", prompt, *args).removesuffix("\n")
        return self.expected[key]

    def same(self, text: str, prompt: str, *args: str) -> None:
        self.assertEqual(text.removesuffix("\n"), self.run_text(prompt, *args))


class OpenAi(ClientTest):
    def setUp(self) -> None:
        super().setUp()
        self.client = openai.OpenAI(base_url=self.url, api_key=KEY, max_retries=0)
        self.addCleanup(self.client.close)

    def chat(self, **fields):
        return self.client.chat.completions.create(**{"model": "tiny", "messages": ASK, "temperature": 0,
                                                      "max_tokens": 64, **fields})

    def test_a_chat_equals_paceline_run_whole_and_streamed(self):
        whole = self.chat()
        self.same(whole.choices[0].message.content, ASK[0]["content"], "-n", "64")
        self.assertEqual((whole.object, whole.choices[0].message.role), ("chat.completion", "assistant"))
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_a_seeded_chat_equals_paceline_run(self):
        whole = self.chat(temperature=0.9, top_p=0.95, seed=11)
        self.same(whole.choices[0].message.content, ASK[0]["content"], "-n", "64", "--temp", "0.9", "--top-p", "0.95",
                  "--seed", "11")

    def test_the_streaming_helper_builds_the_whole_completion(self):
        # An answer that ends by itself: one that is cut is an error of the helper.
        stop = self.chat().choices[0].message.content[20:24]
        ask = {"model": "tiny", "messages": ASK, "temperature": 0, "stop": stop}
        with self.client.chat.completions.stream(**ask) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content,
                         self.client.chat.completions.create(**ask).choices[0].message.content)
        self.assertEqual(final.choices[0].finish_reason, "stop")

    def test_choices_stops_and_usage(self):
        one = self.chat().choices[0].message.content
        stop = one[10:14]
        stopped = self.chat(stop=[stop]).choices[0]
        self.assertEqual((stopped.message.content, stopped.finish_reason), (one[:one.find(stop)], "stop"))
        three = self.chat(n=3, temperature=0.9, seed=11)
        self.assertEqual([choice.index for choice in three.choices], [0, 1, 2])
        self.same(three.choices[2].message.content, ASK[0]["content"], "-n", "64", "--temp", "0.9", "--seed", "13")
        usage = self.chat(messages=[{"role": "user", "content": PROMPT}], max_tokens=200, extra_body=LONG).usage
        self.assertEqual(usage.completion_tokens, 200)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + 200)
        self.assertGreater(usage.completion_tokens_details.accepted_prediction_tokens, 0)
        self.assertGreaterEqual(usage.prompt_tokens_details.cached_tokens, 0)

    def test_completions_take_texts_and_token_ids(self):
        ids = self.server.post("/tokenize", {"prompt": PROMPT}, headers={"X-Api-Key": KEY}).json["tokens"]
        for prompt in (PROMPT, ids, [PROMPT], [ids]):
            whole = self.client.completions.create(model="tiny", prompt=prompt, max_tokens=40, temperature=0)
            self.same(whole.choices[0].text, PROMPT, "-n", "40", "--raw")
        chunks = self.client.completions.create(model="tiny", prompt=ids, max_tokens=40, temperature=0, stream=True)
        self.same("".join(chunk.choices[0].text for chunk in chunks), PROMPT, "-n", "40", "--raw")

    def test_fields_that_change_no_text_are_accepted(self):
        whole = self.chat(user="me", store=False, metadata={"a": "b"}, service_tier="auto", safety_identifier="x",
                          prompt_cache_key="x", verbosity="low", prediction={"type": "content", "content": "x"},
                          extra_headers={"X-Request-Id": "1"})
        self.same(whole.choices[0].message.content, ASK[0]["content"], "-n", "64")

    def test_eight_at_once_get_the_texts_of_one(self):
        async def all_of_them():
            async with openai.AsyncOpenAI(base_url=self.url, api_key=KEY) as client:
                return await asyncio.gather(*(client.chat.completions.create(
                    model="tiny", messages=ASK, max_tokens=64, temperature=0.9, seed=11 + i) for i in range(8)))
        for i, whole in enumerate(asyncio.run(all_of_them())):
            self.same(whole.choices[0].message.content, ASK[0]["content"], "-n", "64", "--temp", "0.9",
                      "--seed", str(11 + i))

    def test_the_model_is_listed(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").id, "tiny")

    def test_errors_are_those_of_the_package(self):
        with self.assertRaises(openai.NotFoundError) as other:
            self.chat(model="other")
        self.assertEqual(other.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as wrong:
            self.chat(temperature=-1)
        self.assertEqual(wrong.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as long:
            self.chat(messages=[{"role": "user", "content": "word " * 5000}])
        self.assertEqual(long.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="another-key").models.list()
        with self.assertRaises(openai.InternalServerError) as later:
            self.chat(extra_body={"best_of": 2})
        self.assertEqual((later.exception.status_code, later.exception.param), (501, "best_of"))


class LangChain(ClientTest):
    def model(self, **fields) -> ChatOpenAI:
        return ChatOpenAI(**{"base_url": self.url, "api_key": KEY, "model": "tiny", "temperature": 0, "max_tokens": 48,
                             "max_retries": 0, **fields})

    def test_invoke_stream_and_batch_equal_paceline_run(self):
        whole = self.model().invoke("Tell me everything")
        self.same(whole.content, "Tell me everything", "-n", "48")
        self.assertEqual(whole.usage_metadata["total_tokens"],
                         whole.usage_metadata["input_tokens"] + whole.usage_metadata["output_tokens"])
        parts = list(self.model(stream_usage=True).stream("Tell me everything"))
        self.assertEqual("".join(part.content for part in parts), whole.content)
        self.assertEqual(sum(part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata),
                         whole.usage_metadata["output_tokens"])
        for prompt, answer in zip(["One", "Two", "Three"], self.model().batch(["One", "Two", "Three"])):
            self.same(answer.content, prompt, "-n", "48")

    def test_system_messages_stops_and_seeds(self):
        text = self.model().invoke("Tell me everything").content
        stopped = self.model().invoke("Tell me everything", stop=[text[10:14]])
        self.assertEqual(stopped.content, text[:text.find(text[10:14])])
        seeded = self.model(temperature=0.9, seed=5).invoke("Tell me everything")
        self.same(seeded.content, "Tell me everything", "-n", "48", "--temp", "0.9", "--seed", "5")

    def test_errors_reach_the_caller(self):
        with self.assertRaises(openai.NotFoundError):
            self.model(model="other").invoke("x")
        with self.assertRaises(openai.AuthenticationError):
            self.model(api_key="another-key").invoke("x")


class LiteLlm(ClientTest):
    def ask(self, **fields):
        return litellm.completion(**{"model": "openai/tiny", "api_base": self.url, "api_key": KEY, "messages": ASK,
                                     "temperature": 0, "max_tokens": 48, "num_retries": 0, **fields})

    def test_a_completion_equals_paceline_run_whole_and_streamed(self):
        whole = self.ask()
        self.same(whole.choices[0].message.content, ASK[0]["content"], "-n", "48")
        self.assertEqual(whole.usage.completion_tokens + whole.usage.prompt_tokens, whole.usage.total_tokens)
        parts = [part.choices[0].delta.content or "" for part in self.ask(stream=True)]
        self.assertEqual("".join(parts), whole.choices[0].message.content)

    def test_the_text_api_and_choices(self):
        whole = litellm.text_completion(model="text-completion-openai/tiny", api_base=self.url, api_key=KEY,
                                        prompt=PROMPT, max_tokens=40, temperature=0)
        self.same(whole.choices[0].text, PROMPT, "-n", "40", "--raw")
        two = self.ask(n=2, temperature=0.9, seed=5)
        self.same(two.choices[1].message.content, ASK[0]["content"], "-n", "48", "--temp", "0.9", "--seed", "6")

    def test_errors_are_those_of_the_package(self):
        with self.assertRaises(litellm.NotFoundError):
            self.ask(model="openai/other")
        with self.assertRaises(litellm.AuthenticationError):
            self.ask(api_key="another-key")
        with self.assertRaises(litellm.BadRequestError):
            self.ask(temperature=-1)


class Trouble(CliTest):
    def client(self, server: Server, **fields) -> openai.OpenAI:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", **fields)
        self.addCleanup(client.close)
        return client

    def test_a_full_queue_is_asked_again_until_there_is_room(self):
        config = self.folder / "pipeline.toml"
        config.write_text(pipeline_toml(1, False))
        with Server("--config", str(config), "--requests", "1", "--queue", "0") as server:
            expected = server.chat(max_tokens=20).json["choices"][0]["message"]["content"]
            server.stop_stages()
            holds = server.stream(chat_body("Tell me everything", max_tokens=20))
            server.wait_metric("paceline_requests_running", 1)
            answers = []
            client = self.client(server, max_retries=60)
            waits = threading.Thread(target=lambda: answers.append(client.chat.completions.create(
                model=server.get("/v1/models").json["data"][0]["id"], messages=ASK, temperature=0, max_tokens=20)))
            waits.start()
            refused = 'paceline_http_responses_total{code="429"}'
            wait_until(lambda: refused in server.get("/metrics").text, "a request was refused")
            server.continue_stages()
            holds.rest()
            waits.join()
            self.assertEqual(answers[0].choices[0].message.content, expected)
            server.stop_stages()
            holds = server.stream(chat_body("Tell me everything", max_tokens=20))
            server.wait_metric("paceline_requests_running", 1)
            with self.assertRaises(openai.RateLimitError):
                client.with_options(max_retries=0).completions.create(model="", prompt="x")
            server.continue_stages()
            holds.rest()

    def test_an_error_in_mid_stream_is_an_exception(self):
        config = self.folder / "once.toml"
        config.write_text(pipeline_toml(1, False) + "[supervision]\nrestarts_max = 0\n")
        with Server("--config", str(config)) as server:
            stages = server.stop_stages()
            stream = self.client(server, max_retries=0).chat.completions.create(
                model="", messages=ASK, stream=True, max_tokens=100, extra_body=LONG)
            os.kill(stages[0], signal.SIGKILL)
            with self.assertRaises(openai.APIError) as failed:
                list(stream)
            self.assertEqual(failed.exception.code, "pipeline_failed")


if __name__ == "__main__":
    unittest.main(warnings="ignore")  # litellm's own types make hundreds
