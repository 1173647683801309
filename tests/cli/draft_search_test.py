"""A draft that searches its skip set while it serves: plain decoding's tokens, the state on disk, what is printed."""

import json
import re
import shutil
import subprocess
import time
import unittest

from deeper_model import write_deeper
from paceline_cli import BINARY, CliTest, PROMPT, TINY, environment

SAMPLED = ["--temp", "0.8", "--top-p", "0.95", "--seed", "7"]
USAGE = 2
FAILURE = 1
LAYERS = 6
STAGES = '[[stage]]\nname = "draft"\nrole = "draft"\n[[stage]]\nname = "target"\nrole = "segment"\n'
SUPERVISION = "[supervision]\nrestarts_max = 1000\nrestart_period_s = 1\nbackoff_ms = [0]\n"
SEARCH = ('source = "skip-layers"\nchoose = "search"\ninterval = 1\nwindow = 4\noptimise_share = 1\n'
          "skip_ratio = 0.4\nmatchness_stop = 1.0\n")


class DraftSearch(CliTest):
    def setUp(self) -> None:
        super().setUp()
        # Of random layers that all count: no set is right throughout, and the search goes on.
        self.model = str(write_deeper(TINY, self.folder / "six.gguf", LAYERS, factor=1.0))
        self.state = self.folder / "found.state"

    def config(self, pace: str = "sequential", rest: str = "", search: str = SEARCH) -> str:
        path = self.folder / "own.toml"
        path.write_text(f'{STAGES}[draft]\n{search}pace = "{pace}"\ngamma = 4\n{rest}[schedule]\ncontroller = "off"\n'
                        f'{SUPERVISION}')
        return str(path)

    def run_figures(self, config: str, *args: str) -> tuple[str, dict, list[int]]:
        """What stderr says of a run, its --stats and its token ids."""
        stats, ids = self.folder / "stats.json", self.folder / "ids.json"
        done = subprocess.run([BINARY, "run", "-m", self.model, "-p", PROMPT, "--config", config, "--stats", str(stats),
                               "--ids", str(ids), "--figures", "-v", *args],
                              capture_output=True, timeout=120, env=environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stderr.decode(), json.loads(stats.read_text()), json.loads(ids.read_text())

    def test_answers_equal_plain_decoding_while_draft_and_target_are_killed(self):
        for pace in ("sequential", "ahead", "lockstep"):
            for sampling in (["--temp", "0"], SAMPLED):
                with self.subTest(pace=pace, sampling=sampling):
                    report = self.folder / "report.json"
                    config = self.config(pace, f'state = "{self.state}"\n')
                    self.run_ok("check", "-m", self.model, "--config", config, "--json", str(report), "--requests", "4",
                                "--kills", "4", "--first", "6", "-n", "60", *sampling)
                    found = json.loads(report.read_text())
                    self.assertTrue(found["equal"])
                    self.assertGreater(found["kills"], 0)

    def test_trials_are_made_and_the_set_is_printed(self):
        never_end = [f"--logit-bias={token}=-inf" for token in range(3)]
        args = ["-n", "120", *never_end]
        plain = self.generate("-p", PROMPT, *args, model=self.model)[1]
        # Which trials fit into a run depends on the load of the machine, so the first runs may find no better set.
        for _ in range(200):
            stderr, stats, ids = self.run_figures(self.config(), *args)
            self.assertEqual(ids, plain)
            told = re.findall(r"drafts without (\d+) of 12 sub-layers from now on: ([a-z0-9:,\- ]+); matchness", stderr)
            if told:
                break
        found = stats["pipeline"]["draft_skip"]
        self.assertGreater(found["optimise_jobs"], 0)
        state = found["state"]
        self.assertGreater(state["trials"], 0)
        self.assertLessEqual(state["trials"], found["optimise_jobs"])
        self.assertEqual((state["strip"]["attention"] + state["strip"]["mlp"]).count("#"), state["skipped"])
        self.assertGreater(state["skipped"], 0)
        self.assertRegex(stderr, r"(?m)^skipped by drafts +\d+ of 12 sub-layers; matchness [\d.]+, \d+ trials$")
        self.assertIn("attention  " + state["strip"]["attention"] + "\n", stderr)
        self.assertTrue(told, "no run has found another set")
        self.assertEqual(told[-1], (str(state["skipped"]), state["skipped_set"]))

    def test_a_share_of_nothing_leaves_no_time_for_a_trial(self):
        none = SEARCH.replace("optimise_share = 1", "optimise_share = 0")
        _, stats, _ = self.run_figures(self.config(search=none), "-n", "60")
        self.assertEqual(stats["pipeline"]["draft_skip"]["optimise_jobs"], 0)
        self.assertEqual(stats["pipeline"]["draft_skip"]["state"]["trials"], 0)

    def kept_after(self, trials: int) -> dict:
        """The state on disk once it has so many trials. A trial that other processes hold up uses the share of time
        of those after it in a short answer, so it may take some runs."""
        config = self.config(rest=f'state = "{self.state}"\n', search=SEARCH.replace("window = 4", "window = 16"))
        never_end = [f"--logit-bias={token}=-inf" for token in range(3)]
        args = ["-n", "160", "--temp", "1.2", "--seed", "5", *never_end]
        plain = self.generate("-p", PROMPT, *args, model=self.model)[1]
        for _ in range(200):
            _, stats, ids = self.run_figures(config, *args)
            self.assertEqual(ids, plain)
            if not self.state.exists():
                continue
            kept = json.loads(self.state.read_text())
            self.assertGreaterEqual(stats["pipeline"]["draft_skip"]["state"]["trials"], kept["trials"])
            if kept["trials"] >= trials:
                return kept
        self.fail(f"no state with {trials} trials")

    def test_a_state_is_kept_for_the_next_run(self):
        first = self.kept_after(8)  # a state is written after every eighth trial
        self.assertEqual(first["layers"], LAYERS)
        following = self.kept_after(first["trials"] + 8)
        self.assertGreater(following["proposals"], first["proposals"])

    def test_a_save_that_fails_is_one_warning_and_the_run_goes_on(self):
        folder, stderr = self.folder / "kept", self.folder / "stderr"
        # With these sets few candidates are right: the search does not end, and about ten states are written.
        search = SEARCH.replace("window = 4", "window = 16").replace("skip_ratio = 0.4", "skip_ratio = 0.7")
        config = self.config(rest=f'state = "{folder / "state"}"\n', search=search)
        args = ["-n", "450", "--temp", "1.2", "--seed", "5", *[f"--logit-bias={token}=-inf" for token in range(3)]]
        plain = self.generate("-p", PROMPT, *args, model=self.model)[0]
        said = ""
        for _ in range(200):
            folder.mkdir()
            with open(stderr, "wb") as file:
                run = subprocess.Popen([BINARY, "run", "-m", self.model, "-p", PROMPT, "--config", config, "-q", *args],
                                       stdout=subprocess.PIPE, stderr=file, env=environment())
                while run.poll() is None and not (folder / "state").exists():
                    time.sleep(0.001)
                folder.rename(self.folder / "gone")
                text = run.communicate(timeout=120)[0].decode()
            shutil.rmtree(self.folder / "gone")
            self.assertEqual(run.returncode, 0, stderr.read_text())
            self.assertEqual(text, plain)
            said = stderr.read_text()
            if said:  # otherwise the run ended before its next save
                break
        self.assertEqual(len(re.findall(r"(?m)^paceline: draft\[\d+\] warning: \[draft\] state = ", said)), 1, said)
        self.assertIn(f"{folder}/state", said)
        self.assertIn("No such file or directory", said)

    def test_a_wrong_state_is_refused_with_file_table_and_key(self):
        config = self.config(rest=f'state = "{self.state}"\n')
        deeper = str(write_deeper(TINY, self.folder / "eight.gguf", 8))
        self.state.write_text("garbage")
        stderr = self.run_fails(FAILURE, "run", "-m", self.model, "--config", config, "-p", "x")
        self.assertIn(f"own.toml: [draft] state = {self.state}", stderr)
        self.assertIn("delete the file to search anew", stderr)
        self.state.unlink()
        self.kept_after(1)
        stderr = self.run_fails(FAILURE, "run", "-m", deeper, "--config", config, "-p", "x")
        self.assertIn('"layers" is 6, this search has 8', stderr)
        stderr = self.run_fails(USAGE, "run", "-m", self.model, "--config",
                                self.config(rest='state = "/no/such/folder/state"\n'), "-p", "x")
        self.assertIn("own.toml: [draft] state: /no/such/folder/state", stderr)

    def test_a_simulated_search_keeps_nothing(self):
        costs = str(self.folder / "costs.json")
        self.run_ok("simulate", "-m", self.model, "--measure-costs", costs, "--rows", "1,8", "--contexts", "64",
                    "--neighbours", "0", "--samples", "1", "--measure-threads", "1")
        config = self.config(rest=f'state = "{self.state}"\n')
        self.run_ok("simulate", "-m", self.model, "--config", config, "--costs", costs, "-p", PROMPT, "-n", "160",
                    *[f"--logit-bias={token}=-inf" for token in range(3)])
        self.assertFalse(self.state.exists())

    def test_settings_that_contradict_each_other_are_refused_with_file_key_and_value(self):
        for change, says in (
                ("whole_text = false\n", 'whole_text = false must be true with choose = "search"'),
                ('skip = "mlp:1"\n', 'skip = "mlp:1" is found by choose = "search"'),
                ("interval = 0\n", "interval = 0 must be")):
            with self.subTest(change=change):
                search = SEARCH.replace("interval = 1\n", "") + change
                stderr = self.run_fails(USAGE, "run", "-m", self.model, "--config", self.config(search=search), "-p", "x")
                self.assertIn("own.toml", stderr)
                self.assertIn(says, stderr)


if __name__ == "__main__":
    unittest.main()
