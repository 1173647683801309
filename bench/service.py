#!/usr/bin/env python3
"""What requests share, and how many fit: the KV cache of a pipeline under load.

    bench/service.py [--method prompt-lookup] [--first-token-rounds 5]

Each figure is a ratio within one run of `paceline check`, which also compares every answer with
plain decoding:

    shared    16 requests with one system prompt of about 1,000 tokens: rows of prompts that were
              computed, over those of all prompts
    turns     a conversation of ten turns: time to the first token of the tenth over the first
    fit       requests that ran at once in the memory of four whole contexts, where each used to
              reserve one
    twice     rows computed again after a preemption, over all rows, with half of the memory that
              the texts need
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTEXT = 2048
SYSTEM = "You are the clerk of a small library. " + " ".join(
    f"Rule {i}: a book of shelf {i} is lent for {i % 7 + 2} weeks and costs {i % 5} coins a day "
    "when it is late." for i in range(1, 36))
QUESTIONS = [f"A reader brings back a book of shelf {i} after {3 * i} days. What does it cost?"
             for i in range(1, 33)]


def check(options, prompts, *words):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "prompts.jsonl"
        out = pathlib.Path(folder) / "out.json"
        file.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        command = [str(options.paceline), "check", "--method", options.method, "--prompts",
                   str(file), "-c", str(CONTEXT), "--json", str(out), *map(str, words)]
        if options.model:
            command += ["-m", options.model]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0 or not out.exists():
            sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}{done.stdout[-2000:]}")
        result = json.loads(out.read_text())
        if not result["equal"]:
            sys.exit("an answer differs from plain decoding")
        return result


def asked(question):
    return {"messages": [{"role": "system", "content": SYSTEM},
                         {"role": "user", "content": question}]}


def shared(options):
    result = check(options, [asked(each) for each in QUESTIONS[:16]], "--requests", 16, "-n", 16)
    whole = sum(each["prompt_rows"] + each["cached_tokens"] - 1 for each in result["prompts"])
    print(f"shared  {result['prefill_rows']} of {whole} rows of prompts computed: "
          f"{result['prefill_rows'] / whole:.3f}")


def turns(options):
    ratios = []
    for round_ in range(options.first_token_rounds):
        messages = [{"role": "system", "content": SYSTEM + f" This is shop {round_}."}]
        prompts = []
        for question in QUESTIONS[:10]:
            messages.append({"role": "user", "content": question})
            prompts.append({"messages": list(messages)})
            messages.append({"role": "assistant", "content": "It costs nothing, for it was brought "
                             "back in time. Thank you for your question, and come again."})
        times = [each["first_token_ms"] - each["begun_ms"]
                 for each in check(options, prompts, "-n", 4)["prompts"]]
        ratios.append(times[9] / times[0])
    print(f"turns   first token of the tenth over the first: {statistics.median(ratios):.3f} "
          f"[{min(ratios):.3f}, {max(ratios):.3f}]")


def at_once(prompts):
    """The most that overlapped."""
    moments = sorted([(each["begun_ms"], 1) for each in prompts]
                     + [(each["last_token_ms"], -1) for each in prompts])
    most = now = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most


def memory(options, name, contexts, requests, tokens):
    bytes_each = options.bytes_per_token
    short = [{"prompt": question} for question in QUESTIONS[:requests]]
    result = check(options, short, "--requests", requests, "-n", tokens, "--kv-memory",
                   int(contexts * CONTEXT * bytes_each))
    first = sum(each["prompt_rows"] - 1 for each in result["prompts"])
    batches = result["figures"]["batches_by_rows"]
    rows = result["prefill_rows"] + sum(int(size) * count for size, count in batches.items())
    again = max(result["prefill_rows"] - first, 0)
    print(f"{name:7} memory of {contexts:.2f} contexts: {at_once(result['prompts'])} at once, "
          f"{result['preemptions']} preempted, {again} of {rows} rows computed again: "
          f"{again / rows:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline")
    parser.add_argument("-m", "--model", default="")
    parser.add_argument("--method", default="prompt-lookup")
    parser.add_argument("--first-token-rounds", type=int, default=5)
    parser.add_argument("--bytes-per-token", type=int, default=23040,
                        help="of keys and values, all layers (default: of the demo model)")
    options = parser.parse_args()
    shared(options)
    turns(options)
    memory(options, "fit", 4, 32, 48)
    # 16 texts of about 30 + 250 tokens each, in half of that.
    memory(options, "twice", 16 * 280 / 2 / CONTEXT, 16, 250)


main()
