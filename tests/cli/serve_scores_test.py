"""paceline serve: log probabilities and echo, beside `paceline score`."""

import json
import unittest

from paceline_cli import CliTest, PROMPT, TINY
from serve_server import Server

PATH = "/v1/completions"
TEXTS = [PROMPT, "The sky is blue.", "Once upon a time"]


class Scores(CliTest):
    """Every test asks the same server, whose method proposes candidates."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server("--method", "prompt-lookup", "--requests", "4")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def ask(self, body: dict, path: str = PATH):
        answer = self.server.post(path, {"temperature": 0, **body})
        self.assertEqual(answer.status, 200, answer.text)
        return answer

    def scored_here(self, text: str, top: int) -> list[dict]:
        """What `paceline score` says of each token."""
        file = self.folder / "text.txt"
        file.write_text(text)
        return json.loads(self.run_ok("score", "-m", TINY, "-o", "json", "--top", str(top), str(file)))["tokens"]

    def test_an_echo_alone_has_the_values_of_paceline_score(self):
        many = self.ask({"prompt": TEXTS, "max_tokens": 0, "echo": True, "logprobs": 3}).json
        self.assertEqual([choice["text"] for choice in many["choices"]], TEXTS)
        self.assertEqual(many["usage"]["completion_tokens"], 0)
        for text, choice in zip(TEXTS, many["choices"]):
            tokens = self.scored_here(text, 3)
            scores = choice["logprobs"]
            self.assertEqual(scores["token_logprobs"], [token["logprob"] for token in tokens])
            self.assertIsNone(scores["top_logprobs"][0])
            for top, token in zip(scores["top_logprobs"][1:], tokens[1:]):
                self.assertEqual(max(top.values()), token["top"][0]["logprob"])
            starts = [len("".join(scores["tokens"][:i])) for i in range(len(tokens))]
            self.assertEqual(scores["text_offset"], starts)

    def test_token_ids_are_echoed_as_text(self):
        ids = self.server.post("/tokenize", {"prompt": PROMPT}).json["tokens"]
        by_text, by_ids = (self.ask({"prompt": prompt, "max_tokens": 1, "echo": True, "logprobs": 1}).json["choices"][0]
                           for prompt in (PROMPT, ids))
        self.assertEqual(by_ids, by_text)
        self.assertEqual(len(by_ids["logprobs"]["tokens"]), len(ids) + 1)
        plain = self.ask({"prompt": PROMPT, "max_tokens": 1, "echo": True}).json["choices"][0]
        self.assertEqual((plain["text"], plain["logprobs"]), (by_text["text"], None))

    def test_a_stream_and_any_speculation_have_the_values_of_the_whole(self):
        body = {"prompt": PROMPT, "max_tokens": 60, "echo": True, "logprobs": 2, "ignore_eos": True}
        whole = self.ask(body).json["choices"][0]
        alone = self.ask({**body, "paceline": {"speculation": "off"}}).json["choices"][0]
        self.assertEqual(alone, whole)
        chunks = [event["choices"][0] for event in self.ask({**body, "stream": True}).events if event["choices"]]
        self.assertEqual("".join(chunk["text"] for chunk in chunks), whole["text"])
        for name, values in whole["logprobs"].items():
            parts = [chunk["logprobs"][name] for chunk in chunks if chunk["logprobs"]]
            self.assertEqual(sum(parts, []), values, name)

    def test_chats_have_an_entry_for_each_token(self):
        body = {"messages": [{"role": "user", "content": "Tell me everything"}], "max_tokens": 40, "logprobs": True,
                "top_logprobs": 2, "ignore_eos": True}
        choice = self.ask(body, "/v1/chat/completions").json["choices"][0]
        entries = choice["logprobs"]["content"]
        self.assertEqual(len(entries), 40)
        said = b"".join(bytes(entry["bytes"]) for entry in entries).decode(errors="replace")
        self.assertTrue(said.startswith(choice["message"]["content"][:20]))
        for entry in entries:
            self.assertEqual(len(entry["top_logprobs"]), 2)
            self.assertEqual(entry["logprob"], entry["top_logprobs"][0]["logprob"], "greedy")
        chunks = [event["choices"][0] for event in self.ask({**body, "stream": True}, "/v1/chat/completions").events]
        parts = [chunk["logprobs"]["content"] for chunk in chunks if chunk["logprobs"]]
        self.assertEqual(sum(parts, []), entries)

    def test_responses_include_those_of_their_text(self):
        wanted = {"include": ["message.output_text.logprobs", "reasoning.encrypted_content"], "top_logprobs": 2}
        fields = {"max_output_tokens": 40, "ignore_eos": True}
        body = {"input": "Tell me everything", **fields}
        part = self.ask({**body, **wanted}, "/v1/responses").json["output"][0]["content"][0]
        entries = part["logprobs"]
        said = b"".join(bytes(entry["bytes"]) for entry in entries).decode(errors="replace")
        self.assertTrue(said.startswith(part["text"][:20]))
        chat = {"messages": [{"role": "user", "content": "Tell me everything"}], "max_tokens": 40, "logprobs": True,
                "top_logprobs": 2, "ignore_eos": True}
        of_chat = self.ask(chat, "/v1/chat/completions").json["choices"][0]["logprobs"]["content"]
        rest = iter(of_chat)  # that also has tokens without text
        self.assertTrue(entries and all(entry in rest for entry in entries))
        events = self.ask({**body, **wanted, "stream": True}, "/v1/responses").events
        parts = [event["logprobs"] for event in events if event["type"] == "response.output_text.delta"]
        self.assertEqual(sum(parts, []), entries)
        without = self.ask(body, "/v1/responses").json["output"][0]["content"][0]
        self.assertEqual((without["logprobs"], without["text"]), ([], part["text"]))
        refused = self.server.post("/v1/responses", {**body, "include": ["everything"]})
        self.assertEqual((refused.status, refused.json["error"]["param"]), (400, "include[0]"))

    def test_the_field_that_is_wrong_is_named(self):
        for body, param in (({"logprobs": 21}, "logprobs"), ({"echo": "yes"}, "echo"), ({"max_tokens": 0}, "max_tokens")):
            answer = self.server.post(PATH, {"prompt": "x", **body})
            self.assertEqual((answer.status, answer.json["error"]["param"]), (400, param))
        chat = {"messages": [{"role": "user", "content": "x"}]}
        for body, param in (({"top_logprobs": 2}, "top_logprobs"), ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
                            ({"echo": True}, "echo")):
            answer = self.server.post("/v1/chat/completions", {**chat, **body})
            self.assertEqual((answer.status, answer.json["error"]["param"]), (400, param))


if __name__ == "__main__":
    unittest.main()
