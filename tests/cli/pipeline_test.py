"""Pipelines of processes: the bytes of one process, whatever the shape."""

import json
import re
import subprocess
import unittest

from deeper_model import write_deeper
from paceline_cli import (BINARY, CliTest, PROMPT, ROOT, TINY, demo_model, environment, needs_demo_model,
                          pipeline_toml)

SAMPLED = ["--temp", "0.9", "--seed", "11", "--repeat-penalty", "1.1", "--top-p", "0.95"]


class Pipeline(CliTest):
    def config(self, segments: int, draft: bool) -> str:
        path = self.folder / f"{segments}-{draft}.toml"
        path.write_text(pipeline_toml(segments, draft))
        return str(path)

    def ids(self, model: str, *args: str) -> tuple[list[int], dict]:
        ids, stats = self.folder / "ids.json", self.folder / "stats.json"
        self.run_ok("run", "-m", model, "--ids", str(ids), "--stats", str(stats), *args)
        return json.loads(ids.read_text()), json.loads(stats.read_text())

    def same_ids(self, model: str, configs: list[str], *args: str) -> None:
        plain, _ = self.ids(model, *args)
        self.assertGreater(len(plain), 8)
        for config in configs:
            with self.subTest(config=config, args=args):
                self.assertEqual(self.ids(model, "--config", config, *args)[0], plain)

    def test_processes_commit_the_tokens_of_one_process_greedy_and_sampled(self):
        configs = [self.config(segments, draft) for segments in (1, 2) for draft in (False, True)]
        for sampling in ([], SAMPLED):
            self.same_ids(TINY, configs, "-p", PROMPT, "-n", "60", *sampling)

    def test_a_prompt_of_several_prefill_batches_gives_the_same_tokens(self):
        # 64 rows are one batch; this prompt fills several, and the last one only in part.
        self.same_ids(TINY, [self.config(2, True)], "--raw", "-p", "ab cd " * 35, "-n", "30")

    def test_batches_of_prefill_of_any_length_give_the_same_tokens(self):
        configs = []
        for rows in (1, 150, 512):
            configs.append(self.folder / f"rows-{rows}.toml")
            configs[-1].write_text(pipeline_toml(2, True) + f"[schedule]\nprefill_rows = {rows}\n")
        prompt = ["--raw", "-p", "ab cd " * 45, "-n", "30"]
        self.same_ids(TINY, [str(config) for config in configs], *prompt)
        _, stats = self.ids(TINY, "--config", str(configs[1]), *prompt)
        self.assertGreater(stats["prompt_tokens"], 150)
        wrong = self.folder / "wrong.toml"
        wrong.write_text(pipeline_toml(1, False) + "[schedule]\nprefill_rows = 513\n")
        self.assertIn("prefill_rows = 513 must be a whole number from 1 to 512",
                      self.run_fails(2, "run", "-m", TINY, "--config", str(wrong), "-p", "x"))

    def test_a_draft_that_is_right_needs_fewer_batches_than_tokens(self):
        _, stats = self.ids(TINY, "--config", self.config(2, True), "-p", PROMPT, "-n", "80", "--temp", "0")
        self.assertLess(stats["batches"], stats["generated_tokens"])

    @needs_demo_model
    def test_the_shipped_configurations_give_the_demo_models_own_text(self):
        # Files of methods run with the tiny model in method_test, greedy and sampled.
        configs = sorted((ROOT / "configs").glob("*.toml"))
        self.assertGreaterEqual(len(configs), 20)
        prompt = ["-p", "List the days of the week, twice."]
        self.same_ids(demo_model(), [str(p) for p in configs], *prompt, "-n", "12")
        placed = [str(p) for p in configs if p.name.startswith("cpu-") or p.stem == "four-stages"]
        self.same_ids(demo_model(), placed, *prompt, "-n", "32", *SAMPLED)

    def test_the_example_of_the_page_on_new_methods_gives_the_same_tokens(self):
        example = str(ROOT / "tests/example/pearl-lookup.toml")
        for sampling in ([], SAMPLED):
            self.same_ids(TINY, [example], "-p", PROMPT, "-n", "60", *sampling)

    def test_a_chat_over_processes_says_what_a_chat_in_one_process_says(self):
        turns = "hello there\nand again hello there\n/quit\n".encode()
        plain = self.run_ok("run", "-m", TINY, "--interactive", "-n", "12", stdin=turns)
        piped = self.run_ok("run", "-m", TINY, "--interactive", "-n", "12", "--config", self.config(2, True),
                            stdin=turns)
        self.assertEqual(piped, plain)

    def test_stages_that_share_a_process_commit_the_same_tokens(self):
        path = self.folder / "colocated.toml"
        path.write_text(pipeline_toml(2, True).replace('role = "', 'process = "one"\nrole = "'))
        self.same_ids(TINY, [str(path)], "-p", PROMPT, "-n", "60", *SAMPLED)
        self.same_ids(TINY, [str(path)], "--raw", "-p", "ab cd " * 35, "-n", "30")

    def test_the_placement_is_printed_before_the_answer_one_line_a_stage(self):
        args = [BINARY, "run", "-m", TINY, "--config", self.config(2, True), "-p", "x", "-n", "3"]
        done = subprocess.run([*args, "-v"], capture_output=True, timeout=120, env=environment(), check=True)
        # Without the log: its lines begin with a date.
        lines = [line for line in done.stderr.decode().splitlines() if not re.match(r"\d{4}-", line)]
        self.assertEqual(lines[0].split(),
                         ["stage", "process", "role", "device", "layers", "cores", "weights", "kv"])
        rows = [line.split() for line in lines[1:4]]
        self.assertEqual([row[0] for row in rows], ["segment-1", "segment-2", "draft"])
        self.assertEqual([row[2:5] for row in rows],
                         [["segment", "cpu", "0..0"], ["segment", "cpu", "1..1"], ["draft", "cpu", "-"]])
        self.assertEqual(len({row[1] for row in rows}), 3, "three processes")
        self.assertRegex(lines[4], r"^KV cache: \d+ tokens, \d+\.\d contexts of \d+$")
        self.assertIn("prompt lookup", lines[5], "what the draft thinks with")
        self.assertEqual(len(lines), 7, "the placement and the figures, nothing else")
        done = subprocess.run(args, capture_output=True, timeout=120, env=environment(), check=True)
        self.assertEqual(len(done.stderr.splitlines()), 2, "what the draft thinks with, and the figures")

    def test_checksums_of_whole_messages_change_nothing(self):
        path = self.folder / "checked.toml"
        path.write_text(pipeline_toml(2, True) + "[supervision]\nchecksums = true\n")
        self.same_ids(TINY, [str(path)], "-p", PROMPT, "-n", "40")

    def test_the_trace_is_json_with_a_row_for_every_stage(self):
        trace = self.folder / "trace.json"
        self.run_ok("run", "-m", TINY, "--config", self.config(2, True), "-p", PROMPT, "-n", "20",
                    "--trace", str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
        names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
        self.assertEqual(names, {"conductor", "segment-1", "segment-2", "draft"})
        self.assertGreater(sum(e["ph"] == "X" for e in events), 20, "slices of work")

    def test_a_draft_gets_the_states_that_choose_its_layers_in_its_targets_process_too(self):
        model = str(write_deeper(TINY, self.folder / "six.gguf", 6))
        draft = ('[draft]\nsource = "skip-layers"\nchoose = "programme"\ninterval = 1\nskip_ratio = 0.4\ngamma = 4\n'
                 'pace = "sequential"\n[schedule]\nmode = "sequential"\ncontroller = "off"\ndraft_wait_us = 10000000\n')
        for process in ("", 'process = "one"\n'):
            with self.subTest(process=process):
                path, trace = self.folder / "programme.toml", self.folder / "trace.json"
                path.write_text("".join(f'[[stage]]\nname = "{name}"\nrole = "{name}"\nthreads = 1\n{process}'
                                        for name in ("segment", "draft")) + draft)
                self.run_ok("run", "-m", model, "--config", str(path), "-p", PROMPT, "-n", "12", "--trace", str(trace))
                names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"}
                self.assertTrue(any(name.startswith("optimise") for name in names), names)

    def test_the_log_has_lines_of_every_stage_and_of_the_conductor(self):
        log = self.folder / "log.txt"
        self.run_ok("run", "-m", TINY, "--config", self.config(2, True), "-p", PROMPT, "-n", "20",
                    "--log", str(log))
        lines = log.read_text().splitlines()
        for line in lines:
            self.assertRegex(line, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [\w-]+\[\d+\] \w+: ")
        for stage in ("segment-1", "segment-2", "draft"):
            for what in ("started, epoch 1", "wired", "ended"):
                self.assertTrue(any(f" {stage}[" in line and what in line for line in lines), (stage, what))
        self.assertTrue(any(re.search(r"segment-1\[.*weights .* loaded: ", line) for line in lines))
        self.assertTrue(any(" conductor[" in line and "answer: prompt" in line for line in lines))

    def test_verbose_shows_the_same_lines_on_stderr_and_nothing_else_does(self):
        args = ["run", "-m", TINY, "--config", self.config(1, False), "-p", "x", "-n", "3"]
        quiet = subprocess.run([BINARY, *args], capture_output=True, timeout=120, env=environment(), check=True)
        loud = subprocess.run([BINARY, *args, "-v"], capture_output=True, timeout=120, env=environment(), check=True)
        self.assertNotIn(b"started, epoch", quiet.stderr)
        self.assertIn(b"started, epoch 1", loud.stderr)
        self.assertEqual(quiet.stdout, loud.stdout)

    def test_a_model_that_is_gone_when_a_stage_loads_is_an_error_with_its_path(self):
        done = subprocess.run([BINARY, "run", "-m", str(self.folder / "no.gguf"), "--config", self.config(2, False),
                               "-p", "x"], capture_output=True, timeout=120, env=environment(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no.gguf", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
