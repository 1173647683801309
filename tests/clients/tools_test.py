"""Tools, thoughts, responses and messages by openai, anthropic and langchain-openai. Run by with_clients_python.

The model has scripted answers (tests/cli/scripted_model.py): what is tested is what the packages make of them.
"""

import json
import tempfile
import unittest
from pathlib import Path

import anthropic
import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from paceline_cli import CliTest
from scripted_model import scripted_model
from serve_server import Server

KEY = "a-key-of-clients"
ARGUMENTS = {"city": "Köln", "days": [1, 2]}
CALL = '<tool_call>\n{"name": "rain", "arguments": {"city": "Köln", "days": [1, 2]}}\n</tool_call>'
FIRST = "<think>\nA question of rain.\n</think>\n\nI look.\n" + CALL
SECOND = "<think>\nIt said so.\n</think>\n\nIt rains in Köln."
QUESTION = "Does it rain?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "array"}}}
TOOLS = [{"type": "function", "function": {"name": "rain", "description": "Weather", "parameters": SCHEMA}}]


@tool
def rain(city: str, days: list[int]) -> str:
    """Weather"""
    return f"rain in {city} on {days}"


class ToolsTest(CliTest):
    """Every test of a class asks the same server, which wants a key."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        (folder / "keys").write_text(KEY + "\n")
        (folder / "scripted.gguf").write_bytes(scripted_model([FIRST, SECOND]))
        cls.server = Server("--method", "prompt-lookup", "--alias", "scripted", "--api-key-file", str(folder / "keys"),
                            model=str(folder / "scripted.gguf"))
        cls.addClassCleanup(cls.server.__exit__, None, None, None)
        cls.url = f"http://127.0.0.1:{cls.server.port}"


class OpenAi(ToolsTest):
    def setUp(self) -> None:
        super().setUp()
        self.client = openai.OpenAI(base_url=self.url + "/v1", api_key=KEY, max_retries=0)
        self.addCleanup(self.client.close)
        self.ask = {"model": "scripted", "messages": [{"role": "user", "content": QUESTION}], "tools": TOOLS}

    def test_a_call_and_its_result_by_chat_completions(self):
        choice = self.client.chat.completions.create(**self.ask).choices[0]
        call, = choice.message.tool_calls
        self.assertEqual((choice.finish_reason, call.function.name), ("tool_calls", "rain"))
        self.assertEqual(json.loads(call.function.arguments), ARGUMENTS)
        messages = [*self.ask["messages"], choice.message, {"role": "tool", "tool_call_id": call.id, "content": "yes"}]
        again = self.client.chat.completions.create(**{**self.ask, "messages": messages})
        self.assertEqual(again.choices[0].message.content, "It rains in Köln.")
        self.assertGreater(again.usage.completion_tokens_details.reasoning_tokens, 0)

    def test_the_streaming_helper_builds_the_call(self):
        with self.client.chat.completions.stream(**self.ask) as stream:
            for _ in stream:
                pass
            message = stream.get_final_completion().choices[0].message
        self.assertEqual(json.loads(message.tool_calls[0].function.arguments), ARGUMENTS)
        self.assertEqual(message.content, "I look.")

    def test_a_call_and_its_result_by_responses(self):
        tools = [{"type": "function", "name": "rain", "description": "Weather", "parameters": SCHEMA, "strict": False}]
        ask = {"model": "scripted", "tools": tools, "store": False}
        first = self.client.responses.create(input=QUESTION, **ask)
        call = first.output[-1]
        self.assertEqual((first.status, call.type, json.loads(call.arguments)), ("completed", "function_call", ARGUMENTS))
        self.assertEqual(first.output_text, "I look.")
        items = [{"role": "user", "content": QUESTION}, *(item.model_dump() for item in first.output),
                 {"type": "function_call_output", "call_id": call.call_id, "output": "yes"}]
        self.assertEqual(self.client.responses.create(input=items, **ask).output_text, "It rains in Köln.")
        with self.client.responses.stream(input=QUESTION, **ask) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertIn("response.function_call_arguments.done", kinds)
        self.assertEqual(json.loads(final.output[-1].arguments), ARGUMENTS)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.client.responses.create(input="x", previous_response_id="resp_1", **ask)
        self.assertEqual(refused.exception.param, "previous_response_id")


class Anthropic(ToolsTest):
    def setUp(self) -> None:
        super().setUp()
        self.client = anthropic.Anthropic(base_url=self.url, api_key=KEY, max_retries=0)
        self.addCleanup(self.client.close)
        self.ask = {"model": "scripted", "max_tokens": 200, "tools": [{"name": "rain", "input_schema": SCHEMA}],
                    "messages": [{"role": "user", "content": QUESTION}]}

    def test_a_call_and_its_result(self):
        first = self.client.messages.create(**self.ask)
        thought, text, use = first.content
        self.assertEqual((thought.thinking, text.text, use.name), ("A question of rain.", "I look.", "rain"))
        self.assertEqual((use.input, first.stop_reason), (ARGUMENTS, "tool_use"))
        turns = [*self.ask["messages"], {"role": "assistant", "content": first.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "yes"}]}]
        again = self.client.messages.create(**{**self.ask, "messages": turns})
        self.assertEqual((again.content[-1].text, again.stop_reason), ("It rains in Köln.", "end_turn"))

    def test_the_streaming_helper_builds_the_message(self):
        with self.client.messages.stream(**self.ask) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
        self.assertEqual((text, message.content[-1].input), ("I look.", ARGUMENTS))
        self.assertEqual(message.usage.output_tokens, self.client.messages.create(**self.ask).usage.output_tokens)

    def test_tokens_are_counted_and_errors_are_those_of_the_package(self):
        count = self.client.messages.count_tokens(**{name: value for name, value in self.ask.items()
                                                     if name != "max_tokens"})
        usage = self.client.messages.create(**self.ask).usage
        self.assertEqual(count.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)
        with self.assertRaises(anthropic.NotFoundError):
            self.client.messages.create(**{**self.ask, "model": "other"})
        with self.assertRaises(anthropic.AuthenticationError):
            self.client.with_options(api_key="another-key").messages.create(**self.ask)
        with self.assertRaises(anthropic.BadRequestError) as refused:
            self.client.messages.create(**self.ask, extra_body={"temperature": -1})
        self.assertEqual(refused.exception.body["error"]["type"], "invalid_request_error")


class LangChain(ToolsTest):
    def test_a_bound_tool_is_called_and_its_result_answered(self):
        for responses in (False, True):
            model = ChatOpenAI(base_url=self.url + "/v1", api_key=KEY, model="scripted", max_retries=0,
                               use_responses_api=responses).bind_tools([rain])
            first = model.invoke(QUESTION)
            call, = first.tool_calls
            self.assertEqual((call["name"], call["args"]), ("rain", ARGUMENTS))
            result = ToolMessage(content=rain.invoke(call["args"]), tool_call_id=call["id"])
            again = model.invoke([HumanMessage(QUESTION), first, result])
            self.assertEqual(again.text, "It rains in Köln.")
            parts = None
            for part in model.stream(QUESTION):
                parts = part if parts is None else parts + part
            self.assertEqual(parts.tool_calls[0]["args"], ARGUMENTS)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
