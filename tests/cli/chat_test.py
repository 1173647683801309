"""`paceline run --interactive`: a conversation that stays in the KV cache."""

import json
import unittest
from pathlib import Path

import gguf_vocabulary
from paceline_cli import CliTest, TINY, paceline
from terminal import Terminal


class Chat(CliTest):
    def chat(self, lines: list[str], *args: str, model: str = TINY) -> tuple[list[list[int]], list[dict], str]:
        """Ids and figures of each answer, and stderr."""
        ids, stats = self.folder / "ids.json", self.folder / "stats.json"
        done = paceline("run", "-m", model, "--interactive", "--ids", str(ids), "--stats", str(stats), *args,
                        stdin="".join(line + "\n" for line in lines).encode())
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(ids.read_text()), json.loads(stats.read_text()), done.stderr.decode()

    def test_each_line_is_answered_until_quit(self):
        ids, _, _ = self.chat(["Hello", "And again", "/quit", "never read"], "-n", "8")
        self.assertEqual(len(ids), 2)

    def test_the_end_of_input_leaves(self):
        self.assertEqual(len(self.chat(["Hello"], "-n", "4")[0]), 1)
        self.assertEqual(self.chat([], "-n", "4")[0], [])

    def test_a_later_turn_processes_only_what_is_new(self):
        _, stats, _ = self.chat(["A first message of some length", "x"], "-n", "6")
        # The one token more is the answer's last, drawn but not yet processed.
        self.assertLessEqual(stats[1]["processed_tokens"], stats[1]["prompt_tokens"] + 1)
        self.assertLess(stats[1]["processed_tokens"], stats[0]["prompt_tokens"] + stats[0]["generated_tokens"])

    def test_the_first_answer_is_that_of_a_single_run(self):
        chat = self.chat(["Hello"], "-n", "12")[0][0]
        self.assertEqual(chat, self.generate("-p", "Hello", "-n", "12")[1])

    def test_the_conversation_so_far_matters_until_it_is_reset(self):
        again = self.chat(["Hello", "/reset", "Hello"], "-n", "12")[0]
        self.assertEqual(again[0], again[1])
        once = self.chat(["Something quite different first", "Hello"], "-n", "12")[0]
        self.assertNotEqual(again[0], once[1])

    def test_a_message_that_does_not_fit_is_refused_and_the_chat_goes_on(self):
        ids, _, stderr = self.chat(["word " * 300, "/reset", "Hi"], "-c", "64", "-n", "4")
        self.assertEqual(len(ids), 1)
        self.assertIn("context of 64 tokens", stderr)
        self.assertIn("/reset", stderr)

    def test_a_first_message_may_come_from_the_command_line(self):
        self.assertEqual(len(self.chat(["And more"], "-p", "Hello", "-n", "4")[0]), 2)

    def answer_to(self, message: str) -> list[int]:
        return self.generate("-p", message, "-n", "8")[1]

    def test_a_message_of_several_lines(self):
        for lines in (["one \\", "two \\", "three"], ['"""one ', "two ", 'three"""'], ['"""', "one ", "two ", "three", '"""']):
            with self.subTest(lines=lines):
                ids = self.chat([*lines, "/quit"], "-n", "8")[0]
                self.assertEqual(ids, [self.answer_to("one \ntwo \nthree")])

    def test_input_that_ends_within_a_message_ends_it(self):
        self.assertEqual(self.chat(['"""one ', "two"], "-n", "8")[0], [self.answer_to("one \ntwo")])
        self.assertEqual(self.chat(["one\\"], "-n", "8")[0], [self.answer_to("one")])

    def test_help_and_commands_that_do_not_exist_are_no_messages(self):
        ids, _, stderr = self.chat(["/help", "/rest", "/quit"], "-n", "4")
        self.assertEqual(ids, [])
        for command in ("/help", "/reset", "/system", "/quit", '"""'):
            self.assertIn(command, stderr)
        self.assertIn("[/rest is not a command, did you mean '/reset'?", stderr)

    def test_a_path_is_a_message(self):
        self.assertEqual(len(self.chat(["/etc/hosts holds what?"], "-n", "4")[0]), 1)

    def test_a_system_prompt_begins_the_conversation_anew(self):
        ids, _, stderr = self.chat(["Something first", "/system You are brief.", "Hello", "/system"], "-n", "8")
        self.assertEqual(ids[1], self.generate("-p", "Hello", "--system", "You are brief.", "-n", "8")[1])
        self.assertIn("[the system prompt is You are brief.]", stderr)

    def with_template(self, template: bytes) -> str:
        fields, tensors = gguf_vocabulary.read(Path(TINY).read_bytes())
        fields["tokenizer.chat_template"] = (gguf_vocabulary.TEXT, template)
        path = self.folder / "template.gguf"
        path.write_bytes(gguf_vocabulary.write(fields, tensors))
        return str(path)

    def test_a_template_that_changes_earlier_turns_is_read_from_the_begin(self):
        model = self.with_template(b"<|im_start|>{{ messages[-1].content }}<|im_end|>")
        ids, _, _ = self.chat(["Something quite different first", "Hello"], "-n", "12", model=model)
        self.assertEqual(ids[1], self.chat(["Hello"], "-n", "12", model=model)[0][0])

    def test_a_conversation_that_the_template_refuses_is_said_and_the_chat_goes_on(self):
        model = self.with_template(b"{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}"
                                   b"{% endif %}<|im_start|>{{ messages[0].content }}<|im_end|>")
        ids, _, stderr = self.chat(["Hello", "/system S", "Hello"], "-n", "4", model=model)
        self.assertEqual(len(ids), 1)
        self.assertIn("no system here", stderr)
        done = paceline("run", "-m", model, "--system", "S", "-p", "x")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no system here", done.stderr.decode())

    def test_tools_of_a_file_are_in_every_turn(self):
        tools = self.folder / "tools.json"
        tools.write_text(json.dumps([{"type": "function", "function": {"name": name}} for name in ("rain", "time")]))
        turn = b"<|im_start|>{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
        model = self.with_template(b"{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}" + turn)
        with_tools, _, _ = self.chat(["Hello", "And again"], "-n", "8", "--tools", str(tools), model=model)
        self.assertNotEqual(with_tools, self.chat(["Hello", "And again"], "-n", "8", model=model)[0])
        written = self.with_template(b"[rain][time]" + turn)
        self.assertEqual(with_tools, self.chat(["Hello", "And again"], "-n", "8", model=written)[0])
        for wrong, said in (("[{}]", "[0].function is missing"), ("{", "JSON"), ("{}", "must be a list of tools")):
            tools.write_text(wrong)
            said_here = self.run_fails(1, "run", "-m", model, "-p", "x", "--tools", str(tools))
            self.assertIn(f"--tools {tools}: ", said_here)
            self.assertIn(said, said_here)
        tools.write_text("[]")
        self.assertIn("no-such.json", self.run_fails(1, "run", "-m", model, "-p", "x", "--tools", "no-such.json"))
        self.assertIn("--raw", self.run_fails(2, "run", "-m", model, "-p", "x", "--raw", "--tools", str(tools)))
        model = self.with_template(turn)
        self.assertIn("has no place for tools", self.run_fails(1, "run", "-m", model, "-p", "x", "--tools", str(tools)))

    def test_figures_of_later_turns_leave_out_what_was_once(self):
        _, stats, stderr = self.chat(["Hello", "And again"], "-n", "8")
        lines = [line for line in stderr.splitlines() if line.startswith("[prompt")]
        self.assertEqual([" | load " in line for line in lines], [True, False])
        for line, turn in zip(lines, stats):
            self.assertTrue(line.startswith(f"[prompt {turn['processed_tokens']} tokens, "
                                            f"{turn['prompt_tokens_per_second']:.1f} tokens/s"), line)


class OnATerminal(CliTest):
    def setUp(self) -> None:
        super().setUp()
        self.ids = self.folder / "ids.json"
        self.terminal = Terminal(self, "run", "-m", TINY, "-i", "-n", "8", "--ids", str(self.ids))
        self.ask("")

    def ask(self, keys: str, until: str = "> ") -> None:
        """Types, and waits for the next prompt."""
        before = len(self.terminal.said)
        self.terminal.type(keys)
        if keys:
            self.terminal.wait_for("peak memory", after=before)
            before = self.terminal.said.index(b"peak memory", before)
        self.terminal.wait_for(until, after=before)

    def leave(self, *messages: str, code: int = 0, keys: str = "\x04") -> None:
        """Ctrl-D on an empty line; `messages` are what was answered, each from the beginning."""
        self.terminal.type(keys)
        self.assertEqual(self.terminal.finish(), code, self.terminal.text())
        answers = json.loads(self.ids.read_text())
        self.assertEqual(len(answers), len(messages))
        for ids, message in zip(answers, messages):
            alone = self.folder / "alone.json"
            self.run_ok("run", "-m", TINY, "-n", "8", "-p", message, "--ids", str(alone))
            self.assertEqual(ids, json.loads(alone.read_text()), message)

    def test_a_line_is_edited_with_the_arrow_keys(self):
        self.ask("Hllo\x1b[D\x1b[D\x1b[De\r")
        self.leave("Hello")

    def test_letters_of_several_bytes_are_letters(self):
        self.ask("Gr\u00fc\u00dfex\x7f\r")
        self.leave("Gr\u00fc\u00dfe")

    def test_the_history_brings_a_line_back(self):
        self.ask("Hello\r")
        before = len(self.terminal.said)
        self.terminal.type("/reset\r")
        self.terminal.wait_for("is forgotten]", after=before)
        self.ask("\x1b[A\x1b[A\r")
        self.leave("Hello", "Hello")

    def test_pasted_lines_are_one_message(self):
        self.assertIn(b"\x1b[?2004h", self.terminal.said, "the terminal is asked to mark what is pasted")
        self.ask("\x1b[200~one \rtwo \rthree\x1b[201~\r")
        self.leave("one \ntwo \nthree")

    def test_a_long_paste_is_whole(self):
        text = "\n".join(f"line {i}" for i in range(60))
        self.ask("\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~\r")
        self.leave(text)

    def test_ctrl_d_behind_text_sends_it_and_on_an_empty_line_leaves(self):
        self.ask("Hello\x04")
        self.leave("Hello")

    def test_ctrl_c_drops_what_is_typed_and_then_leaves(self):
        before = len(self.terminal.said)
        self.terminal.type("not this")
        self.terminal.wait_for("this", after=before)
        before = len(self.terminal.said)
        self.terminal.type("\x03")
        self.terminal.wait_for("> ", after=before)
        self.ask("Hello\r")
        self.leave("Hello", code=130, keys="\x03")

    def test_the_terminal_is_as_before_while_an_answer_is_given(self):
        self.ask("Hello\r")
        self.leave("Hello")
        self.assertTrue(self.terminal.said.rindex(b"\x1b[?2004l") > self.terminal.said.rindex(b"\x1b[?2004h"))


if __name__ == "__main__":
    unittest.main()
