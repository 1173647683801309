"""Chat templates of a GGUF file: what they refuse, what they write, and conversations in files of prompts."""

import datetime
import json
import unittest
from pathlib import Path

import gguf_vocabulary
from generate_test import read_shard
from paceline_cli import CliTest, TINY

NEEDS_SYSTEM = ("{% if messages[0].role != 'system' %}{{ raise_exception('need system') }}{% endif %}"
                "{{ messages[0].content }}{{ messages[1].content }}")


class Templates(CliTest):
    def with_template(self, template: str | None, name: str = "model.gguf") -> str:
        fields, tensors = gguf_vocabulary.read(Path(TINY).read_bytes())
        del fields["tokenizer.chat_template"]
        if template is not None:
            fields["tokenizer.chat_template"] = (gguf_vocabulary.TEXT, template.encode())
        path = self.folder / name
        path.write_bytes(gguf_vocabulary.write(fields, tensors))
        return str(path)

    def asked(self, model: str, *rows: dict) -> list[list[int]]:
        """The tokens of each prompt of a file, as `paceline generate` writes them."""
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        folder = self.folder / f"answers{len(list(self.folder.iterdir()))}"
        self.run_ok("generate", "-m", model, "-o", str(folder), "-n", "1", "-t", "1", "--prompts", str(prompts))
        tensors, _, _ = read_shard(next(iter(folder.iterdir())))
        return [tensors["tokens"][begin:begin + count]
                for begin, count in zip(tensors["begins"], tensors["prompt_tokens"])]

    def tokens(self, text: str) -> list[int]:
        return json.loads(self.run_ok("tokenize", "-m", TINY, "-o", "ids", text))

    def test_a_template_that_needs_a_system_prompt_runs_with_one(self):
        model = self.with_template(NEEDS_SYSTEM)
        wanted = self.run_ok("run", "-m", model, "--raw", "-p", "SHi", "-n", "4")
        self.assertEqual(self.run_ok("run", "-m", model, "--system", "S", "-p", "Hi", "-n", "4"), wanted)
        self.assertIn("need system", self.run_fails(1, "run", "-m", model, "-p", "Hi"))
        self.assertIn("use           runs; may refuse: the chat template, line 1: it refuses the conversation: need "
                      "system\n", self.run_ok("inspect", model))
        said = self.run_ok("inspect", model, "-o", "json")
        self.assertTrue(json.loads(said)["use"].startswith("runs; may refuse: "))

    def test_a_date_is_the_one_that_python_writes(self):
        model = self.with_template("{{ strftime_now('%-j %_H %Y %z') }}")
        for _ in range(3):  # the hour may end between the two calls
            before = datetime.datetime.now().strftime("%-j %_H %Y %z")
            tokens = self.asked(model, {"prompt": "x"})
            if before == datetime.datetime.now().strftime("%-j %_H %Y %z"):
                break
        self.assertEqual(tokens, [self.tokens(before)])
        self.assertIn("strftime_now(): '%Q' is no directive",
                      self.run_fails(1, "run", "-m", self.with_template("{{ strftime_now('%Q') }}"), "-p", "x"))

    def test_a_conversation_in_a_file_of_prompts_is_rendered_with_its_roles(self):
        model = self.with_template("{{ tools[0].name if tools }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]"
                                   "{% endfor %}")
        talk = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}]
        answer = {"role": "assistant", "content": "B"}
        said = self.asked(model, {"messages": talk}, {"messages": [*talk, answer]},
                          {"prompt": talk[1:2], "tools": [{"name": "f"}]}, {"prompt": "U"})
        text = "[system:S][user:U][assistant:A][user:V]"
        self.assertEqual(said, [self.tokens(t) for t in (text, text, "f[user:U]", "[user:U]")])
        self.run_ok("check", "-m", model, "--method", "prompt-lookup", "-t", "1", "-n", "2", "--prompts",
                    str(self.folder / "prompts.jsonl"))

    def test_a_conversation_that_cannot_be_asked_is_refused_with_its_line_or_its_name(self):
        prompts = self.folder / "prompts.jsonl"
        command = ["generate", "-o", str(self.folder / "a"), "-n", "1", "--prompts", str(prompts), "-m"]
        prompts.write_text('{"id": "one", "messages": [{"role": "user", "content": "x"}]}\n')
        said = self.run_fails(1, *command, self.with_template(NEEDS_SYSTEM))
        self.assertIn('prompt "one": the chat template, line 1: it refuses the conversation: need system', said)
        prompts.write_text('{"id": "two", "messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f"}]}\n')
        said = self.run_fails(1, *command, self.with_template("{{ messages[0].content }}"))
        self.assertRegex(said, 'prompt "two": the chat template of .* has no place for tools')
        prompts.write_text('{"id": "one", "messages": [{"role": "user", "content": "x"}]}\n')
        said = self.run_fails(1, *command, self.with_template(None))
        self.assertIn('prompt "one": messages need a chat template', said)
        for line, why in ((b'{"prompt": NaN}', "NaN is not JSON"), (b'{"prompt": "\\ud83d"}', "surrogate pair"),
                          (b'{"prompt": "\xff"}', "byte 13 (0xff) is not UTF-8"),
                          (b'{"messages": ["x", {}]}', "is no message such as"), (b"3", "not a JSON object, but number")):
            prompts.write_bytes(line + b"\n")
            said = self.run_fails(1, *command, TINY)
            self.assertIn("prompts.jsonl:1: ", said)
            self.assertIn(why, said)


if __name__ == "__main__":
    unittest.main()
