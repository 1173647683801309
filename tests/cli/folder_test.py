"""Hugging Face folders: the text of the GGUF file of the same weights, in processes, with parts, by name."""

import json
import os
import shutil
import unittest
from pathlib import Path

import part_files
from paceline_cli import CliTest, environment, paceline

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
NAME = "llama-untied-f16"  # four shards; its GGUF file has the same weights
FOLDER = str(FIXTURES / "folders" / NAME)
GGUF = str(FIXTURES / "models" / f"{NAME}.gguf")
PROMPT = ["-p", "Hello, world", "-n", "16", "-t", "1", "--raw"]


class Folder(CliTest):
    def ids(self, *args: str, model: str = FOLDER, **env: str) -> list[int]:
        path = self.folder / "ids.json"
        prompt = [*PROMPT[:2], *PROMPT[4:]] if "-n" in args else PROMPT
        self.run_ok("run", "-m", model, *prompt, "--ids", str(path), "-q", "--no-cache", *args,
                    env=environment(**env))
        return json.loads(path.read_text())

    def cached(self, name: str = "owner/tiny") -> str:
        """A cache of the hub with the model in it; the folder for HF_HUB_CACHE."""
        model = self.folder / "hub" / ("models--" + name.replace("/", "--"))
        snapshot, blobs = model / "snapshots" / "c0ffee", model / "blobs"
        for folder in (snapshot, blobs, model / "refs"):
            folder.mkdir(parents=True)
        (model / "refs" / "main").write_text("c0ffee")
        for file in Path(FOLDER).iterdir():
            shutil.copy(file, blobs / file.name)
            (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
        return str(self.folder / "hub")

    def test_every_method_commits_the_tokens_of_plain_decoding(self):
        plain = self.ids()
        self.assertEqual(len(plain), 16)
        for method in ("speculative", "pearl", "four-stages", "prompt-lookup"):
            with self.subTest(method):
                self.assertEqual(self.ids("--method", method), plain)

    def test_a_larger_context_than_the_original_one_takes_the_other_rope_in_every_process(self):
        texts = set()
        for name in (FIXTURES / "folders" / "phi3-f16", FIXTURES / "models" / "phi3-f16.gguf"):
            short = self.ids(model=str(name))
            self.assertEqual(self.ids("-c", "96", model=str(name)), short)
            longer = self.ids("-c", "128", model=str(name))
            self.assertNotEqual(longer, short)
            for method in (["speculative"], ["four-stages"], ["speculative", "--draft-model", str(name)]):
                self.assertEqual(self.ids("-c", "128", "--method", *method, model=str(name)), longer)
            for context in ("64", "128"):  # the same model agrees with itself only with the same rope
                _, _, stats = self.generate(*PROMPT, "-c", context, "--config", self.as_configured("speculative"),
                                            "--draft-model", str(name), "--no-cache", "-q", model=str(name))
                figures = stats["pipeline"]
                self.assertGreater(figures["accepted_tokens"], 0.9 * figures["candidates"])
            said = self.run_fails(2, "run", "-m", str(name), *PROMPT, "-c", "257")
            self.assertIn("-c 257 is more than the model's context of 256 tokens", said)
            texts.add((tuple(short), tuple(longer)))
            bench = ["bench", "-m", str(name), "-p", "8", "-n", "0", "-r", "1", "-t", "1", "-d"]
            self.run_ok(*bench, "200")
            self.assertIn("the model's context has 256", self.run_fails(2, *bench, "250"))
        self.assertEqual(len(texts), 1, "the file has the folder's weights")

    def test_weights_are_packed_on_load_like_those_of_a_gguf_file(self):
        texts = set()
        for dtype in ("auto", "f32", "bf16", "int8", "q4"):
            args = ["--dtype", dtype, "--kv-dtype", "f32"]
            self.run_ok("bench", "-m", FOLDER, "--dtype", dtype, "-t", "1", "-p", "8", "-n", "2", "-r", "1",
                        "--no-cache")
            texts.add(tuple(self.ids(*args)))
        self.assertGreater(len(texts), 1, "a type is seen in the text of random weights")

    def test_the_gguf_file_of_the_same_weights_says_the_same_with_a_lora_too(self):
        folder = str(shutil.copytree(FOLDER, self.folder / "no-bos"))
        tokenizer = json.loads(Path(folder, "tokenizer.json").read_text())
        tokenizer["post_processor"] = None  # which begins a text with a BOS, as the GGUF file does not
        Path(folder, "tokenizer.json").write_text(json.dumps(tokenizer))
        self.assertEqual(self.ids(model=folder), self.ids(model=GGUF))
        merged = []
        for model in (folder, GGUF):
            target = json.loads(self.run_ok("inspect", model, "-o", "json"))["fingerprint"]
            part = part_files.lora(Path(GGUF).read_bytes(), target)
            path = part_files.put(self.folder / f"part{len(merged)}", "lora", part)
            merged.append(self.ids("--lora", str(path), model=model))
        self.assertEqual(merged[0], merged[1])
        self.assertNotEqual(merged[0], self.ids(model=folder), "the LoRA is seen in the text")

    def test_inspect_says_what_a_folder_is(self):
        said = json.loads(self.run_ok("inspect", FOLDER, "-o", "json"))
        of_gguf = json.loads(self.run_ok("inspect", GGUF, "-o", "json"))
        self.assertEqual(said["use"], "runs")
        for key in ("architecture", "parameters", "layers", "vocab_size", "rope_scaling", "packed_bytes"):
            self.assertEqual(said[key], of_gguf[key], key)
        self.assertEqual({t["name"] for t in said["tensors"]}, {t["name"] for t in of_gguf["tensors"]})
        self.assertEqual((said["format"], said["stated_architecture"]), ("Hugging Face folder", "LlamaForCausalLM"))
        self.assertEqual(said["remarks"], [])
        self.assertIn("cannot say whether", of_gguf["remarks"][0])
        window = self.run_ok("inspect", str(FIXTURES / "folders" / "mistral-window-bf16"))
        self.assertIn("remark        the context is 48 of 256 tokens", window)
        self.assertIn("context       48 tokens", window)
        plain = self.run_ok("inspect", str(FIXTURES / "folders" / "qwen2-f16"))
        self.assertIn("runs with --raw only: there is no chat template (chat_template.jinja", plain)
        self.assertNotIn("tokenizer.chat_template", plain)
        self.assertIn("without config.json", self.run_fails(1, "inspect", str(FIXTURES / "folders")))

    def test_inspect_says_why_a_folder_cannot_run(self):
        folder = Path(shutil.copytree(FOLDER, self.folder / "strange"))
        config = json.loads((folder / "config.json").read_text())
        config["architectures"], config["model_type"] = ["MambaForCausalLM"], "mamba"
        (folder / "config.json").write_text(json.dumps(config))
        said = self.run_fails(1, "inspect", str(folder))
        self.assertIn("cannot run: ", said)
        self.assertIn('config.json: architecture "MambaForCausalLM" (architectures) is not supported', said)

    def test_a_model_of_the_hubs_cache_is_found_by_its_name(self):
        cache = self.cached()
        self.assertEqual(self.ids(model="owner/tiny", HF_HUB_CACHE=cache), self.ids())
        self.assertEqual(self.ids("--method", "pearl", model="owner/tiny", HF_HUB_CACHE=cache), self.ids())
        home = Path(cache).rename(self.folder / "home")
        (self.folder / "home2").mkdir()
        home.rename(self.folder / "home2" / "hub")
        found = self.ids(model="owner/tiny", HF_HUB_CACHE="", HF_HOME=str(self.folder / "home2"))
        self.assertEqual(found, self.ids())
        said = self.run_fails(1, "run", "-m", "owner/other", "-p", "x", env=environment(HF_HUB_CACHE=cache))
        self.assertIn("hf download owner/other", said)

    def test_generation_config_draws_as_the_folder_says(self):
        stated = ["--temp", "0.6", "--top-p", "0.95", "--top-k", "20"]
        self.assertEqual(self.ids("--generation-config", "--seed", "5"), self.ids(*stated, "--seed", "5"))
        said = self.run_fails(2, "run", "-m", GGUF, "-p", "x", "--raw", "--generation-config")
        self.assertIn("has no generation_config.json", said)

    def with_generation(self, **stated) -> str:
        folder = self.folder / f"model{len(os.listdir(self.folder))}"
        shutil.copytree(FOLDER, folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": []} | stated))
        return str(folder)

    def test_a_repetition_penalty_of_the_folder_counts_the_whole_text(self):
        model = self.with_generation(repetition_penalty=5.0)
        longer = ["-n", "120", *(f"--logit-bias={token}=-inf" for token in (0, 1, 2))]  # no end
        whole = self.ids(*longer, "--repeat-penalty", "5", "--penalty-window", "-1", model=model)
        window = self.ids(*longer, "--repeat-penalty", "5", model=model)
        self.assertNotEqual(whole, window)
        own = [*longer, "--generation-config"]
        self.assertEqual(self.ids(*own, model=model), whole)
        self.assertEqual(self.ids(*own, "--method", "prompt-lookup", model=model), whole)
        self.assertEqual(self.ids(*own, "--penalty-window", "64", model=model), window)
        self.assertEqual(self.ids(*own, "--repeat-penalty", "5", model=model), window)
        self.assertEqual(self.ids(*own, "--repeat-penalty", "1", model=model), self.ids(*longer, model=model))

    def test_an_option_that_is_given_counts_also_with_the_value_of_its_default(self):
        model = self.with_generation(do_sample=True, temperature=3.0, top_k=3, top_p=0.2, min_p=0.5)
        drawn = ["--generation-config", "--seed", "5"]
        self.assertEqual(self.ids(*drawn, "--temp", "0", model=model), self.ids(model=model))
        plain = ["--temp", "3", "--seed", "5"]
        self.assertEqual(self.ids(*drawn, "--top-k", "0", "--top-p", "1", "--min-p", "0", model=model),
                         self.ids(*plain, model=model))
        self.assertEqual(self.ids(*drawn, "--top-p", "1", "--min-p", "0", model=model),
                         self.ids(*plain, "--top-k", "3", model=model))

    def test_a_temperature_that_is_given_draws_with_the_filters_of_the_folder(self):
        model = self.with_generation(top_k=3)
        self.assertEqual(self.ids("--generation-config", model=model), self.ids(model=model))
        self.assertEqual(self.ids("--generation-config", "--temp", "3", "--seed", "5", model=model),
                         self.ids("--top-k", "3", "--temp", "3", "--seed", "5", model=model))
        self.assertEqual(self.ids("--generation-config", "--temp", "3", "--seed", "5", model=self.with_generation()),
                         self.ids("--top-k", "50", "--temp", "3", "--seed", "5", model=model))

    def test_keys_that_change_the_text_elsewhere_and_not_here_are_named(self):
        model = self.with_generation(no_repeat_ngram_size=3, suppress_tokens=[5], max_new_tokens=7, typical_p=0.5,
                                     num_beams=1, min_length=0, guidance_scale=1.0, bad_words_ids=[],
                                     renormalize_logits=True, use_cache=False, pad_token_id=0)
        args = ["run", "-m", model, *PROMPT, "--no-cache"]
        said = paceline(*args, "--generation-config").stderr.decode()
        self.assertIn("the file also has no_repeat_ngram_size, suppress_tokens, max_new_tokens:", said)
        drawn = paceline(*args, "--generation-config", "--temp", "1").stderr.decode()
        self.assertIn("suppress_tokens, typical_p, max_new_tokens:", drawn)
        self.assertNotIn("the file also has", paceline(*args).stderr.decode())
        self.assertNotIn("the file also has", paceline(*args, "-q", "--generation-config").stderr.decode())
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"prompt": "Hi"}')
        said = paceline("generate", "-m", model, "--generation-config", "-n", "2", "-t", "1", "--no-cache",
                        "--prompts", str(prompts), "-o", str(self.folder / "shards")).stderr.decode()
        self.assertIn("the file also has no_repeat_ngram_size", said)

    def test_a_value_that_cannot_be_drawn_with_names_the_file_and_not_the_help(self):
        for stated, said in (({"top_p": 0}, "top_p is 0, allowed is above 0, up to 1 (off); --top-p on the command line"),
                             ({"temperature": -1}, "temperature is -1, allowed is"),
                             ({"top_k": -1}, "top_k is -1, allowed is"), ({"min_p": 2}, "min_p is 2, allowed is"),
                             ({"repetition_penalty": 0}, "repetition_penalty is 0, allowed is")):
            with self.subTest(stated=stated):
                model = self.with_generation(do_sample=True, **stated)
                text = self.run_fails(1, "run", "-m", model, *PROMPT, "--generation-config")
                self.assertIn(f"{model}/generation_config.json: {said}", text)
                self.assertNotIn("--help", text)
                self.ids(model=model)  # nothing draws with it
        model = self.with_generation(do_sample=True, top_p=0)
        self.ids("--generation-config", "--top-p", "0.9", model=model)
        self.ids("--generation-config", "--temp", "0", model=model)
        above = self.with_generation(do_sample=True, top_p=1.5)  # no filter, as in transformers
        self.assertEqual(self.ids("--generation-config", "--seed", "5", model=above),
                         self.ids("--temp", "1", "--top-k", "50", "--seed", "5", model=above))

    def test_tokenize_begins_where_the_folder_says(self):
        ids = json.loads(self.run_ok("tokenize", "-m", FOLDER, "-o", "ids", "Hello, world"))
        golden = json.loads((FIXTURES / "folders" / f"{NAME}.golden.json").read_text())
        self.assertEqual([1, *ids], dict(golden["texts"])["Hello, world"])


if __name__ == "__main__":
    unittest.main()
