"""Many answers in little memory, and prompts that begin alike: the text of plain decoding, killed or not."""

import json
import unittest

from paceline_cli import TINY, CliTest

CONTEXT = 320
BYTES_PER_TOKEN = 256  # of the fixture's keys and values
SYSTEM = "You are a clerk. " + " ".join(f"Shelf {i} is open." for i in range(6))
QUESTIONS = ["Which shelf is open?", "Is shelf 3 open?", "Name all shelves.", "Who are you?", "Why?", "When?",
             "Is there a shelf 9?", "Count the shelves."]


class KvMemory(CliTest):
    def check(self, contexts: float, *args: str, requests: int = 8) -> dict:
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"messages": [
            {"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]}) + "\n"
            for question in QUESTIONS * 2))
        report = self.folder / "report.json"
        memory = int(contexts * CONTEXT * BYTES_PER_TOKEN)
        self.run_ok("check", "-m", TINY, "-c", str(CONTEXT), "-n", "60", "--temp", "0.9", "--prompts", str(prompts),
                    "--requests", str(requests), "--kv-memory", str(memory), "--json", str(report), *args)
        return json.loads(report.read_text())

    def test_answers_that_share_their_system_prompt_compute_it_once(self):
        result = self.check(8, "--method", "prompt-lookup")
        whole = sum(each["prompt_rows"] + each["cached_tokens"] for each in result["prompts"])
        self.assertTrue(result["equal"])
        self.assertGreater(result["cached_rows"], whole / 2)
        self.assertLess(result["prefill_rows"], whole / 2)

    def test_with_memory_for_one_answer_and_a_little_all_of_them_end_with_their_text(self):
        for method in ("prompt-lookup", "fold", "pearl"):
            with self.subTest(method=method):
                result = self.check(1.2, "--method", method)
                self.assertTrue(result["equal"])
                self.assertEqual(result["replays"], 0)

    def test_stages_that_are_killed_while_answers_share_and_wait_for_memory_change_no_text(self):
        result = self.check(2, "--method", "speculative", "--draft-model", TINY, "--kills", "3")
        self.assertTrue(result["equal"])
        self.assertGreater(result["kills"], 0)  # those that are due while a process is started again may be left out

    def test_segments_that_retain_hidden_states_change_no_text_when_those_behind_them_are_killed(self):
        config = self.folder / "retain.toml"
        config.write_text("".join(f'[[stage]]\nname = "{name}"\nrole = "segment"\nlayers = "auto"\n{key}\n'
                                  for name, key in (("front", "retain_mb = 1"), ("back", "")))
                          + "[supervision]\nrestarts_max = 20\nbackoff_ms = [0]\n")
        result = self.check(2, "--config", str(config), "--kills", "4")
        self.assertTrue(result["equal"])
        self.assertGreater(result["kills"], 0)

    def test_memory_that_is_none_or_too_little_is_refused_with_both_numbers(self):
        for value, message in (("much", "--kv-memory: must be a number of bytes such as 300M or 2G, not 'much'"),
                               ("0", "not '0'"),
                               ("20K", f"20480 bytes are room for 32 tokens of this model, {BYTES_PER_TOKEN} bytes "
                                       f"each; one request may have {CONTEXT} (--context)")):
            with self.subTest(value=value):
                self.assertIn(message, self.run_fails(2, "check", "-m", TINY, "-c", str(CONTEXT), "--method",
                                                    "prompt-lookup", "--kv-memory", value))


if __name__ == "__main__":
    unittest.main()
