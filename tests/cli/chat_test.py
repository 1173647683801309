"""`paceline run --interactive`: a conversation that stays in the KV cache."""

import json
import unittest

from paceline_cli import CliTest, TINY, paceline


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


if __name__ == "__main__":
    unittest.main()
