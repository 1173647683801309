"""llama.cpp's own decoding and speculation over a file of prompts, as bench/build_llama_cpp builds
it: every kind of speculation that needs no second model. What is not built is left out."""

import json
import os
import pathlib
import re
import subprocess
import sys

import prompt_sets

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
# Column: program and its own words.
KINDS = {
    "lookup": ["llama-lookup"],
    "lookahead": ["llama-lookahead"],
    "ngram-simple": ["llama-speculative-simple", "--spec-type", "ngram-simple"],
    "ngram-map-k": ["llama-speculative-simple", "--spec-type", "ngram-map-k"],
    "ngram-mod": ["llama-speculative-simple", "--spec-type", "ngram-mod"],
    "ngram-cache": ["llama-speculative-simple", "--spec-type", "ngram-cache"],
}
SECONDS_MAX = 120  # of one prompt


class Llama:
    def __init__(self, folder, model, tokens, kinds):
        self.bin = pathlib.Path(folder) / "native/bin"
        self.model = model
        self.tokens = tokens
        self.threads = len(os.sched_getaffinity(0))
        self.kinds = [kind for kind in kinds if (self.bin / KINDS[kind][0]).exists()]
        for kind in set(kinds) - set(self.kinds):
            print(f"llama.cpp's {kind} is left out: {self.bin / KINDS[kind][0]} is not built "
                  "(bench/build_llama_cpp)", file=sys.stderr)

    def present(self):
        return (self.bin / "llama-bench").exists()

    def plain(self):
        """Tokens/s of plain decoding."""
        out = subprocess.run([self.bin / "llama-bench", "-m", self.model, "-t", str(self.threads),
                              "-p", "0", "-n", str(self.tokens), "-r", "1", "-o", "json"],
                             capture_output=True, text=True, check=True).stdout
        return json.loads(out)[-1]["avg_ts"]

    def speculation(self, kind, file, first):
        """Tokens/s over the first prompts of a file; nothing if none of them came to an end."""
        tokens = seconds = 0.0
        for line in prompt_sets.spread(prompt_sets.lines_of(file), first):
            done = self.decode(kind, prompt_sets.text_of(line))
            if done is not None:
                tokens += done[0]
                seconds += done[1]
        return tokens / seconds if seconds else None

    def decode(self, kind, text):
        """(tokens, seconds) of one answer."""
        program, *words = KINDS[kind]
        # The tools know no chat template: what the model sees is written out.
        prompt = (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n"
                  "<|im_start|>assistant\n")
        command = [self.bin / program, "-m", self.model, "-t", str(self.threads), "-n",
                   str(self.tokens), "-c", "4096", "--temp", "0", *words, "-p", prompt]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            print(f"llama.cpp's {kind} took more than {SECONDS_MAX} s", file=sys.stderr)
            return None
        found = re.search(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds",
                          done.stderr + done.stdout)
        if not found or float(found.group(2)) <= 0:
            reason = (done.stderr.strip().splitlines() or ["no figures"])[-1]
            print(f"llama.cpp's {kind}: {reason[:200]}", file=sys.stderr)
            return None
        return int(found.group(1)), float(found.group(2))
