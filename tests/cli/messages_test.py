"""What the command line says of mistakes: one sentence that names option, value and remedy; nothing is loaded before."""

import json
import os
import resource
import subprocess
import time
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, TINY, environment, paceline, pipeline_toml

USAGE, FAILURE = 2, 1
# A model that is not there: what is told of a wrong option was found before any model was opened.
NO_MODEL = ["-m", "/nonexistent/model.gguf"]


class Words(CliTest):
    def refused(self, *args: str) -> str:
        """The sentence: what stands between "paceline COMMAND: " and the pointer to --help."""
        lines = self.run_fails(USAGE, *args).splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertRegex(lines[1], r"^Try: paceline.* --help$")
        return lines[0].split(": ", 1)[1]

    def test_a_prompt_needs_no_option(self):
        wanted = self.run_ok("run", "-m", TINY, "-n", "4", "-p", "Hi there")
        for args in (["Hi there"], ["Hi there", "--seed", "3"], ["--stop", "zzz", "Hi there"]):
            self.assertEqual(self.run_ok("run", "-m", TINY, "-n", "4", *args), wanted)

    def test_two_prompts_are_refused_with_both(self):
        said = self.refused("run", "-p", "one", "-p", "two")
        self.assertEqual(said, "--prompt is given 2 times, 'one' and 'two'; it takes one value")
        self.assertIn("'two' is one word too many", self.refused("run", "one", "two"))
        self.assertIn("twice", self.refused("run", *NO_MODEL, "-f", "file.txt", "Hi"))

    def test_short_names_of_chat_and_seed(self):
        done = paceline("run", "-m", TINY, "-i", "-n", "2", stdin=b"Hi\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        drawn = ["run", "-m", TINY, "-n", "12", "--temp", "1", "Hi"]
        self.assertEqual(self.run_ok(*drawn, "-s", "7"), self.run_ok(*drawn, "--seed", "7"))

    def test_a_wrong_option_stands_once_with_the_one_that_was_probably_meant(self):
        for wrong, meant in (("--temprature", "--temp"), ("--temperature=1", "--temp"), ("--promt", "--prompt"),
                             ("--ineractive", "--interactive"), ("--n-predct", "--n-predict")):
            said = self.refused("run", wrong, "1", "-p", "x")
            word = wrong.split("=")[0]
            self.assertEqual(said, f"'{word}' is not an option of paceline run, did you mean '{meant}'?")
        self.assertEqual(self.refused("run", "--xyzzy", "-p", "x"), "'--xyzzy' is not an option of paceline run")
        self.assertIn("'--methd' is not an option of paceline check, did you mean '--method'?",
                      self.run_fails(USAGE, "check", "--methd", "pearl"))

    def test_numbers_that_mean_something_in_other_programs_are_told_what_stands_here_for_it(self):
        for option, wrong, instead in (
                ("--seed", "-1", "--seed $RANDOM"), ("-c", "0", "without -c it is the model's own"),
                ("-c", "-1", "without -c"), ("--top-k", "-1", "all tokens are 0"), ("-t", "-1", "without -t"),
                ("-t", "0", "without -t"), ("-n", "-2", "until the context is full is -1"),
                ("--temp", "-1", "greedy is 0"), ("--top-p", "0", "--top-k 1"), ("--repeat-penalty", "0", "no penalty is 1"),
                ("--min-p", "-1", "all tokens are 0"), ("--penalty-window", "-2", "all tokens are -1")):
            said = self.refused("run", *NO_MODEL, "-p", "x", option, wrong)
            self.assertIn(f"'{wrong}'", said)
            self.assertIn(instead, said)
        for args in (["check"], ["simulate"], ["generate", "--prompts", "x", "-o", "y"]):
            said = self.refused(*args, "-n", "-1")
            self.assertIn("an -n as large as the context", said)
        self.assertNotIn(";", self.refused("run", *NO_MODEL, "-p", "x", "--top-k", "many"))

    def test_escapes_in_a_stop_text_are_two_characters_and_a_remark_says_so(self):
        args = ["run", "-m", TINY, "-p", "x", "-n", "1", "--stop"]
        for escape, meant in (("\\n", "a line break"), ("\\t", "a tab"), ("\\r", "a carriage return")):
            said = paceline(*args, f"a{escape}b").stderr.decode()
            self.assertIn(f"--stop 'a{escape}b': {escape} is two characters; {meant} is $'{escape}'\n", said)
            self.assertNotIn("two characters", paceline(*args, escape, "-q").stderr.decode())
        self.assertNotIn("two characters", paceline(*args, "\n").stderr.decode())

    def test_a_wrong_command_and_none(self):
        self.assertIn("'chek' is not a command, did you mean 'check'?", self.run_fails(USAGE, "chek"))
        self.assertIn("a command is missing (known: run,", self.run_fails(USAGE))
        self.assertIn("'--foo' is not an option of paceline", self.run_fails(USAGE, "--foo"))

    def test_words_too_many_values_missing_and_flags_with_values(self):
        self.assertEqual(self.refused("inspect", "a", "b"),
                         "'b' is one word too many; quotes around a text of several words make it one")
        self.assertEqual(self.refused("run", "--temp"), "--temp needs a value, FLOAT: temperature; 0 is greedy")
        self.assertEqual(self.refused("run", "--raw=7", "-p", "x"), "--raw takes no value")
        self.assertEqual(self.refused("run", "--config", "a", "--method", "b", "x"),
                         "--config excludes --method; give one of them")
        self.assertEqual(self.refused("run", "--random-seed", "3", "x"), "--random-seed requires --random; give both, or none")

    def test_no_message_is_the_librarys(self):
        for args in (["run", "-p"], ["run", "a", "b"], ["run", "--raw=1", "a"], ["check", "--kills"], ["top", "3"],
                     ["generate"], ["tokenize", "-m", TINY, "a", "b"]):
            said = self.run_fails(USAGE, *args)
            self.assertNotRegex(said, "At Most|At Least|required .* missing|were not expected|was not expected|"
                                      "disallowed|received", args)


class Ranges(CliTest):
    def test_an_option_refuses_what_the_sampler_would_refuse_and_nothing_else(self):
        for option, wrong, right in (("--temp", "1e30", "1e6"), ("--temp", "1e-9", "1e-6"), ("--min-p", "1e-12", "1e-9"),
                                     ("--repeat-penalty", "0.0001", "0.001"), ("--repeat-penalty", "1001", "1000"),
                                     ("--presence-penalty", "-1001", "-1000")):
            said = self.run_fails(USAGE, "run", *NO_MODEL, "-p", "x", option, wrong)
            self.assertIn(f"{option}: '{wrong}'", said)
            self.run_ok("run", "-m", TINY, "-n", "1", "-p", "x", option, right)

    def test_a_number_beyond_the_type_is_told_the_highest_one(self):
        said = self.run_fails(USAGE, "run", *NO_MODEL, "-p", "x", "-n", "99999999999")
        self.assertIn("-1 to 2147483647", said)

    def test_check_and_simulate_take_as_many_requests_as_a_pipeline(self):
        for command in ("check", "simulate"):
            said = self.run_fails(USAGE, command, "--method", "pearl", "--requests", "65")
            self.assertIn("1 to 64", said)


class BeforeTheModel(CliTest):
    def test_everything_that_needs_no_model_is_told_before_one_is_opened(self):
        broken = self.folder / "broken.toml"
        broken.write_text("[[stage]\n")
        wrong = self.folder / "wrong.toml"
        wrong.write_text(pipeline_toml(2, True) + "gama = 3\n")
        for args, part in ((["run", "x", "--config", str(broken)], "broken.toml:1"),
                           (["run", "x", "--config", str(wrong)], "did you mean 'gamma'?"),
                           (["run", "x", "--method", "perl"], "did you mean 'pearl'?"),
                           (["run", "x", "--method", "autoregressive", "--draft-model", "d.gguf"], "--draft-model"),
                           (["run", "x", "--stop", "y" * 2000], "--stop"),
                           (["run", "x", "--logit-bias", "7"], "--logit-bias"),
                           (["check", "--config", str(broken)], "broken.toml:1"),
                           (["check", "--method", "pearl", "--set", "draft.gama=3"], "--set draft.gama=3"),
                           (["check", "--method", "pearl", "--delay", "draft"], "--delay draft"),
                           (["check", "--method", "pearl", "--log", "/nonexistent/x"], "--log"),
                           (["simulate", "--method", "pearl", "--costs", self.costs(), "--set", "gamma=3"],
                            "--set gamma=3"),
                           (["simulate", "--method", "pearl", "--costs", self.costs(), "--sweep", "draft.gama=1,2"],
                            "--sweep draft.gama=1")):
            with self.subTest(args=args):
                said = self.run_fails(USAGE, *args, *NO_MODEL)
                self.assertIn(part, said)
                self.assertNotIn("/nonexistent/model.gguf", said)

    def costs(self) -> str:
        path = self.folder / "costs.tsv"
        if not path.exists():
            self.run_ok("simulate", "-m", TINY, "--measure-costs", str(path), "--rows", "1,8", "--contexts", "64",
                        "--neighbours", "0", "--samples", "1", "--measure-threads", "1")
        return str(path)

    def test_a_configuration_may_come_through_a_pipe(self):
        read, write = os.pipe()
        os.write(write, pipeline_toml(1, False).encode())
        os.close(write)
        done = subprocess.run([BINARY, "run", "-m", TINY, "-n", "4", "x", "--config", f"/dev/fd/{read}"],
                              pass_fds=[read], capture_output=True, timeout=60, env=environment(), check=False)
        os.close(read)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_check_knows_the_processes_before_it_decodes(self):
        begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        said = self.run_fails(USAGE, "check", "-m", TINY, "--method", "pearl", "--delay", "missing:20", "-n", "400")
        self.assertIn("--delay missing:20: no process is called 'missing'; there are target, draft", said)
        # Of the processor, whatever else runs here; the answers would take much longer.
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun, 10)

    def test_syntax_and_meaning_of_a_configuration_end_with_the_same_code(self):
        path = self.folder / "pipeline.toml"
        for text in ("[[stage]\n", "[[stage]]\nname = \"a\"\nrole = \"boss\"\n"):
            path.write_text(text)
            self.assertIn("pipeline.toml:", self.run_fails(USAGE, "run", "-m", TINY, "x", "--config", str(path)))


class Remedies(CliTest):
    def test_a_wrong_merge_names_the_file_and_what_to_do(self):
        data = Path(TINY).read_bytes()
        at = data.index(b"tokenizer.ggml.merges")
        at = data.index(b" ", at)  # between the two tokens of the first merge
        path = self.folder / "merges.gguf"
        path.write_bytes(data[:at] + b"_" + data[at + 1:])
        said = self.run_fails(FAILURE, "run", "-m", str(path), "x")
        self.assertIn(f"{path}: tokenizer.ggml.merges[0] is", said)
        self.assertIn("fetch the file again", said)

    def test_too_few_descriptors_name_the_limit_and_the_command_that_raises_it(self):
        for limit in range(8, 61, 4):
            with self.subTest(limit=limit):
                done = subprocess.run(
                    [BINARY, "run", "-m", TINY, "--method", "four-stages", "-n", "2", "x"], capture_output=True,
                    timeout=60, env=environment(), check=False,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
                said = done.stderr.decode()
                self.assertEqual(done.returncode, FAILURE, said)
                self.assertIn(f"this process may open only {limit} files", said)
                self.assertIn("ulimit -n", said)


class Figures(CliTest):
    def test_dtype_auto_is_what_it_came_to(self):
        stats = self.folder / "stats.json"
        self.run_ok("run", "-m", TINY, "-n", "2", "x", "--stats", str(stats))
        self.assertNotEqual(json.loads(stats.read_text())["dtype"], "auto")
        rows = json.loads(self.run_ok("bench", "-m", TINY, "-p", "0", "-n", "4", "-r", "1", "-o", "json"))
        self.assertEqual(rows[0]["dtype"], json.loads(stats.read_text())["dtype"])

    def test_check_prints_a_figure_once(self):
        text = self.run_ok("check", "-m", TINY, "--method", "pearl", "--first", "1", "-n", "8")
        for figure in ("tokens/s  ", "wasted rows", "draft forwards", "times plain"):
            self.assertLessEqual(text.count(figure), 2 if figure == "tokens/s  " else 1, text)
        self.assertEqual(len([line for line in text.splitlines() if line.startswith("tokens/s")]), 1, text)

    def test_simulate_knows_plain_and_compares_with_it(self):
        costs = BeforeTheModel.costs(self)
        one = ["simulate", "-m", TINY, "--costs", costs, "-p", "Hello", "-n", "12", "--baseline"]
        text = self.run_ok(*one, "--method", "plain")
        self.assertTrue(text.startswith("plain, settings -\n"), text)
        self.assertRegex(text, r"times plain decoding: (0\.9|1\.0)\d \(plain: [\d.]+ tokens/s on one device, simulated\)")
        text = self.run_ok(*one, "--method", "prompt-lookup", "--sweep", "draft.gamma=2,4", "--json",
                           str(self.folder / "out.json"))
        self.assertIn("| times plain |", text)
        for case in json.loads((self.folder / "out.json").read_text()):
            self.assertAlmostEqual(case["times_plain"], case["tokens_per_second"] / case["plain_tokens_per_second"])


class Stages(CliTest):
    def test_stages_are_named_in_ps_and_top(self):
        process = subprocess.Popen([BINARY, "run", "-m", TINY, "--method", "four-stages", "-i", "-n", "2"],
                                   stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env=environment())
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wanted = {"paceline: early-verify", "paceline: final-verify", "paceline: draft", "paceline: correct"}
        while (found := self.children(process.pid)).keys() != wanted:
            self.assertIsNone(process.poll(), f"the run ended with {found}")
            time.sleep(0.05)
        for name, comm in found.items():
            self.assertEqual(comm, name[:15], "the kernel keeps 15 letters")

    @staticmethod
    def children(parent: int) -> dict[str, str]:
        """The first word of each child's command line, and what the kernel calls it."""
        names = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) != parent:
                    continue
                words = (folder / "cmdline").read_bytes().decode().split("\0")
                names[words[0]] = (folder / "comm").read_text().rstrip("\n")
            except OSError:
                continue
        return names


if __name__ == "__main__":
    unittest.main()
