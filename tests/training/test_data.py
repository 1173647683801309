"""`paceline-train data`: prompts go in as files, come out as folders of shards, and a run that was
interrupted goes on. A stand-in answers here; the program itself does where it is built."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from paceline_training.prompts import read_rows
from paceline_training.shards import Shards

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TINY = ROOT / "tests" / "fixtures" / "models" / "tiny-chat.gguf"
BINARY = Path(os.environ.get("PACELINE_BINARY", ROOT / "build" / "release" / "paceline"))

# Answers each prompt with tokens made of its number; writes its command line down; fails once
# when a file `fail` is there. Its tokenizer says a line of ten questions whatever the tokens are.
STAND_IN = f"""#!{sys.executable}
import json, sys
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
import numpy as np
from shard_files import write_shard
here = Path(__file__).parent
words = sys.argv[1:]
if words[0] == "tokenize":
    ids = json.loads(words[-1])
    print("".join(f"{{i}}. What is known about number {{ids[0]}} and {{i}}?\\n" for i in range(10)))
    sys.exit()
option = dict(zip(words[1::2], words[2::2]))
with open(here / "calls.jsonl", "a") as file:
    file.write(json.dumps(option) + "\\n")
if (here / "fail").exists():
    (here / "fail").unlink()
    sys.exit(3)
rows = Path(option["--prompts"]).read_text().splitlines()
layers = tuple(int(word) for word in option.get("--hidden", "").split(",") if word)
answers = [dict(tokens=np.arange(i, i + 12) % 300, prompt_tokens=3, prompt_index=i, finish=0)
           for i in range(len(rows))]
write_shard(Path(option["-o"]) / "shard-00000.safetensors", answers, 9000, layers)
"""


class Data(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.work = self.folder / "work"
        self.program = self.folder / "paceline"
        self.program.write_text(STAND_IN)
        self.program.chmod(0o755)

    def data(self, *words: str, program: Path | None = None) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-c", "import sys; from paceline_training import cli; "
             "sys.exit(cli.main(sys.argv[1:]))", "data", "--work", str(self.work), "--paceline",
             str(program or self.program), "-m", str(TINY), "--count", "120", *words],
            capture_output=True, text=True, check=False)

    def calls(self) -> list[dict]:
        return read_rows(self.folder / "calls.jsonl")

    def test_every_part_is_answered_greedily_and_at_temperature_one(self):
        run = self.data("--part", "heads:20:2,3", "--part", "bulk:50", "--held-out", "10")
        self.assertEqual(run.returncode, 0, run.stderr)
        calls = {Path(call["-o"]).name: call for call in self.calls()}
        self.assertEqual(list(calls), ["own-heldout-greedy", "own-heldout-sampled", "heads-greedy",
                                       "heads-sampled", "bulk-greedy", "bulk-sampled"])
        self.assertEqual([call["--temp"] for call in calls.values()], ["0", "1"] * 3)
        self.assertEqual(calls["heads-sampled"]["--hidden"], "2,3")
        self.assertNotIn("--hidden", calls["bulk-greedy"])
        train = read_rows(self.work / "prompts" / "train.jsonl")
        answers = self.work / "answers"
        self.assertEqual(read_rows(answers / "heads-greedy" / "prompts.jsonl"), train[:20])
        self.assertEqual(read_rows(answers / "bulk-sampled" / "prompts.jsonl"), train[20:70])
        shards = Shards([answers / "heads-greedy", answers / "heads-sampled"], hidden=[3])
        self.assertEqual([a.source for a in shards.answers], [r["source"] for r in train[:20]] * 2)
        self.assertRegex(run.stdout, r"4096 tokens covers \d+\.\d % of held-out answers")

    def test_a_run_goes_on_with_the_same_prompts_and_refuses_others(self):
        (self.folder / "fail").touch()
        part = ("--part", "bulk:50", "--held-out", "5", "--samples", "0")
        first = self.data(*part)
        self.assertEqual(first.returncode, 1)
        self.assertRegex(first.stderr, "paceline generate .*exit 3")
        before = (self.work / "prompts" / "train.jsonl").read_bytes()
        second = self.data(*part, "--seed", "9")
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertEqual((self.work / "prompts" / "train.jsonl").read_bytes(), before)
        other = self.data("--part", "bulk:40", "--held-out", "5")
        self.assertEqual(other.returncode, 1)
        self.assertRegex(other.stderr, "bulk-greedy: answers to other prompts are there")

    def test_questions_of_the_target_become_prompts(self):
        run = self.data("--ask", "6", "--prompts-only", "--remake")
        self.assertEqual(run.returncode, 0, run.stderr)
        sources = [row["source"] for row in read_rows(self.work / "prompts" / "train.jsonl")]
        self.assertGreater(sources.count("target"), 40)
        self.assertEqual(self.calls()[0]["--temp"], "0.7")

    def test_mistakes_are_one_line_and_say_what_is_wrong(self):
        wrong = [(("--part", "bulk"), 2, "'bulk' is not NAME:COUNT"),
                 (("--prompts", "/nowhere.jsonl"), 1, "/nowhere.jsonl"),
                 (("--paceline", "/no/such/program"), 1, "no program '/no/such/program'")]
        for words, code, message in wrong:
            with self.subTest(words=words):
                run = self.data(*words)
                self.assertEqual(run.returncode, code)
                self.assertIn(message, run.stderr)
                self.assertNotIn("Traceback", run.stderr)

    def test_a_step_that_is_not_there_lists_those_that_are(self):
        run = subprocess.run([sys.executable, str(ROOT / "model" / "training" / "paceline-train"),
                              "drfat"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("no step 'drfat'", run.stderr)
        self.assertIn("  draft ", run.stderr)

    @unittest.skipUnless(BINARY.exists(), f"skipped: {BINARY} is not built")
    def test_the_program_itself_answers(self):
        run = self.data("--part", "heads:6:1,2", "--held-out", "2", "-n", "8", "--top", "4",
                        "--requests", "3", "--shard-size", "4", "-t", "1", program=BINARY)
        self.assertEqual(run.returncode, 0, run.stderr)
        answers = self.work / "answers"
        greedy = Shards([answers / "heads-greedy"], hidden=[1, 2])
        self.assertEqual(len(greedy.answers), 6)
        self.assertEqual(len(list((answers / "heads-greedy").glob("shard-*"))), 2)
        for answer in greedy.answers:
            used = answer.weights > 0
            self.assertTrue(used.any())
            # Greedy: what it said next is the likeliest token of the distribution behind it.
            at = [i for i in range(len(answer) - 1) if used[i]]
            said = [int(answer.tokens[i + 1]) for i in at]
            self.assertEqual(answer.top_ids[at, 0].tolist(), said)
            self.assertTrue(answer.hidden(2)[used].any())


if __name__ == "__main__":
    unittest.main()
