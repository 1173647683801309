"""Answers are read as they were written, loops lose their weight, sequences hold whole answers."""

import tempfile
import unittest
from pathlib import Path

import numpy as np

from paceline_training.shards import LOOP_GRAM, LOOP_ROUNDS, Shards, loop_begin, pack
from paceline_training.short_list import (always_kept, byte_alphabet, coverage, token_list,
                                          token_mass)
from shard_files import random_answers, write_shard

VOCAB = 50
TINY = Path(__file__).parent.parent / "fixtures" / "models" / "tiny-chat.gguf"


def plain_loop_begin(tokens) -> int:
    seen = {}
    for i in range(len(tokens) - LOOP_GRAM + 1):
        gram = tuple(tokens[i:i + LOOP_GRAM])
        seen[gram] = seen.get(gram, 0) + 1
        if seen[gram] > LOOP_ROUNDS:
            return i
    return len(tokens)


class WithFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.rng = np.random.default_rng(3)

    def write(self, answers, name="shard-00000.safetensors", **more):
        return write_shard(self.folder / name, answers, VOCAB, **more)


class Reading(WithFolder):
    def test_every_array_is_the_slice_that_was_written(self):
        answers = random_answers(self.rng, 9, VOCAB)
        tensors = self.write(answers, hidden=(2, 3))
        shards = Shards([self.folder], hidden=[3, 2])
        self.assertEqual((len(shards.answers), shards.vocab_size, shards.top), (9, VOCAB, 4))
        for answer, written, begin in zip(shards.answers, answers, tensors["begins"]):
            rows = slice(begin, begin + len(answer))
            np.testing.assert_array_equal(answer.tokens, written["tokens"])
            np.testing.assert_array_equal(answer.top_ids, tensors["top_ids"][rows])
            np.testing.assert_array_equal(answer.top_logprob, tensors["top_logprob"][rows])
            np.testing.assert_array_equal(answer.hidden(3), tensors["hidden.3"][rows])
            self.assertEqual(answer.prompt_tokens, written["prompt_tokens"])
            self.assertEqual(answer.finished, written["finish"] == 0)

    def test_weight_lies_on_known_positions_from_the_prompts_last_token_on(self):
        self.write([{"tokens": np.arange(10), "prompt_tokens": 4, "prompt_index": 0, "finish": 1}])
        weights = Shards([self.folder]).answers[0].weights
        np.testing.assert_array_equal(weights, [0, 0, 0, 1, 1, 1, 1, 1, 1, 0])

    def test_shards_are_read_in_order_and_unfinished_ones_are_not(self):
        for number in (2, 0, 1):
            self.write([{"tokens": np.full(6, number), "prompt_tokens": 1, "prompt_index": number,
                         "finish": 0}], f"shard-{number:05}.safetensors")
        (self.folder / "shard-00003.safetensors.paceline-part").write_bytes(b"half")
        self.assertEqual([a.prompt_index for a in Shards([self.folder]).answers], [0, 1, 2])

    def test_a_limit_takes_the_same_number_of_tokens_from_each_folder(self):
        for name in ("a", "b"):
            write_shard(self.folder / name / "shard-00000.safetensors",
                        random_answers(self.rng, 60, VOCAB), VOCAB)
        halves = [self.folder / "a", self.folder / "b"]
        limited = Shards(halves, limit_tokens=600)
        of_a = len(Shards(halves[:1], limit_tokens=300).answers)
        first, second = limited.lengths[:of_a].sum(), limited.lengths[of_a:].sum()
        for count in (first, second):
            self.assertTrue(300 <= count < 340, count)

    def test_sources_come_from_the_prompts_beside_the_shards(self):
        self.write(random_answers(self.rng, 2, VOCAB))
        (self.folder / "prompts.jsonl").write_text(
            '{"prompt": "a", "source": "gsm8k"}\n{"prompt": "b", "source": "mbpp"}\n')
        self.assertEqual([a.source for a in Shards([self.folder]).answers], ["gsm8k", "mbpp"])

    def test_what_is_wrong_with_a_file_is_named(self):
        answers = random_answers(self.rng, 3, VOCAB)
        wrong = [
            ({"hidden": (1,)}, "no tensor 'hidden.2'"),
            ({"metadata": {"paceline.format": "answers-9"}}, "'answers-9'"),
            ({"tokens": np.zeros(3, np.int64)}, "tensor 'tokens' is I64"),
            ({"finish": np.zeros(2, np.int32)}, r"answers \[3, 3, 3, 2\]"),
            ({"begins": np.array([0, 5, 4, 9], np.int64)}, "begins"),
        ]
        for changes, message in wrong:
            with self.subTest(message=message):
                self.write(answers, **changes)
                layers = changes.get("hidden") and [2]
                with self.assertRaisesRegex(ValueError, f"shard-00000.*{message}"):
                    Shards([self.folder], hidden=layers or [])

    def test_shards_of_two_targets_are_not_mixed(self):
        self.write(random_answers(self.rng, 2, VOCAB))
        self.write(random_answers(self.rng, 2, VOCAB), "shard-00001.safetensors",
                   metadata={"paceline.target": "ffffffffffffffff"})
        with self.assertRaisesRegex(ValueError, "shard-00001.*ffffffffffffffff"):
            Shards([self.folder])

    def test_a_file_that_was_cut_is_refused(self):
        self.write(random_answers(self.rng, 3, VOCAB))
        path = self.folder / "shard-00000.safetensors"
        whole = path.read_bytes()
        for size in (0, 4, 40, len(whole) - 1):
            with self.subTest(size=size):
                path.write_bytes(whole[:size])
                with self.assertRaisesRegex(ValueError, "shard-00000"):
                    Shards([self.folder])


class Loops(WithFolder):
    def test_the_begin_is_that_of_a_plain_search(self):
        for _ in range(60):
            period = int(self.rng.integers(1, 40))
            head = self.rng.integers(0, 4, int(self.rng.integers(0, 30)))
            tokens = np.concatenate([head, np.tile(self.rng.integers(0, 9, period),
                                                   int(self.rng.integers(1, 6)))])
            self.assertEqual(loop_begin(tokens), plain_loop_begin(tokens))

    def test_two_rounds_keep_their_weight_and_the_third_has_none(self):
        prompt, period = 3, 25
        tokens = np.concatenate([np.full(prompt, 49), np.tile(np.arange(period), 4)])
        self.write([{"tokens": tokens, "prompt_tokens": prompt, "prompt_index": 0, "finish": 1}])
        weights = Shards([self.folder]).answers[0].weights
        self.assertEqual(weights[prompt - 1:prompt + 2 * period].min(), 1)
        self.assertEqual(weights[prompt + 2 * period:].max(), 0)


class Packing(WithFolder):
    def packed(self, length, **more):
        tensors = self.write(random_answers(self.rng, 80, VOCAB), **more)
        return Shards([self.folder], hidden=more.get("hidden", ())), tensors, length

    def test_sequences_hold_every_answer_once_with_its_own_arrays(self):
        shards, _, length = self.packed(64, hidden=(5,))
        by_tokens = {a.tokens[:a.useful_length].tobytes(): a for a in shards.answers}
        found = 0
        for sequence in pack(shards.answers, length, seed=1):
            segments, ids, hidden = sequence.segments, sequence.top_ids, sequence.hidden[5]
            self.assertEqual(ids.shape, (length, 4))
            for segment in range(1, segments.max() + 1):
                at = segments == segment
                answer = by_tokens.pop(sequence.tokens[at].astype(np.int32).tobytes())
                n = int(at.sum())
                np.testing.assert_array_equal(sequence.positions[at], np.arange(n))
                np.testing.assert_array_equal(ids[at], answer.top_ids[:n])
                np.testing.assert_array_equal(sequence.top_logprob[at], answer.top_logprob[:n])
                np.testing.assert_array_equal(sequence.weights[at], answer.weights[:n])
                np.testing.assert_array_equal(hidden[at], answer.hidden(5)[:n])
                found += 1
            padding = segments == 0
            self.assertFalse(sequence.weights[padding].any() or sequence.tokens[padding].any())
            self.assertTrue((ids[padding] == -1).all())
        self.assertEqual((found, len(by_tokens)), (80, 0))

    def test_little_is_padding_and_the_order_depends_on_the_seed_alone(self):
        shards, _, length = self.packed(64)
        first, again, other = (pack(shards.answers, length, seed) for seed in (1, 1, 2))
        used = sum(s.used for s in first)
        self.assertGreater(used / (length * len(first)), 0.85)
        self.assertTrue(all((a.tokens == b.tokens).all() for a, b in zip(first, again)))
        self.assertFalse(all((a.tokens == b.tokens).all() for a, b in zip(first, other)))

    def test_long_answers_are_cut_and_long_prompts_left_out(self):
        plain = {"prompt_index": 0, "finish": 1}
        self.write([{"tokens": np.arange(30), "prompt_tokens": 4, **plain},
                    {"tokens": np.arange(30), "prompt_tokens": 25, **plain}])
        sequences = pack(Shards([self.folder]).answers, 20, seed=0)
        self.assertEqual(len(sequences), 1)
        np.testing.assert_array_equal(sequences[0].tokens, np.arange(20))

    def test_what_follows_a_loop_takes_no_place(self):
        tokens = np.concatenate([[49], np.tile(np.arange(25), 8)])
        self.write([{"tokens": tokens, "prompt_tokens": 1, "prompt_index": 0, "finish": 1}])
        self.assertEqual(pack(Shards([self.folder]).answers, 400, seed=0)[0].used, 51)


class ShortList(WithFolder):
    def test_mass_is_the_sum_of_probabilities_at_positions_with_weight(self):
        self.write(random_answers(self.rng, 30, VOCAB))
        shards = Shards([self.folder])
        plain = np.zeros(VOCAB)
        for answer in shards.answers:
            for i in np.flatnonzero(answer.weights):
                for token, logprob in zip(answer.top_ids[i], answer.top_logprob[i]):
                    plain[token] += np.exp(float(logprob))
        np.testing.assert_allclose(token_mass(shards), plain, rtol=1e-9)

    def test_the_list_is_ascending_and_holds_the_commonest_and_the_kept(self):
        self.write(random_answers(self.rng, 30, VOCAB))
        shards = Shards([self.folder])
        mass = token_mass(shards)
        rarest = int(mass.argmin())
        tokens = token_list(shards, 30, keep=[rarest])
        self.assertEqual((len(tokens), tokens.dtype), (30, np.int32))
        self.assertTrue((np.diff(tokens) > 0).all())
        self.assertIn(rarest, tokens)
        ends = {int(a.tokens[-1]) for a in shards.answers if a.finished}
        self.assertLessEqual(ends, set(tokens.tolist()))
        chosen = sorted(set(tokens.tolist()) - ends - {rarest}, key=lambda t: mass[t])
        omitted = set(range(VOCAB)) - set(tokens.tolist())
        self.assertGreaterEqual(mass[chosen[0]], max(mass[t] for t in omitted))

    def test_coverage_is_the_share_of_likeliest_tokens_on_the_list(self):
        self.write([{"tokens": np.array([9, 1, 1, 2, 3]), "prompt_tokens": 1, "prompt_index": 0,
                     "finish": 1}])
        shards = Shards([self.folder])
        self.assertEqual(coverage(shards, np.array([1, 3])), 0.75)
        with self.assertRaisesRegex(ValueError, "short list of 90"):
            token_list(shards, 90)

    def test_single_bytes_and_the_end_are_always_kept(self):
        self.assertEqual(len(byte_alphabet()), 256)
        self.assertGreaterEqual(len(always_kept(TINY)), 100)


if __name__ == "__main__":
    unittest.main()
