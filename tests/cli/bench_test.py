"""Benches of bench/ that count: what is run, how it is counted, what is refused."""

import argparse
import json
import subprocess
import sys
import unittest

from paceline_cli import BINARY, CliTest, ROOT, demo_model, needs_demo_model

sys.path.insert(0, str(ROOT / "bench"))
import draft_sources_account as account  # noqa: E402: by the line above
import draft_sources_rows as rows  # noqa: E402
import prompt_sets  # noqa: E402
import self_speculation_cases as cases  # noqa: E402
import self_speculation_studies as studies  # noqa: E402
import sweep  # noqa: E402

PROMPT = "Write the words one, two, three, four ten times, separated by commas."


class DraftSources(CliTest):
    def bench(self, *words: str) -> subprocess.CompletedProcess:
        prompts = self.folder / "judged.jsonl"
        prompts.write_text(json.dumps({"prompt": PROMPT}) + "\n")
        command = [str(ROOT / "bench/draft_sources.py"), "--paceline", BINARY, "--model", demo_model(), "--no-own",
                   "--prompts", str(prompts), "-n", "12", "--threads", "1", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    @needs_demo_model
    def test_a_row_for_each_account_of_each_source_with_equal_answers(self):
        store, out = self.folder / "store.jsonl", self.folder / "sources.tsv"
        store.write_text(json.dumps({"answer": "one, two, three, four, one, two, three, four, five"}) + "\n")
        done = self.bench("--rows", "autoregressive;rest;lookahead;layerskip", "--temp", "0", "--store", str(store),
                          "--tsv", str(out))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = out.read_text().splitlines()
        head = [line for line in lines if line.startswith("# ")]
        for key in ("what", "command", "commit", "date", "machine"):
            self.assertTrue(any(line.startswith(f"# {key}: ") for line in head), key)
        table = [line.split("\t") for line in lines[len(head):]]
        found = [dict(zip(table[0], line)) for line in table[1:]]
        self.assertEqual([(row["row"], row["account"]) for row in found],
                         [("autoregressive", "off"), ("rest", "off"), ("rest", "own"), ("lookahead", "off"),
                          ("lookahead", "own"), ("layerskip", "off"), ("layerskip", "own")])
        for row in found:
            self.assertEqual(row["equal"], "yes", row)
            self.assertGreaterEqual(float(row["M"]), 1.0, row)
        plain = found[0]
        self.assertEqual((plain["M"], plain["layer_rows"]), ("1.00", "30.00"))
        # A window of up to 56 rows is verified for one or two tokens.
        self.assertGreater(float(found[3]["layer_rows"]), 150.0)
        self.assertIn("rest: M above prompt-lookup's", done.stdout)

    @needs_demo_model
    def test_a_store_with_a_judged_prompt_in_it_is_refused(self):
        store = self.folder / "store.jsonl"
        store.write_text(json.dumps({"messages": [{"content": f"Please: {PROMPT}"}]}) + "\n")
        done = self.bench("--rows", "rest", "--store", str(store))
        self.assertEqual(done.returncode, 1)
        self.assertIn("has a prompt that is judged", done.stderr)

    def test_layer_rows_are_those_of_the_target_and_of_the_drafts_layers(self):
        figures = {"candidates": 40, "batches": 10, "draft_rows": 50, "emitted_tokens": 20}
        there = {"draft-small": (9_560_432, {"layers": "4"})}
        trained = {"draft": {"source": "phrases+trained", "stand_in": "first-layers", "layers": 0.2}}
        self.assertEqual(account.layer_rows(figures, trained, there, 30), ((50 * 30 + 50 * 4) / 20, "4 (part draft-small)"))
        self.assertEqual(account.layer_rows(figures, trained, {}, 30), ((50 * 30 + 50 * 6) / 20, "6 ([draft] layers)"))
        guesses = {"draft": {"source": "lookahead"}}
        self.assertEqual(account.layer_rows(figures, guesses, there, 30), (75.0, "none (guesses)"))
        self.assertEqual(account.layer_rows(figures, {"draft": {"source": "model"}}, there, 30), (None, "not known"))

    def test_a_goal_is_reached_missed_or_not_measured(self):
        def record(row: str, m: float) -> dict:
            return {"set": "GSM8K", "sampling": "greedy", "account": "off", "row": row, "M": m, "times_plain": None,
                    "first_accepted": 0.5}

        told = {line[0]: line[3:] for line in account.goal_lines(rows.GOALS, [
            record("lookahead", 1.25), record("jacobi", 1.05), record("rest", 1.9), record("prompt-lookup", 1.6)])}
        self.assertEqual(told["lookahead: tokens a target forward"], ["1.25", "missed"])
        self.assertEqual(told["jacobi: tokens a target forward (1.03 to 1.11)"], ["1.05", "reached"])
        self.assertEqual(told["rest: M above prompt-lookup's"], ["0.30", "reached"])
        self.assertEqual(told["eagle2: M of its tree over its chain"], ["-", "not measured"])


class PromptSets(CliTest):
    def sets(self, *words: str) -> dict[str, list[str]]:
        parser = argparse.ArgumentParser()
        prompt_sets.add_options(parser)
        files, folder = prompt_sets.chosen(parser.parse_args(["--no-own", *words]))
        with folder:
            return {name: [prompt_sets.text_of(line) for line in prompt_sets.lines_of(file)]
                    for name, file in files.items()}

    def questions(self, *rows: object) -> str:
        file = self.folder / "question.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(file)

    def test_spec_bench_is_a_set_for_each_task_and_mt_benchs_categories_are_one(self):
        # Invented questions in the form of the published file: eight categories of ten, five tasks of 80.
        categories = [name for name in prompt_sets.MT_BENCH_CATEGORIES for _ in range(10)]
        categories += [name for name in prompt_sets.SPEC_BENCH_TASKS[1:] for _ in range(80)]
        file = self.questions(*({"question_id": i + 81, "category": name, "turns": [f"{name} {i}", "And then?"]}
                                for i, name in enumerate(categories)))
        found = self.sets("--spec-bench", file)
        self.assertEqual({name: len(texts) for name, texts in found.items()},
                         {f"Spec-Bench {task}": 80 for task in prompt_sets.SPEC_BENCH_TASKS})
        self.assertEqual(found["Spec-Bench mt_bench"][10], "roleplay 10")
        self.assertEqual(found["Spec-Bench rag"][-1], "rag 479")
        first = self.sets("--spec-bench", file, "--first", "8")["Spec-Bench mt_bench"]
        self.assertEqual([text.split()[0] for text in first], list(prompt_sets.MT_BENCH_CATEGORIES))

    def test_a_file_that_is_not_spec_benchs_is_refused_with_its_line(self):
        good = {"question_id": 1, "category": "qa", "turns": ["Who?"]}
        for wrong, why in (({**good, "category": "poems"}, "line 2: category 'poems'"), ({**good, "turns": "Who?"}, "line 2"),
                           ({**good, "turns": []}, "line 2"), (["Who?"], "line 2")):
            with self.assertRaisesRegex(SystemExit, why):
                self.sets("--spec-bench", self.questions(good, wrong))

    def test_mt_bench_by_category_and_stories(self):
        file = self.questions(*({"question_id": i, "category": name, "turns": [f"{name} {i}"]}
                                for i, name in enumerate(["writing", "math", "writing"])))
        self.assertEqual(self.sets("--mt-bench", file, "--by-category"),
                         {"MT-bench writing": ["writing 0", "writing 2"], "MT-bench math": ["math 1"]})
        self.assertEqual(list(self.sets("--mt-bench", file)), ["MT-bench"])
        told = self.sets("--stories", "40")["stories"]
        self.assertEqual(len(set(told)), 40)
        self.assertEqual(told, self.sets("--stories", "40")["stories"])
        for part in prompt_sets.STORY_PARTS:
            for word in part:
                self.assertTrue(any(word in text for text in told), word)
        self.assertEqual(len(set(self.sets("--stories", "480")["stories"])), 480)


class Sweep(unittest.TestCase):
    def test_an_exit_sends_as_many_candidates_as_the_sweep_of_k_grows(self):
        class Recorder:
            def __init__(self):
                self.calls = []

            def run(self, method, name, file, draft, settings=(), sweeps=()):
                self.calls.append((method, settings, sweeps))
                return [({"draft.exit_alternatives": sweeps[0].split("=")[1]}, 100.0)]

        class Text:
            def __init__(self):
                self.rows = []

            def write(self, text):
                pass

            def table(self, head, rows):
                self.rows += rows

        simulator, report = Recorder(), Text()
        options = argparse.Namespace(alternatives="1,4,6", draft="small")
        sweep.SECTIONS["k"](simulator, {"own": "own.jsonl"}, options, report)
        self.assertEqual(simulator.calls, [(method, (f"exit.top={k}",), [f"draft.exit_alternatives={k}"])
                                           for method in sweep.EXITS for k in (1, 4, 6)])
        self.assertEqual(report.rows, [[method, "100.0", "100.0", "100.0"] for method in sweep.EXITS])


class Studies(CliTest):
    def test_figures_of_some_answers_are_those_of_their_own_tokens(self):
        plain = [{"ids": [1, 2, 3, 4, 5], "tokens": 5, "tokens_per_second": 10.0}]
        answer = {"ids": [1, 2, 3, 4, 5], "tokens": 5, "batches": 3, "proposed": 4, "accepted": 2, "tokens_per_second": 20.0}
        self.assertEqual(studies.of_prompts([answer], plain), ["2.000", "0.500", "2.000", "yes"])
        other = {**answer, "ids": [1, 2, 3, 4, 6], "proposed": 0}
        self.assertEqual(studies.of_prompts([other], plain), ["2.000", "-", "2.000", "NO"])

    @needs_demo_model
    def test_adadecode_with_other_exits_is_a_configuration_of_the_program(self):
        for exits in ((10,), (10, 15, 23)):
            file = self.folder / f"exits-{len(exits)}.toml"
            file.write_text(studies.adadecode_config(exits))
            done = subprocess.run([BINARY, "run", "--config", str(file), "--print-config"], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count("[[stage]]"), len(exits) + 1)
            self.assertEqual(done.stdout.count("exit = true"), len(exits))
            self.assertIn("gate = 0.75", done.stdout)

    def test_the_gate_is_swept_from_0_to_1_and_heads_of_ones_own_are_rows(self):
        rows = cases.adadecode({"specialist": "maths.safetensors"})
        self.assertEqual([row[3]["exit.gate"] for row in rows if row[0] == "figure-5"], [gate / 10 for gate in range(11)])
        self.assertIn(("table-3", "heads specialist", cases.ADADECODE_EXITS, {"exit.part": "maths.safetensors"}), rows)


if __name__ == "__main__":
    unittest.main()
