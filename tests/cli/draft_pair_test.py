"""--draft-model: folders and GGUF files as drafts of each other, by name, with padding; refused by token."""

import json
import shutil
import unittest
from pathlib import Path

import gguf_vocabulary
from paceline_cli import PROMPT, TINY, CliTest, environment

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
NAME = "llama-untied-f16"  # a folder, and a GGUF file with the same weights and tokens
GGUF = str(FIXTURES / "models" / f"{NAME}.gguf")
ARGS = ["-p", "Hello, world", "-n", "24", "-t", "1", "--raw"]
METHOD = ["--method", "speculative"]


class DraftPair(CliTest):
    def with_tokens_of_the_file(self) -> str:
        """The folder with the tokens of the GGUF file: it has two added tokens instead of the last merges."""
        folder = Path(shutil.copytree(FIXTURES / "folders" / NAME, self.folder / NAME))
        fields, _ = gguf_vocabulary.read(Path(GGUF).read_bytes())
        tokens = [token.decode() for token in fields[gguf_vocabulary.TOKENS][1][1]]
        document = json.loads((folder / "tokenizer.json").read_text())
        document["added_tokens"] = document["added_tokens"][:3]
        document["model"]["vocab"] = {token: i for i, token in enumerate(tokens)}
        document["model"]["merges"] = [merge.decode() for merge in fields[gguf_vocabulary.MERGES][1][1]]
        (folder / "tokenizer.json").write_text(json.dumps(document))
        return str(folder)

    def check_pair(self, target: str, draft: str, args: list[str], **env: str) -> dict:
        """The text is plain decoding's, and candidates of the draft are in it. Returns the figures."""
        _, plain, _ = self.generate(*args, model=target)
        _, ids, stats = self.generate(*METHOD, "--draft-model", draft, *args, model=target, env=environment(**env))
        self.assertEqual(ids, plain)
        self.assertGreater(stats["pipeline"]["draft_forwards"], 0)
        return stats["pipeline"]

    def cached(self, name: str) -> str:
        """A cache of the hub with the folder in it; for HF_HUB_CACHE."""
        model = self.folder / "hub" / ("models--" + name.replace("/", "--"))
        (model / "refs").mkdir(parents=True)
        (model / "refs" / "main").write_text("c0ffee")
        shutil.copytree(self.with_tokens_of_the_file(), model / "snapshots" / "c0ffee")
        return str(self.folder / "hub")

    def test_folders_and_gguf_files_draft_for_each_other(self):
        folder = self.with_tokens_of_the_file()
        for target, draft in ((folder, GGUF), (GGUF, folder), (folder, folder)):
            for sampling in ([], ["--temp", "0.8", "--seed", "3"]):
                with self.subTest(target=target, draft=draft, sampling=sampling):
                    self.assertGreater(self.check_pair(target, draft, [*ARGS, *sampling])["accepted_tokens"], 0)

    def test_a_draft_is_found_by_its_name_in_the_cache_of_the_hub(self):
        cache = self.cached("owner/small")
        self.check_pair(GGUF, "owner/small", ARGS, HF_HUB_CACHE=cache)
        config = self.folder / "p.toml"
        config.write_text('[[stage]]\nname = "d"\nrole = "draft"\n[[stage]]\nname = "t"\nrole = "segment"\n'
                          '[draft]\nsource = "model"\nmodel = "owner/small"\ngamma = 4\n')
        self.run_ok("run", "-m", GGUF, "--config", str(config), *ARGS, env=environment(HF_HUB_CACHE=cache))
        report = self.folder / "report.json"
        self.run_ok("check", "-m", GGUF, *METHOD, "--draft-model", "owner/small", "--first", "1", "-n", "8", "-t", "1",
                    "--json", str(report), env=environment(HF_HUB_CACHE=cache))
        said = self.run_fails(1, "run", "-m", GGUF, *METHOD, "--draft-model", "owner/other", *ARGS,
                              env=environment(HF_HUB_CACHE=cache))
        self.assertIn("hf download owner/other", said)

    def test_a_target_with_padding_takes_a_draft_without_and_never_its_padding(self):
        padded = self.folder / "padded.gguf"
        padded.write_bytes(gguf_vocabulary.padded(Path(TINY).read_bytes(), 64))
        args = ["-p", PROMPT, "-n", "40", "-t", "1"]
        self.check_pair(str(padded), TINY, args)
        self.check_pair(TINY, str(padded), args)
        self.check_pair(str(padded), str(padded), args)

    def test_other_tokens_are_refused_with_the_first_differences(self):
        folder = Path(self.with_tokens_of_the_file()).rename(self.folder / "other")
        document = json.loads((folder / "tokenizer.json").read_text())
        vocabulary = document["model"]["vocab"]
        names = sorted(vocabulary, key=vocabulary.get)
        for a, b in ((40, 41), (60, 61)):
            vocabulary[names[a]], vocabulary[names[b]] = b, a
        (folder / "tokenizer.json").write_text(json.dumps(document))
        said = self.run_fails(2, "run", "-m", GGUF, *METHOD, "--draft-model", str(folder), *ARGS)
        self.assertIn("other does not fit ", said)
        self.assertRegex(said, r"4 of \d+ tokens differ, first: token 40 is '.*', the target's is '.*' \('.*' is the "
                               r"target's token 41\); token 41 is .*; token 60 is ")

    def test_a_draft_whose_tokens_are_not_known_is_refused_with_the_reason(self):
        folder = Path(self.with_tokens_of_the_file())
        (folder / "tokenizer.json").unlink()
        said = self.run_fails(2, "run", "-m", GGUF, *METHOD, "--draft-model", str(folder), *ARGS)
        self.assertIn("is not known: the folder has no tokenizer.json", said)


if __name__ == "__main__":
    unittest.main()
