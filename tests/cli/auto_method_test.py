"""`--method auto`: what runs without --method and --config decode with, what they say, and what they remember."""

import json
import os
import unittest

from paceline_cli import PROMPT, TINY, CliTest, environment, paceline
from serve_server import Server, chat_body, wait_until

ANSWER = ["run", "-m", TINY, "-p", PROMPT, "-n", "60"]


class AutoMethodTest(CliTest):
    def run_auto(self, *args: str, code: int = 0):
        """Without a method in the environment, with a cache folder of the test's own."""
        done = paceline(*args, env=environment(PACELINE_METHOD=None, XDG_CACHE_HOME=str(self.folder)))
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done.stdout.decode(), done.stderr.decode()

    def records(self) -> list[dict]:
        folder = self.folder / "paceline" / "methods"
        return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))] if folder.exists() else []

    def test_the_choice_is_said_and_the_text_is_that_of_plain_decoding(self):
        plain, quiet = self.run_auto(*ANSWER, "--method", "plain")
        self.assertNotIn("method plain", quiet)
        text, said = self.run_auto(*ANSWER)
        self.assertEqual(text, plain)
        self.assertRegex(said, r"paceline run: method \S+: ")
        text, said = self.run_auto(*ANSWER, "--quiet")
        self.assertEqual((text, said), (plain, ""))

    def test_named_methods_and_the_variable_are_obeyed(self):
        stats = self.folder / "stats.json"
        for args, method in ((["--method", "prompt-lookup"], "prompt-lookup"), ([], "plain")):
            done = paceline(*ANSWER, "--stats", str(stats), *args,
                            env=environment(PACELINE_METHOD="plain", XDG_CACHE_HOME=str(self.folder)))
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.assertEqual(json.loads(stats.read_text())["method"], method)
        done = paceline(*ANSWER, env=environment(PACELINE_METHOD="no-such-method"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("no-such-method", done.stderr.decode())

    def test_runs_are_remembered_and_the_method_that_gains_most_is_chosen(self):
        self.run_auto(*ANSWER)
        self.assertEqual(len(self.records()), 1)
        record = self.records()[0]
        (usual, rate), = record["methods"].items()
        self.assertGreater(rate["gain"], 0)
        record["methods"] = {usual: rate | {"gain": 1.0}, "fold": rate | {"gain": 1.5, "runs": 3}}
        path, = (self.folder / "paceline" / "methods").glob("*.json")
        path.write_text(json.dumps(record))
        said = self.run_auto(*ANSWER)[1]
        self.assertIn("method fold: 1.50 times plain decoding in 3 earlier runs here", said)
        path.write_text(json.dumps(record)[:40])  # damaged: as if nothing were known
        self.assertIn(f"method {usual}: nothing is known", self.run_auto(*ANSWER)[1])

    def test_short_answers_are_not_remembered(self):
        self.run_auto("run", "-m", TINY, "-p", PROMPT, "-n", "8")
        self.assertEqual(self.records(), [])

    def test_what_cannot_be_remembered_does_not_matter(self):
        (self.folder / "paceline").write_text("not a folder")
        self.run_auto(*ANSWER)

    def test_figures_and_traces_get_stages(self):
        trace = self.folder / "trace.json"
        said = self.run_auto(*ANSWER, "--figures", "--trace", str(trace))[1]
        self.assertIn("mean acceptance length", said)
        self.assertTrue(json.loads(trace.read_text()))

    def serve(self, *args: str) -> Server:
        return Server(*args, variables={"XDG_CACHE_HOME": str(self.folder)})

    def test_a_server_remembers_what_its_requests_showed_for_as_many_at_a_time(self):
        with self.serve("--method", "prompt-lookup", "--requests", "2") as server:
            self.assertEqual(server.chat(ignore_eos=True, max_tokens=400).status, 200)
        record, = self.records()
        self.assertTrue(record["key"].endswith(" requests at most 2"), record["key"])
        rate = record["methods"]["prompt-lookup"]
        self.assertGreater(rate["gain"], 0)
        self.assertEqual(rate["runs"], 1)
        record["methods"] = {"prompt-lookup+draft": rate | {"gain": 1.0}, "prompt-lookup": rate | {"gain": 1.5, "runs": 3}}
        path, = (self.folder / "paceline" / "methods").glob("*.json")
        path.write_text(json.dumps(record))
        with self.serve("--method", "auto", "--requests", "2") as server:
            said = "\n".join(server.lines)
        self.assertIn("method prompt-lookup: 1.50 times plain decoding in 3 earlier runs here", said)
        with self.serve("--method", "auto", "--requests", "1") as server:
            said = "\n".join(server.lines)
        self.assertIn("nothing is known of this model here", said)

    def plant(self, gains: dict[str, float]) -> None:
        """Gains in the one record that is there, as of three runs each."""
        path, = (self.folder / "paceline" / "methods").glob("*.json")
        record = json.loads(path.read_text())
        rate = next(iter(record["methods"].values()))
        record["methods"] = {name: rate | {"gain": gain, "runs": 3} for name, gain in gains.items()}
        path.write_text(json.dumps(record))

    def test_a_server_whose_record_is_wrong_changes_its_method_while_it_runs(self):
        long = {"ignore_eos": True, "max_tokens": 400}
        with self.serve("--method", "prompt-lookup", "--requests", "2", "--replan", "0.1") as server:
            for _ in range(8):
                self.assertEqual(server.chat(**long).status, 200)
            self.assertEqual(server.get("/health").json["method_changes"], 0)  # it was named
        # No method reaches such gains, so each disappoints, whatever the machine's speed.
        self.plant({"prompt-lookup+draft": 1.0, "prompt-lookup": 1000.0, "speculative": 900.0})
        with self.serve("--method", "auto", "--requests", "2", "--replan", "0.1", "--resume", "3600") as server:
            self.assertEqual(server.get("/props").json["method"], "prompt-lookup")
            before = server.post("/v1/chat/completions", chat_body("Why is the sky blue?", **long, stream=True, paceline={"resume": True}))
            text = server.chat(**long).json["choices"][0]["message"]["content"]

            def changed() -> bool:
                self.assertEqual(server.chat(**long).json["choices"][0]["message"]["content"], text)
                return server.get("/health").json["method_changes"] > 0

            wait_until(changed, "the method has changed")
            kept = server.get(f"/v1/streams/{before.headers['X-Stream-Id']}?from=0")
            self.assertEqual(kept.content, before.content)
            self.assertEqual(server.chat(**long).json["choices"][0]["message"]["content"], text)
            props = server.get("/props").json
            self.assertGreaterEqual(server.metric("paceline_method_changes_total"), 1)
            self.assertGreaterEqual(props["method_changes"], 1)
            said = "\n".join(server.lines)
        self.assertIn("method speculative instead of prompt-lookup: 900.00 times plain decoding", said)
        self.assertIn("cached prompts are computed again", said)

    def test_a_method_that_cannot_be_started_is_followed_by_another(self):
        broken = self.folder / "draft.gguf"
        broken.write_bytes(b"no model")
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one core: the first choice has no draft model")
        plain = self.run_auto(*ANSWER, "--method", "plain")[0]
        text, said = self.run_auto(*ANSWER, "--draft-model", str(broken))
        self.assertEqual(text, plain)
        self.assertIn("could not be started", said)


if __name__ == "__main__":
    unittest.main()
