"""paceline serve: what users of llama.cpp's server ask for, and figures in the forms of other servers."""

import os
import signal
import tempfile
import unittest
from pathlib import Path

from paceline_cli import CliTest, PROMPT, pipeline_toml
from serve_server import Server, chat_body, events_of, wait_until

LONG = {"ignore_eos": True, "max_tokens": 200}
VLLM = {"mean_acceptance_length", "draft_acceptance_rate", "acceptance_histogram", "num_spec_steps",
        "num_accepted_draft_tokens", "num_draft_tokens", "num_spec_tokens"}


class Native(CliTest):
    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server("--method", "prompt-lookup", "--requests", "4", "--alias", "tiny")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def native(self, prompt=PROMPT, **fields):
        return self.server.post("/completion", {"prompt": prompt, "temperature": 0, **fields})

    def test_a_completion_has_the_text_of_the_openai_endpoint(self):
        ours = self.server.post("/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 40}).json
        text = ours["choices"][0]["text"]
        whole = self.native(n_predict=40, return_tokens=True).json
        self.assertEqual(whole["content"], text)
        self.assertEqual((whole["stop"], whole["model"], whole["truncated"]), (True, "tiny", False))
        self.assertEqual(whole["tokens_evaluated"], ours["usage"]["prompt_tokens"])
        self.assertEqual(whole["tokens_predicted"], ours["usage"]["completion_tokens"])
        self.assertEqual(len(whole["tokens"]), whole["tokens_predicted"])
        self.assertEqual(self.server.post("/detokenize", {"tokens": whole["tokens"]}).json["content"][:len(text)],
                         text)
        self.assertEqual(self.native(n_predict=40).json["tokens"], [])
        self.assertEqual(self.server.post("/v1/completion", {"prompt": PROMPT, "n_predict": 1}).status, 200)

    def test_a_stream_has_parts_and_an_end(self):
        whole = self.native(n_predict=40, ignore_eos=True, return_tokens=True).json
        answer = self.native(n_predict=40, ignore_eos=True, stream=True)
        self.assertNotIn("[DONE]", answer.text)
        *parts, end = answer.events
        self.assertEqual("".join(part["content"] for part in parts), whole["content"])
        self.assertEqual([part["stop"] for part in parts], [False] * len(parts))
        self.assertEqual(sum((part["tokens"] for part in [*parts, end]), []), whole["tokens"])
        self.assertEqual((end["stop"], end["stop_type"], end["content"]), (True, "limit", ""))
        self.assertEqual(end["timings"]["predicted_n"], 40)

    def test_its_fields_have_the_names_of_llama_cpp(self):
        settings = self.native(n_predict=3, repeat_penalty=1.5, repeat_last_n=8, seed=-1, min_p=0.1,
                               mirostat=0, typical_p=1.0, samplers=[], cache_prompt=False).json["generation_settings"]
        self.assertEqual((settings["n_predict"], settings["repeat_penalty"], settings["repeat_last_n"]), (3, 1.5, 8))
        self.assertEqual(self.native(n_predict=-1, seed=5).json["generation_settings"]["n_predict"], -1)
        for name, value in (("mirostat", 2), ("typical_p", 0.5), ("samplers", ["top_k"]), ("n_probs", 3),
                            ("logprobs", 1), ("dry_multiplier", 0.8), ("t_max_predict_ms", 100)):
            refused = self.native(**{name: value})
            self.assertEqual((refused.status, refused.json["error"]["param"]), (501, name))
        refused = self.native(stream=True, paceline={"resume": True})
        self.assertEqual((refused.status, refused.json["error"]["param"]), (400, "paceline.resume"))

    def test_stop_says_why_it_ended(self):
        text = self.native(n_predict=40, ignore_eos=True).json["content"]
        stopped = self.native(n_predict=40, ignore_eos=True, stop=[text[10:14]]).json
        self.assertEqual((stopped["stop_type"], stopped["stopping_word"]), ("word", text[10:14]))
        self.assertEqual(stopped["content"], text[:text.find(text[10:14])])

    def test_prompts_are_texts_ids_mixtures_and_lists(self):
        ids = self.server.post("/tokenize", {"content": PROMPT, "add_special": True}).json["tokens"]
        text = self.native(n_predict=8).json["content"]
        self.assertEqual(self.native(ids, n_predict=8).json["content"], text)
        self.assertEqual(self.native({"prompt_string": PROMPT}, n_predict=8).json["content"], text)
        both = self.native([PROMPT, ids], n_predict=8).json
        self.assertEqual([each["content"] for each in both], [text, text])
        self.assertEqual([each["index"] for each in both], [0, 1])
        self.assertEqual(self.native([1, 2, "one two", 3], n_predict=2).status, 200)
        for prompt, param in ((None, "prompt"), ([], "prompt"), (3, "prompt"), ([1, None], "prompt[1]"),
                              ({"prompt_string": "x", "multimodal_data": ["x"]}, "prompt.multimodal_data")):
            refused = self.native(prompt)
            self.assertEqual((refused.status, refused.json["error"]["param"]), (400, param), prompt)

    def test_a_bias_is_also_a_list_of_ids_or_texts(self):
        first = self.native(n_predict=1, return_tokens=True).json["tokens"][0]
        text = self.server.post("/detokenize", {"tokens": [first]}).json["content"]
        for bias in ([[first, False]], [[first, -100]], {str(first): -100}, [[text, -100]], {text: False}):
            self.assertNotEqual(self.native(n_predict=1, return_tokens=True, logit_bias=bias).json["tokens"][0],
                                first, bias)
        for wrong, param in (([first], "logit_bias[0]"), ([[first, "x"]], "logit_bias[0]"),
                             ([[-1, 1]], "logit_bias[0][0]"), ({"5": "x"}, "logit_bias[0]")):
            self.assertEqual(self.native(logit_bias=wrong).json["error"]["param"], param)

    def test_response_fields_choose_what_comes_back(self):
        chosen = self.native(n_predict=4, response_fields=["content", "generation_settings/n_predict", "nothing"])
        self.assertEqual(list(chosen.json), ["content", "generation_settings/n_predict"])
        self.assertEqual(chosen.json["generation_settings/n_predict"], 4)

    def test_slots_say_which_places_are_taken(self):
        self.server.wait_metric("paceline_requests_running", 0)  # answers of other tests: figures lag behind
        slots = self.server.get("/slots").json
        self.assertEqual([(slot["id"], slot["is_processing"]) for slot in slots], [(i, False) for i in range(4)])
        self.assertEqual(self.server.get("/slots?fail_on_no_slot=1").status, 200)
        try:
            self.server.stop_stages()
            streams = [self.server.stream(chat_body("x", **LONG)) for _ in range(4)]
            self.server.wait_metric("paceline_requests_running", 4)
            self.assertTrue(all(slot["is_processing"] for slot in self.server.get("/slots").json))
            refused = self.server.get("/slots?fail_on_no_slot=1")
            self.assertEqual((refused.status, refused.json["error"]["code"]), (503, "no_slot_available"))
            self.assertEqual(self.server.get("/v1/slots?fail_on_no_slot=0").status, 200)
        finally:
            self.server.continue_stages()
        for stream in streams:
            stream.rest()

    def test_tokenizer_info_has_what_evaluations_read(self):
        info = self.server.get("/tokenizer_info").json
        props = self.server.get("/props").json
        for name in ("eos_token", "bos_token", "chat_template"):
            self.assertEqual(info[name] or "", props[name])
        self.assertEqual(self.server.get("/v1/tokenizer_info").json, info)


class Figures(CliTest):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        config = Path(folder.name) / "always.toml"  # its draft works, whether it pays here or not
        config.write_text(pipeline_toml(1, True) + '[schedule]\ncontroller = "off"\n')
        cls.server = Server("--config", str(config), "--requests", "4")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def check(self, response: dict) -> None:
        usage, own, timings = response["usage"], response["paceline"], response["timings"]
        self.assertEqual(timings["predicted_n"], usage["completion_tokens"])
        self.assertEqual(timings["prompt_n"] + timings["cache_n"], usage["prompt_tokens"])
        self.assertEqual(timings["cache_n"], own["cached_tokens"])
        self.assertEqual((timings["draft_n"], timings["draft_n_accepted"]), (own["drafted"], own["accepted"]))
        for part in ("prompt", "predicted"):
            self.assertGreater(timings[f"{part}_ms"], 0)
            self.assertAlmostEqual(timings[f"{part}_per_second"],
                                   1e3 * timings[f"{part}_n"] / timings[f"{part}_ms"], places=3)
        spec = response["metrics"]["speculative_decoding"]
        self.assertEqual(set(spec), VLLM)
        self.assertEqual((spec["num_draft_tokens"], spec["num_accepted_draft_tokens"]),
                         (own["drafted"], own["accepted"]))
        histogram = spec["acceptance_histogram"]
        self.assertEqual(len(histogram), spec["num_spec_tokens"] + 1)
        self.assertEqual(sum(histogram), spec["num_spec_steps"])
        self.assertEqual(sum(i * count for i, count in enumerate(histogram)), own["accepted"])
        self.assertAlmostEqual(spec["mean_acceptance_length"], 1 + own["accepted"] / spec["num_spec_steps"])
        self.assertAlmostEqual(spec["draft_acceptance_rate"], own["accepted"] / own["drafted"])

    def test_bodies_and_last_chunks_have_the_figures_of_llama_cpp_and_vllm(self):
        whole = self.server.chat(PROMPT * 4, **LONG).json
        self.check(whole)
        self.assertGreater(whole["paceline"]["accepted"], 0)
        events = self.server.chat(PROMPT * 4, stream=True, stream_options={"include_usage": True}, **LONG).events
        self.check(events[-1])
        self.assertFalse(any("timings" in event or "metrics" in event for event in events[:-1]))
        last = self.server.chat(PROMPT, stream=True, max_tokens=4).events[-1]
        self.assertIn("timings", last)
        self.assertIn("metrics", last)

    def test_an_answer_without_speculation_has_zeros(self):
        spec = self.server.chat(paceline={"speculation": "off"}, **LONG).json["metrics"]["speculative_decoding"]
        self.assertEqual((spec["num_spec_steps"], spec["num_draft_tokens"], spec["draft_acceptance_rate"],
                          spec["mean_acceptance_length"]), (0, 0, 0, 1))

    def test_a_gamma_beyond_the_method_is_named(self):
        bound = self.server.chat(max_tokens=1).json["metrics"]["speculative_decoding"]["num_spec_tokens"]
        self.assertLess(bound, 32)
        self.assertEqual(self.server.chat(max_tokens=1, paceline={"gamma": bound}).status, 200)
        for gamma in (bound + 1, 32, 33):
            refused = self.server.chat(paceline={"gamma": gamma})
            self.assertEqual((refused.status, refused.json["error"]["param"]), (400, "paceline.gamma"), gamma)


class Engine(CliTest):
    def pipeline(self) -> str:
        path = self.folder / "pipeline.toml"
        path.write_text(pipeline_toml(1, True) + "[supervision]\nrestarts_max = 1000\nstop_grace_s = 1000\n")
        return str(path)

    def test_deep_health_decodes_a_token_also_while_all_places_are_taken(self):
        with Server("--config", self.pipeline(), "--requests", "1", "--queue", "0") as server:
            before = server.metric("paceline_generated_tokens_total")
            deep = server.get("/health?deep=1")
            self.assertEqual((deep.status, deep.json["status"], deep.json["decoded"]), (200, "ok", True))
            self.assertNotIn("decoded", server.get("/health?deep=0").json)
            server.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "ignore_eos": True})
            # The probe's own token is no client's.
            server.wait_metric("paceline_generated_tokens_total", before + 2)
            # Its result holds for a second, so that one may come from there: the text is what counts.
            stream = server.stream(chat_body("Tell me everything", **LONG))
            self.assertEqual(server.get("/v1/health?deep=1").status, 200)
            self.assertTrue(stream.rest().endswith("data: [DONE]\n\n"))

    def test_deep_health_is_stuck_where_no_token_comes(self):
        with Server("--config", self.pipeline(), "--requests", "1", "--queue", "1") as server:
            server.stop_stages()
            self.assertEqual(server.get("/health").status, 200)
            deep = server.get("/health?deep=1")
            self.assertEqual((deep.status, deep.json["status"], deep.json["decoded"]), (503, "stuck", False))
            server.continue_stages()
            wait_until(lambda: server.get("/health?deep=1").status == 200, "tokens come again")

    def test_metrics_count_restarts_pages_work_and_sources(self):
        with Server("--config", self.pipeline(), "--requests", "2") as server:
            server.stop_stages()
            stream = server.stream(chat_body(PROMPT * 4, **LONG))
            server.wait_metric("paceline_requests_running", 1)
            os.kill(server.stage("segment"), signal.SIGKILL)
            server.continue_stages()
            stream.rest()
            server.wait_metric('paceline_stage_restarts_total{process="segment-1"}', 1)
            sources = ("draft", "draft_branch", "early_exit", "prompt_lookup", "future_heads", "none")
            name = 'paceline_verdicts_total{source="%s"}'
            wait_until(lambda: sum(server.metric(name % source) for source in sources) > 0, "verdicts by source")
            self.assertGreater(server.metric('paceline_stage_busy_seconds_total{process="segment-1"}'), 0)
            self.assertGreater(server.metric("paceline_kv_pages"), 0)
            server.wait_metric("paceline_kv_pages_used", 0)


if __name__ == "__main__":
    unittest.main()
