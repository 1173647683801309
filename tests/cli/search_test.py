"""`paceline search`: what it prints is a configuration that runs, and the same on every run."""

import re
import tomllib
import unittest

from paceline_cli import CliTest, TINY


class Search(CliTest):
    QUICK = ("search", "-m", TINY, "-c", "512", "--first", "2", "-n", "8", "--trials", "3", "--skip", "25,50",
             "--keep-first", "0", "--keep-last", "0")

    def test_a_row_for_each_share_and_a_set_of_that_share(self):
        out = self.run_ok(*self.QUICK)
        rows = re.findall(r"^ +(\d+) % +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)", out, re.M)
        self.assertEqual([row[0] for row in rows], ["25", "50"])
        for _, attention, mlp, uniform, found, cost in rows:
            self.assertGreater(int(attention) + int(mlp), 0)
            self.assertGreaterEqual(float(found), float(uniform))
            self.assertLess(float(cost), 1.0)
        self.assertRegex(out, r'skip = "(attn|mlp):[0-9]')

    def test_the_configuration_that_it_writes_runs_with_the_text_of_plain_decoding(self):
        config = self.folder / "found.toml"
        self.run_ok(*self.QUICK, "--out", str(config))
        self.assertEqual(tomllib.loads(config.read_text())["self_draft"]["source"], "skip")
        plain = self.generate("-n", "24", "-p", "one two three")[1]
        self.assertEqual(self.generate("-n", "24", "-p", "one two three", "--config", str(config))[1], plain)

    def test_two_runs_find_the_same(self):
        self.assertEqual(self.run_ok(*self.QUICK), self.run_ok(*self.QUICK))

    def test_wrong_values_are_named(self):
        for wrong, named in ((("--skip", "0"), "--skip"), (("--trials", "0"), "--trials"),
                             (("--keep-first", "500"), "--keep-first"), (("--prompts", "/nonexistent"), "/nonexistent"),
                             (("--out", "/nonexistent/x.toml"), "--out")):
            with self.subTest(wrong=wrong):
                code = 1 if wrong[0] == "--prompts" else 2
                self.assertIn(named, self.run_fails(code, *self.QUICK, *wrong))


if __name__ == "__main__":
    unittest.main()
