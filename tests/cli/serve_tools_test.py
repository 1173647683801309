"""paceline serve: tools, thoughts, /v1/responses and /v1/messages, asked of a model with scripted answers."""

import json
import tempfile
import unittest
from pathlib import Path

from paceline_cli import CliTest
from scripted_model import scripted_model
from serve_server import Server, events_of, events_with_ids, text_of

CALL = '<tool_call>\n{"name": "rain", "arguments": {"city": "Köln", "days": [1, 2]}}\n</tool_call>'
FIRST = "<think>\nA question of rain.\n</think>\n\nI look.\n" + CALL
SECOND = "<think>\nIt said so.\n</think>\n\nIt rains in Köln."
ARGUMENTS = {"city": "Köln", "days": [1, 2]}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "array"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "rain", "description": "Weather", "parameters": SCHEMA}}]
ASK = {"messages": [{"role": "user", "content": "Does it rain?"}], "tools": TOOLS, "temperature": 0}


class ToolsTest(CliTest):
    """Every test of a class asks the same server."""

    TEXTS = [FIRST, SECOND]
    TAGS = False

    @classmethod
    def setUpClass(cls) -> None:
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        (folder / "scripted.gguf").write_bytes(scripted_model(cls.TEXTS, tags=cls.TAGS))
        cls.server = Server("--method", "prompt-lookup", "--requests", "4", model=str(folder / "scripted.gguf"))
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def ok(self, path: str, body: dict):
        answer = self.server.post(path, body)
        self.assertEqual(answer.status, 200, answer.text)
        return answer

    def refused(self, path: str, body: dict, status: int, param: str | None = None) -> dict:
        answer = self.server.post(path, body)
        self.assertEqual(answer.status, status, answer.text)
        if param is not None:
            self.assertEqual(answer.json["error"]["param"], param)
        return answer.json["error"]


def joined(events: list[dict]) -> dict:
    """What a client makes of the chunks of a chat."""
    message: dict = {"content": "", "reasoning": "", "calls": []}
    for event in events:
        for choice in event["choices"]:
            message["finish"] = choice["finish_reason"] or message.get("finish")
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning"] += delta.get("reasoning", "")
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    message["calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                message["calls"][call["index"]]["arguments"] += call["function"]["arguments"]
    return message


class Chat(ToolsTest):
    def test_a_call_and_its_result_go_there_and_back(self):
        answer = self.ok("/v1/chat/completions", ASK).json
        choice = answer["choices"][0]
        message = choice["message"]
        self.assertEqual((message["content"], message["reasoning_content"], message["reasoning"]),
                         ("I look.", "A question of rain.", "A question of rain."))
        self.assertEqual(choice["finish_reason"], "tool_calls")
        call, = message["tool_calls"]
        self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])), ("rain", ARGUMENTS))
        self.assertGreater(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)
        result = {"role": "tool", "tool_call_id": call["id"], "content": "yes"}
        again = self.ok("/v1/chat/completions", {**ASK, "messages": [*ASK["messages"], message, result]}).json
        self.assertEqual(again["choices"][0]["message"]["content"], "It rains in Köln.")
        self.assertEqual(again["choices"][0]["finish_reason"], "stop")

    def test_a_call_that_a_limit_has_cut_goes_back_as_it_is(self):
        for limit in range(8, 40):
            choice = self.ok("/v1/chat/completions", {**ASK, "max_tokens": limit}).json["choices"][0]
            if calls := choice["message"].get("tool_calls"):
                break
        else:
            self.fail("no limit cuts a call")
        arguments = calls[0]["function"]["arguments"]
        self.assertEqual(choice["finish_reason"], "length")
        with self.assertRaises(json.JSONDecodeError):
            json.loads(arguments)
        result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": "cut"}
        replayed = {**ASK, "messages": [*ASK["messages"], choice["message"], result]}
        self.assertIn(json.dumps(arguments, ensure_ascii=False), self.ok("/apply-template", replayed).json["prompt"])
        answer = self.ok("/v1/chat/completions", replayed).json["choices"][0]
        self.assertEqual(answer["message"]["content"], "It rains in Köln.")

    def test_a_stream_has_the_parts_of_the_whole(self):
        whole = self.ok("/v1/chat/completions", ASK).json["choices"][0]["message"]
        answer = self.ok("/v1/chat/completions", {**ASK, "stream": True})
        read = joined(answer.events)
        self.assertEqual((read["content"], read["reasoning"], read["finish"]),
                         (whole["content"], whole["reasoning"], "tool_calls"))
        self.assertEqual([call["arguments"] for call in read["calls"]],
                         [call["function"]["arguments"] for call in whole["tool_calls"]])
        self.assertTrue(answer.text.endswith("data: [DONE]\n\n"))

    def test_a_stream_is_continued_behind_any_token(self):
        answer = self.ok("/v1/chat/completions", {**ASK, "stream": True, "paceline": {"resume": True}})
        path = "/v1/streams/" + answer.headers["X-Stream-Id"]
        events = events_with_ids(answer.text)
        whole = joined([event for _, event in events])
        for place, (id, _) in enumerate(events):
            rest = events_of(self.server.get(f"{path}?from={id}").text)
            both = joined([event for _, event in events[:place + 1]] + rest)
            self.assertEqual(both, whole, id)
        for id in range(events[-1][0] + 1):  # also where this stream had no event
            rest = events_of(self.server.get(f"{path}?from={id}").text)
            parts = [call for event in rest for choice in event["choices"] for call in choice["delta"].get("tool_calls", [])]
            self.assertTrue(whole["calls"][0]["arguments"].endswith(
                "".join(part["function"]["arguments"] for part in parts)), id)
            self.assertTrue(whole["content"].endswith("".join(text_of(event) for event in rest)), id)

    def test_without_tools_the_tags_are_text_and_none_removes_them(self):
        plain = {name: value for name, value in ASK.items() if name != "tools"}
        for body in (plain, {**ASK, "tool_choice": "none"}):
            message = self.ok("/v1/chat/completions", body).json["choices"][0]["message"]
            self.assertEqual(message["content"], "I look.\n" + CALL)
            self.assertNotIn("tool_calls", message)

    def test_tools_and_thoughts_reach_the_template(self):
        prompt = self.ok("/apply-template", ASK).json["prompt"]
        self.assertIn('"name": "rain"', prompt)
        count = self.ok("/v1/chat/completions/input_tokens", ASK).json
        usage = self.ok("/v1/chat/completions", ASK).json["usage"]
        self.assertEqual(count["input_tokens"], usage["prompt_tokens"])
        props = self.server.get("/props").json
        self.assertEqual((props["tool_format"], props["shows_tools"], props["reasoning_format"]),
                         ("hermes", True, "think"))

    def test_the_part_of_a_request_that_is_wrong_is_named(self):
        chat = "/v1/chat/completions"
        self.refused(chat, {**ASK, "tools": [{}]}, 400, "tools[0].function")
        self.refused(chat, {**ASK, "tool_choice": "sometimes"}, 400, "tool_choice")
        self.refused(chat, {**ASK, "tool_choice": {"type": "function", "function": {"name": "x"}}}, 400, "tool_choice")
        broken = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "[1]"}}]}
        self.assertIn("messages[1]", self.refused(chat, {**ASK, "messages": [*ASK["messages"], broken]}, 400)["message"])


class Tags(ToolsTest):
    """Calls in the form of tags, whose values have no quotes."""

    CITY = "\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n[1, 2]\n</parameter>\n"
    TEXTS = [f"I look.\n<tool_call>\n<function=rain>{CITY}</function>\n</tool_call>", "It rains in Köln."]
    TAGS = True

    def test_a_call_and_its_result_go_there_and_back_whole_and_as_a_stream(self):
        self.assertEqual(self.server.get("/props").json["tool_format"], "xml")
        choice = self.ok("/v1/chat/completions", ASK).json["choices"][0]
        message = choice["message"]
        self.assertEqual((message["content"], choice["finish_reason"]), ("I look.", "tool_calls"))
        call, = message["tool_calls"]
        self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])), ("rain", ARGUMENTS))
        read = joined(self.ok("/v1/chat/completions", {**ASK, "stream": True}).events)
        self.assertEqual([(each["name"], each["arguments"]) for each in read["calls"]],
                         [("rain", call["function"]["arguments"])])
        result = {"role": "tool", "tool_call_id": call["id"], "content": "yes"}
        again = self.ok("/v1/chat/completions", {**ASK, "messages": [*ASK["messages"], message, result]}).json
        self.assertEqual(again["choices"][0]["message"]["content"], "It rains in Köln.")


class OneCall(ToolsTest):
    TEXTS = ["I look.\n" + CALL + "\n" + CALL.replace("Köln", "Rom") + "\nDone."]

    def test_without_parallel_calls_the_answer_ends_behind_the_first(self):
        whole = self.ok("/v1/chat/completions", ASK).json
        self.assertEqual(len(whole["choices"][0]["message"]["tool_calls"]), 2)
        one = self.ok("/v1/chat/completions", {**ASK, "parallel_tool_calls": False}).json
        message = one["choices"][0]["message"]
        call, = message["tool_calls"]
        self.assertEqual((message["content"], one["choices"][0]["finish_reason"]), ("I look.", "tool_calls"))
        self.assertEqual(json.loads(call["function"]["arguments"]), ARGUMENTS)
        self.assertLess(one["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
        read = joined(self.ok("/v1/chat/completions", {**ASK, "parallel_tool_calls": False, "stream": True}).events)
        self.assertEqual((read["content"], read["finish"], [each["arguments"] for each in read["calls"]]),
                         ("I look.", "tool_calls", [call["function"]["arguments"]]))

    def test_the_other_apis_have_the_same_end(self):
        items = self.ok("/v1/responses", {**Responses.ASK, "parallel_tool_calls": False}).json
        self.assertEqual([item["type"] for item in items["output"]], ["message", "function_call"])
        self.assertEqual(items["status"], "completed")
        choice = {"type": "auto", "disable_parallel_tool_use": True}
        blocks = self.ok("/v1/messages", {**Messages.ASK, "tool_choice": choice}).json
        self.assertEqual([block["type"] for block in blocks["content"]], ["text", "tool_use"])
        self.assertEqual(blocks["stop_reason"], "tool_use")


class Required(ToolsTest):
    """What a grammar holds the model to; a build without grammars refuses it by name."""

    TEXTS = [CALL + " and a word"]

    def ask(self, **fields):
        answer = self.server.post("/v1/chat/completions", {**ASK, "max_tokens": 200, **fields})
        if answer.status == 501:
            self.assertIn(answer.json["error"]["param"], fields)
            self.skipTest("this build has no grammars")
        return answer

    def test_an_answer_is_calls_alone(self):
        named = {"type": "function", "function": {"name": "rain"}}
        for choice in ("required", named):
            choice = self.ask(tool_choice=choice, parallel_tool_calls=False).json["choices"][0]
            call, = choice["message"]["tool_calls"]
            self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None))
            self.assertEqual(json.loads(call["function"]["arguments"]), ARGUMENTS)

    def test_arguments_follow_the_schema_behind_the_tag(self):
        numbers = {**SCHEMA, "properties": {"city": {"enum": ["Bern"]}}}
        tools = [{"type": "function", "function": {"name": "rain", "parameters": numbers}}]
        call, = self.ask(tools=tools, tool_choice="auto").json["choices"][0]["message"]["tool_calls"]
        self.assertEqual(json.loads(call["function"]["arguments"]), {"city": "Bern"})

    def test_a_schema_beside_tools_leaves_the_choice(self):
        answer = self.ask(response_format={"type": "json_object"})
        self.assertIn("tool_calls", answer.json["choices"][0]["message"])

    def test_a_grammar_that_cannot_be_compiled_is_named(self):
        answer = self.ask(grammar="root ::= ")
        self.assertEqual((answer.status, answer.json["error"]["param"]), (400, "grammar"), answer.text)
        old = self.server.post("/v1/chat/completions", {**ASK, "guided_regex": "a"})
        self.assertEqual((old.status, old.json["error"]["param"]), (400, "guided_regex"))
        self.assertIn("structured_outputs", old.json["error"]["message"])


class Responses(ToolsTest):
    ASK = {"input": "Does it rain?", "temperature": 0,
           "tools": [{"type": "function", "name": "rain", "parameters": SCHEMA}, {"type": "web_search"}]}

    def test_output_has_items_and_goes_back_as_input(self):
        answer = self.ok("/v1/responses", {**self.ASK, "store": True}).json
        self.assertEqual([item["type"] for item in answer["output"]], ["reasoning", "message", "function_call"])
        self.assertEqual((answer["object"], answer["status"], answer["store"]), ("response", "completed", False))
        call = answer["output"][2]
        self.assertEqual(json.loads(call["arguments"]), ARGUMENTS)
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "yes"}
        again = self.ok("/v1/responses", {**self.ASK, "input": [{"role": "user", "content": "Does it rain?"},
                                                                *answer["output"], result]}).json
        self.assertEqual(again["output"][-1]["content"][0]["text"], "It rains in Köln.")
        self.assertEqual(again["usage"]["total_tokens"], again["usage"]["input_tokens"] + again["usage"]["output_tokens"])

    def test_events_are_numbered_and_the_last_has_the_whole(self):
        answer = self.ok("/v1/responses", {**self.ASK, "stream": True})
        events = events_of(answer.text)
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        self.assertEqual([event["type"] for event in events[:2]], ["response.created", "response.in_progress"])
        self.assertEqual(events[-1]["type"], "response.completed")
        self.assertNotIn("[DONE]", answer.text)
        call = events[-1]["response"]["output"][2]
        said = "".join(event["delta"] for event in events if event["type"].endswith("arguments.delta"))
        self.assertEqual(said, call["arguments"])

    def test_the_probe_of_codex_and_what_is_not_stored(self):
        probe = self.ok("/v1/responses", {"input": [], "max_output_tokens": 1, "stream": True, "store": False})
        self.assertEqual(events_of(probe.text)[-1]["type"], "response.incomplete")
        self.refused("/v1/responses", {**self.ASK, "previous_response_id": "resp_1"}, 400, "previous_response_id")
        self.refused("/v1/responses", {**self.ASK, "stream": True, "paceline": {"resume": True}}, 400, "paceline.resume")
        tokens = self.ok("/v1/responses/input_tokens", self.ASK).json["input_tokens"]
        self.assertEqual(tokens, self.ok("/v1/responses", self.ASK).json["usage"]["input_tokens"])


class Messages(ToolsTest):
    ASK = {"messages": [{"role": "user", "content": "Does it rain?"}], "max_tokens": 200, "temperature": 0,
           "system": [{"type": "text", "text": "You help."}],
           "tools": [{"name": "rain", "input_schema": SCHEMA}, {"type": "bash_20250124", "name": "bash"}]}
    PATH = "/v1/messages?beta=true"

    def test_blocks_go_back_as_a_turn(self):
        answer = self.ok(self.PATH, self.ASK).json
        self.assertEqual([block["type"] for block in answer["content"]], ["thinking", "text", "tool_use"])
        self.assertEqual((answer["type"], answer["stop_reason"]), ("message", "tool_use"))
        self.assertEqual(answer["content"][2]["input"], ARGUMENTS)
        result = {"type": "tool_result", "tool_use_id": answer["content"][2]["id"], "content": "yes"}
        turns = [*self.ASK["messages"], {"role": "assistant", "content": answer["content"]},
                 {"role": "user", "content": [result]}]
        again = self.ok(self.PATH, {**self.ASK, "messages": turns}).json
        self.assertEqual((again["content"][-1]["text"], again["stop_reason"]), ("It rains in Köln.", "end_turn"))

    def test_events_have_names_and_a_ping(self):
        answer = self.ok(self.PATH, {**self.ASK, "stream": True})
        names = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
        self.assertEqual((names[:2], names[-2:]), (["message_start", "ping"], ["message_delta", "message_stop"]))
        events = events_of(answer.text)
        self.assertEqual([event["type"] for event in events], names)
        said = "".join(event["delta"].get("partial_json", "") for event in events
                       if event["type"] == "content_block_delta")
        self.assertEqual(json.loads(said), ARGUMENTS)

    def test_the_billing_line_does_not_end_the_cached_prefix(self):
        def ask(line: str) -> dict:
            text = f"x-anthropic-billing-header: {line}\n" + "Long words of a system. " * 20
            return self.ok(self.PATH, {**self.ASK, "system": text}).json["usage"]
        first, second = ask("cch=1"), ask("cch=2; other")
        self.assertGreater(second["cache_read_input_tokens"], 100)
        self.assertEqual(first["input_tokens"] + first["cache_read_input_tokens"],
                         second["input_tokens"] + second["cache_read_input_tokens"])

    def test_counted_tokens_are_those_of_the_prompt(self):
        count = self.ok("/v1/messages/count_tokens?beta=true", self.ASK).json
        usage = self.ok(self.PATH, self.ASK).json["usage"]
        self.assertEqual(count, {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]})

    def test_errors_have_the_form_of_that_api(self):
        for path, body, status, kind in ((self.PATH, {}, 400, "invalid_request_error"),
                                         (self.PATH, {**self.ASK, "model": "other"}, 404, "not_found_error"),
                                         ("/v1/messages/batches", {}, 404, "not_found_error"),
                                         ("/v1/messages/count_tokens", {}, 400, "invalid_request_error")):
            answer = self.server.post(path, body)
            self.assertEqual((answer.status, answer.json["type"], answer.json["error"]["type"]),
                             (status, "error", kind), path)


if __name__ == "__main__":
    unittest.main()
