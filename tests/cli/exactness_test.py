"""Exactness: on a small model all pairs of method, sampling, dtype, processes, requests, cache, prompts, kills."""

import json
import unittest

from deeper_model import write_deeper
from exactness_matrix import (Task, abilities, config_of, datastore, edge_factors, kv_token_bytes, matrix_factors,
                              methods, row_text, run_check, run_row, table, toml_of, whole_rows)
from exactness_rows import (check_covering, has_datastore, has_draft, impossible, pairs_in, pairs_of, processes_max,
                            reshaped)
from paceline_cli import BINARY, CliTest, TINY

LAYERS = 6  # a process and an exit for each of four segments, and sub-layers to search among
# Its draft is that of pearl-layerskip, its stages are those of fold-skip: exactness_matrix.py runs it.
COMBINED = ("fold-layerskip",)


class Rows(unittest.TestCase):
    def test_every_pair_of_settings_is_in_a_row_or_has_a_reason(self):
        names = methods()
        for factors in (matrix_factors(names), edge_factors(names)):
            rows, never = table(factors)
            self.assertEqual(set().union(*map(pairs_in, rows)) | set(never), pairs_of(factors))
            self.assertTrue(all(reason for reason in never.values()))
            # The two longest factors alone need as many; three times that is no covering array.
            longest = sorted(map(len, factors.values()))[-2:]
            self.assertLess(len(rows), 3 * longest[0] * longest[1])
            self.assertEqual(rows, table(factors)[0], "the same rows every time")

    def test_the_whole_matrix_has_every_method_in_every_combination_of_wishes_and_losses(self):
        names = methods()
        self.assertLessEqual({"jacobi", "lookahead", "ouroboros", "rest"}, set(names))
        can = abilities(names)
        rows = whole_rows(names, can)
        crossed = ("method", "sampling", "requests", "wants", "kills", "cache")
        held = {tuple(row[name] for name in crossed) for row in rows}
        self.assertEqual((len(held), len(rows)), (len(names) * 2 * 3 * 3 * 2 * 2,) * 2)
        self.assertEqual({row["wants"] for row in rows}, {"log probabilities", "penalties", "a JSON schema"})
        self.assertEqual([row for row in rows if any(impossible(pair, can) for pair in pairs_in(row))], [])
        for name, values in matrix_factors(names).items():
            if name not in crossed:
                self.assertEqual({row[name] for row in rows}, set(values))

    def test_a_pair_that_no_row_holds_is_noticed(self):
        factors = {"one": ["a", "b"], "other": ["c", "d"]}
        rows = [{"one": a, "other": b} for a in "ab" for b in "cd"]
        check_covering(factors, rows, {})
        with self.assertRaisesRegex(AssertionError, "'b'.*'d'"):
            check_covering(factors, rows[:-1], {})
        with self.assertRaisesRegex(AssertionError, "impossible, but there"):
            check_covering(factors, rows, {(("one", "a"), ("other", "c")): "x"})


class Shapes(unittest.TestCase):
    def test_four_stages_in_two_processes_are_those_that_propose_and_those_that_verify(self):
        text = reshaped(toml_of("four-stages"), 2)
        blocks = {block.split('"')[1]: block for block in text.split("[[stage]]\n")[1:]}
        self.assertEqual(list(blocks), ["draft", "correct", "segment-1", "segment-2"])
        for name, process in (("draft", 0), ("correct", 0), ("segment-1", 1), ("segment-2", 1)):
            self.assertIn(f'process = "p{process}"', blocks[name])

    def test_a_datastore_is_named_where_a_method_has_one(self):
        self.assertEqual([name for name in methods() if has_datastore(toml_of(name))], ["rest"])
        text = reshaped(toml_of("rest"), 1, 0, "/tmp/prompts.store")
        draft = text.split("[draft]\n")[1].split("[")[0]
        self.assertIn('datastore = "/tmp/prompts.store"\n', draft)
        self.assertNotIn("datastore =", reshaped(toml_of("rest"), 1))

    def test_what_a_method_is_stays_when_its_segments_are_split(self):
        fold = reshaped(toml_of("fold"), 4)
        self.assertEqual(fold.count('role = "early-verify"'), 1)
        self.assertEqual(fold.count('role = "final-verify"'), 1)
        self.assertIn("exit_alternatives = 4", fold)
        ada = reshaped(toml_of("adadecode"), 2)
        self.assertEqual(ada.count("exit = true"), 3, "after each of four segments but the last")
        self.assertFalse(has_draft(ada))
        self.assertTrue(has_draft(fold))

    def test_a_target_that_drafts_for_itself_needs_its_exit_or_all_layers_in_the_first_process(self):
        most = {name: processes_max(toml_of(name))
                for name in ("layerskip", "adaspeed", "kangaroo", "draft-verify", "swift", "clasp", "fold")}
        self.assertEqual(most, {"layerskip": 3, "adaspeed": 3, "kangaroo": 2, "draft-verify": 1, "swift": 1, "clasp": 1,
                                "fold": 4})
        split = reshaped(toml_of("layerskip"), 2)
        self.assertEqual((split.count("[[stage]]"), split.count("[self_draft]")), (2, 1))


class Exactness(CliTest):
    def task(self) -> Task:
        model = write_deeper(TINY, self.folder / "model.gguf", LAYERS)
        raw = write_deeper(TINY, self.folder / "raw.gguf", LAYERS, chat=False)
        return Task(model, raw, self.folder, kv_token_bytes(model), first=8, tokens=24, kills=2, threads=1, timeout=120)

    def run_rows(self, factors: dict) -> None:
        task = self.task()
        for index, row in enumerate(table(factors)[0]):
            with self.subTest(row_text(row)):
                outcome = run_row(row, index, task)
                self.assertEqual(outcome.wrong, "", " ".join(outcome.command))

    def names(self) -> list[str]:
        return [name for name in methods() if name not in COMBINED]

    def test_all_pairs_of_settings_commit_the_tokens_of_plain_decoding(self):
        self.run_rows(matrix_factors(self.names()))

    def test_every_method_commits_the_tokens_of_plain_decoding_at_the_edges(self):
        self.run_rows(edge_factors(self.names()))

    def test_rest_has_a_datastore_of_the_prompts_texts_and_no_row_passes_without_it(self):
        task = self.task()
        row = {"method": "rest", "processes": "1", "draft": "own"}
        config = config_of(row, "rest", task)
        self.assertIn(f'datastore = "{datastore(task)}"', (self.folder / "rest.toml").read_text())
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text(json.dumps({"prompt": "Copy this list three times: red, green, blue, red, green"}) + "\n")
        command = [BINARY, "check", "-m", task.model, *config, "-t", "1", "-n", "8", "--prompts", str(prompts)]
        self.assertEqual(run_check(command, row, task).wrong, "")
        # Without the store the same row does not pass.
        (self.folder / "rest.toml").write_text(reshaped(toml_of("rest"), 1, 1))
        self.assertIn("a datastore was left out", run_check(command, row, task).wrong)

    def test_a_check_that_fails_or_has_other_processes_does_not_pass_for_equal(self):
        task = self.task()
        path = self.folder / "one.toml"
        path.write_text(reshaped(toml_of("pearl"), 1, 1))
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text(json.dumps({"prompt": "one two one two"}) + "\n")
        command = [BINARY, "check", "-m", task.model, "--config", str(path), "-t", "1", "-n", "4",
                   "--prompts", str(prompts)]
        self.assertEqual(run_check(command, {"processes": "1"}, task).wrong, "")
        self.assertIn("1 processes instead of 2",
                      run_check(command, {"processes": "2"}, task).wrong)
        prompts.write_text("")
        self.assertIn("prompts.jsonl", run_check(command, {"processes": "1"}, task).wrong)


if __name__ == "__main__":
    unittest.main()
