"""`paceline plan`: every method is listed, the best are tried, and `--method auto` goes by the trials."""

import json
import re
import unittest

from paceline_cli import PROMPT, TINY, CliTest, environment, paceline

ROW = re.compile(r"^(\S+) +(\d+) +(\d+) MB +([\d.]+|-) +([\d.]+|-)", re.M)


class Plan(CliTest):
    def plan(self, *args: str, code: int = 0):
        """With a cache folder of the test's own."""
        done = paceline("plan", "-m", TINY, *args, env=environment(XDG_CACHE_HOME=str(self.folder), PACELINE_METHOD=None))
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done.stdout.decode(), done.stderr.decode()

    def methods(self) -> list[str]:
        listed = self.run_ok("run", "--list-methods", "all")
        return [line.split()[0] for line in listed.splitlines() if re.match(r"[a-z]", line)]

    def records(self) -> list[dict]:
        return [json.loads(path.read_text()) for path in (self.folder / "paceline" / "methods").glob("*.json")]

    def test_every_method_has_a_row_or_a_reason(self):
        table, _ = self.plan("--trials", "0")
        refused = re.findall(r"^cannot decode it here: ([^:]+): \S", table, re.M)
        rows = [name for name, *_ in ROW.findall(table)]
        self.assertEqual(sorted(rows + refused), sorted(set(self.methods()) - {"plain"}))
        self.assertRegex(table.splitlines()[-1], r"^--method auto takes \S+: ")
        self.assertEqual(self.records(), [])

    def test_trials_are_what_auto_goes_by(self):
        table, said = self.plan("--trials", "2", "--first", "2", "-n", "32")
        tried = re.findall(r"^trying (\S+) \.\.\.", said, re.M)
        measured = [name for name, *_, gain in ROW.findall(table) if gain != "-"]
        self.assertEqual(tried[0], "autoregressive")  # a measure of the others
        self.assertEqual(len(tried), 3)
        self.assertEqual(sorted(measured), sorted(tried))
        record, = self.records()
        self.assertEqual(sorted(record["methods"]), sorted(tried))
        record["methods"][tried[1]] |= {"gain": 1.0, "runs": 9}
        record["methods"][tried[2]] |= {"gain": 9.0, "runs": 9}
        path, = (self.folder / "paceline" / "methods").glob("*.json")
        path.write_text(json.dumps(record))
        config = self.folder / "best.toml"
        table, _ = self.plan("--trials", "0", "-o", str(config))
        self.assertIn(f"--method auto takes {tried[2]}: 9.00 times plain decoding", table)
        plain = self.generate("-n", "24", "-p", PROMPT)[1]
        self.assertEqual(self.generate("-n", "24", "-p", PROMPT, "--config", str(config))[1], plain)

    def test_without_the_cache_nothing_is_read_or_kept(self):
        self.plan("--trials", "1", "--first", "1", "-n", "16", "--no-cache")
        self.assertEqual(self.records(), [])

    def test_wrong_values_are_named(self):
        for wrong, named in ((("--trials", "-1"), "--trials"), (("--acceptance", "2"), "--acceptance"),
                             (("--first", "0"), "--first"), (("-n", "2"), "--n-predict"),
                             (("--random", "tiny"), "--random"), (("-o", "/nonexistent/x.toml"), "--out"),
                             (("--prompts", "/nonexistent"), "/nonexistent")):
            with self.subTest(wrong=wrong):
                code = 1 if wrong[0] == "--prompts" else 2
                self.assertIn(named, self.plan("--trials", "0", *wrong, code=code)[1])


if __name__ == "__main__":
    unittest.main()
