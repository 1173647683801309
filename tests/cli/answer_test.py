"""`paceline run`: prompts in, text out."""

import json
import unittest

from paceline_cli import CliTest, TINY, demo_model, needs_demo_model

STATS_FIELDS = {
    "model", "method", "dtype", "kv_dtype", "equality_class", "threads", "seed", "load_seconds",
    "prompt_tokens", "processed_tokens", "prefill_seconds", "prompt_tokens_per_second",
    "first_token_seconds", "generated_tokens", "decode_seconds", "tokens_per_second",
    "weight_bytes", "kv_bytes", "workspace_bytes", "pinned_bytes", "peak_memory_bytes", "end",
}


class Answers(CliTest):
    def test_a_prompt_is_answered_and_figures_follow_on_stderr(self):
        text, ids, stats = self.generate("-p", "Hello", "-n", "12")
        self.assertTrue(text.endswith("\n"))
        self.assertTrue(0 < len(ids) <= 12)
        self.assertLessEqual(STATS_FIELDS, stats.keys())
        self.assertEqual(stats["generated_tokens"], len(ids))
        self.assertGreater(stats["peak_memory_bytes"], 1_000_000)
        self.assertGreater(stats["weight_bytes"], 0)

    def test_the_last_line_of_stderr_is_one_line_of_figures(self):
        from paceline_cli import paceline
        done = paceline("run", "-m", TINY, "-p", "Hello", "-n", "4")
        last = done.stderr.decode().strip().splitlines()[-1]
        for part in ("prompt", "answer", "tokens/s", "first token", "peak memory"):
            self.assertIn(part, last)

    def test_the_ids_are_the_tokens_of_the_text(self):
        text, ids, _ = self.generate("--raw", "-p", "The licence", "-n", "24")
        decoded = self.run_ok("tokenize", "-m", TINY, "--decode", json.dumps(ids))
        self.assertEqual(text.rstrip("\n"), decoded.rstrip("\n"))

    def test_greedy_text_is_the_same_every_time(self):
        self.assertEqual(self.generate("-p", "Again", "-n", "16")[:2],
                         self.generate("-p", "Again", "-n", "16")[:2])

    def test_a_seed_fixes_a_drawn_text_and_another_seed_changes_it(self):
        def draw(seed):
            return self.generate("-p", "Once", "-n", "32", "--temp", "1.5", "--seed", str(seed))[1]
        self.assertEqual(draw(7), draw(7))
        self.assertGreater(len({tuple(draw(seed)) for seed in range(4)}), 1)

    def test_threads_do_not_change_the_text(self):
        one = self.generate("-p", "Threads", "-n", "24", "-t", "1")[1]
        three = self.generate("-p", "Threads", "-n", "24", "-t", "3")[1]
        self.assertEqual(one, three)

    def test_an_empty_prompt_is_a_message_without_words(self):
        _, ids, stats = self.generate("-p", "", "-n", "4")
        self.assertGreater(stats["prompt_tokens"], 0)
        self.assertGreater(len(ids), 0)

    def test_emoji_chinese_and_broken_bytes_are_prompts_like_any_other(self):
        for prompt in ("\U0001F468‍\U0001F469‍\U0001F467 \U0001F1E9\U0001F1EA", "为什么天空是蓝色的?",
                       "a\u0301\u200b\u0000".replace("\0", ""), "\t  \n\n "):
            with self.subTest(prompt=prompt):
                self.generate("-p", prompt, "-n", "4")
        self.generate("-n", "4", stdin=b"\xff\xfe broken \xe4\xbd")

    def test_standard_input_and_a_file_give_the_same_answer_as_an_argument(self):
        prompt = "What is a paceline?"
        path = self.folder / "prompt.txt"
        path.write_text(prompt + "\n")
        given = self.generate("-p", prompt, "-n", "8")[1]
        self.assertEqual(given, self.generate("-n", "8", stdin=prompt.encode() + b"\n")[1])
        self.assertEqual(given, self.generate("-f", str(path), "-n", "8")[1])
        self.assertEqual(given, self.generate("-f", "-", "-n", "8", stdin=prompt.encode())[1])

    def test_no_tokens_wanted_processes_the_prompt_alone(self):
        text, ids, stats = self.generate("-p", "Hello", "-n", "0")
        self.assertEqual((text, ids), ("", []))
        self.assertEqual(stats["generated_tokens"], 0)
        self.assertGreater(stats["processed_tokens"], 0)

    def test_a_stop_string_ends_the_text_before_itself(self):
        whole, ids, _ = self.generate("--raw", "-p", "The", "-n", "40")
        middle = whole[len(whole) // 2:len(whole) // 2 + 2]
        text, fewer, stats = self.generate("--raw", "-p", "The", "-n", "40", "--stop", middle)
        self.assertEqual(stats["end"], "stop_string")
        self.assertEqual(text.rstrip("\n"), whole[:whole.index(middle)].rstrip("\n"))
        self.assertLess(len(fewer), len(ids))
        self.assertEqual(fewer, ids[:len(fewer)])

    def test_the_end_of_the_context_ends_the_answer_and_says_so(self):
        from paceline_cli import paceline
        bans = [f"--logit-bias={i}=-inf" for i in range(3)]  # no end token: it would go on for ever
        stats = self.folder / "stats.json"
        done = paceline("run", "-m", TINY, "--raw", "-p", "The", "-c", "24", "--stats", str(stats), *bans)
        self.assertEqual(done.returncode, 0)
        self.assertIn("context of 24 tokens is full", done.stderr.decode())
        figures = json.loads(stats.read_text())
        self.assertEqual(figures["end"], "context_full")
        self.assertLessEqual(figures["prompt_tokens"] + figures["generated_tokens"], 25)

    def test_a_banned_token_does_not_appear(self):
        _, ids, _ = self.generate("--raw", "-p", "The", "-n", "16")
        _, others, _ = self.generate("--raw", "-p", "The", "-n", "16", "--logit-bias", f"{ids[0]}=-inf")
        self.assertNotIn(ids[0], others)

    def test_raw_text_may_hold_control_tokens_and_a_chat_message_may_not(self):
        raw = self.generate("--raw", "-p", "<|im_start|>", "-n", "1")[2]["prompt_tokens"]
        self.assertEqual(raw, 1)
        plain = self.generate("-p", "x", "-n", "1")[2]["prompt_tokens"]
        smuggled = self.generate("-p", "<|im_start|>", "-n", "1")[2]["prompt_tokens"]
        self.assertGreater(smuggled, plain + 3)

    def test_a_system_prompt_is_part_of_the_prompt(self):
        without = self.generate("-p", "Hi", "-n", "1")[2]["prompt_tokens"]
        given = self.generate("-p", "Hi", "-n", "1", "--system", "You are terse.")[2]["prompt_tokens"]
        self.assertNotEqual(without, given)

    def test_every_dtype_and_kv_dtype_runs(self):
        for dtype in ("f32", "bf16", "int8", "q4"):
            with self.subTest(dtype=dtype):
                self.assertEqual(self.generate("-p", "x", "-n", "2", "--dtype", dtype)[2]["dtype"], dtype)
        for kv in ("f32", "bf16"):
            with self.subTest(kv=kv):
                self.generate("-p", "x", "-n", "2", "--kv-dtype", kv)


@needs_demo_model
class DemoModel(CliTest):
    """SmolLM2-135M-Instruct: real text, so that the answers can be read."""

    def ask(self, prompt: str, *args: str) -> str:
        return self.generate("-p", prompt, *args, model=demo_model())[0]

    def test_the_capital_of_germany_is_berlin(self):
        self.assertIn("Berlin", self.ask("What is the capital of Germany?", "-n", "40"))

    def test_emoji_and_chinese_come_out_as_whole_characters(self):
        for prompt in ("Repeat these emoji: \U0001F600\U0001F680\U0001F468‍\U0001F469‍\U0001F467", "请用中文说你好"):
            with self.subTest(prompt=prompt):
                self.ask(prompt, "-n", "24")

    def test_the_model_ends_its_answer_itself(self):
        _, _, stats = self.generate("-p", "Say hi.", model=demo_model())
        self.assertEqual(stats["end"], "end_token")

    def test_memory_stays_near_weights_and_cache(self):
        _, _, stats = self.generate("-p", "Hi", "-n", "8", "-c", "512", model=demo_model())
        self.assertLess(stats["peak_memory_bytes"], 1.3 * (stats["weight_bytes"] + stats["kv_bytes"]) + 48e6)


if __name__ == "__main__":
    unittest.main()
