#!/usr/bin/env python3
"""What log probabilities, echo and a JSON schema cost `paceline serve`, per token; the schema beside llama-server's.

    bench/build_llama_cpp                         # once: the peer, outside this tree
    bench/structured.py [--clients 1,8] [--rounds 5] [-n 96] [--method NAME] [--llama FOLDER | --no-peer] [--out F.tsv]

In alternation, round by round, streams of the same prompts:

    text       nothing is asked for
    scores     "top_logprobs": 5
    schema     "response_format" with a JSON schema
    schema-off the same without speculation
    peer, peer-schema   llama-server, without and with the same schema

Printed and written: time of a token after the first (ms), the share of answers that are valid by the schema, and for
streams with a schema the longest gap before a text with a closing brace over the median gap: medians over the rounds
with their range; and ratios formed per round. Then `echo`: seconds of a long prompt with the log probabilities of its
tokens, over without. Nothing else may run on the machine.
"""

import http.client
import json
import queue
import statistics
import sys
import threading
import time

from serving import events, prompts, spread, tokens_in
from serving_peers import data_row, head_of, parse_options, servers

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "year": {"type": "integer", "minimum": 0, "maximum": 2100},
        "kind": {"enum": ["thing", "process", "place"]},
        "parts": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 5},
        "summary": {"type": "string"},
    },
    "required": ["title", "year", "kind", "parts", "summary"],
    "additionalProperties": False,
}
LONG = "The quick brown fox jumps over the lazy dog and counts the days of the year. " * 40


def valid(text):
    """By the schema, checked by hand: its few rules."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if not isinstance(value, dict):
        return False
    strings = [value.get("title"), value.get("summary"), *(value.get("parts") or [])]
    return (set(value) == set(SCHEMA["required"]) and isinstance(value["year"], int)
            and 0 <= value["year"] <= 2100 and value["kind"] in SCHEMA["properties"]["kind"]["enum"]
            and 2 <= len(value["parts"]) <= 5 and all(isinstance(each, str) for each in strings))


def body_of(prompt, tokens, kind, salt):
    body = {"messages": [{"role": "user", "content": prompt + " Answer as JSON."}], "max_tokens": tokens,
            "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    if kind == "scores":
        body |= {"logprobs": True, "top_logprobs": 5}
    if "schema" in kind:
        body |= {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}}
    if kind.startswith("peer"):
        return body | {"cache_prompt": False}
    return body | {"cache_salt": salt, "paceline": {"speculation": "off" if kind.endswith("off") else "on"}}


def stream(port, body):
    """(text, ms of a token after the first, gaps between texts, the longest of those that bring a closing brace)"""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    text, counted, first, last, gaps, at_brace = "", 0, None, None, [], 0.0
    for event in events(connection, "/v1/chat/completions", body):
        counted = tokens_in(event, counted)
        piece = "".join((choice.get("delta") or {}).get("content") or "" for choice in event["choices"])
        if not piece:
            continue
        now = time.monotonic()
        if last is not None:
            gaps.append(now - last)
            at_brace = max(at_brace, gaps[-1] if "}" in piece else 0.0)
        first, last, text = first or now, now, text + piece
    connection.close()
    return text, 1000 * (last - first) / max(1, counted - 1), gaps, at_brace


def measured(port, kind, clients, options, salt):
    waiting, answers = queue.SimpleQueue(), []
    for prompt in prompts(max(clients, options.least)):
        waiting.put(prompt)

    def client():
        while not waiting.empty():
            try:
                prompt = waiting.get_nowait()
            except queue.Empty:
                return
            answers.append(stream(port, body_of(prompt, options.n, kind, salt)))

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {"between": statistics.median(answer[1] for answer in answers)}
    if "schema" in kind:
        found["valid"] = sum(valid(answer[0]) for answer in answers) / len(answers)
        waits = [answer[3] / statistics.median(answer[2]) for answer in answers if answer[2] and answer[3]]
        found["brace"] = statistics.median(waits) if waits else float("nan")  # no answer closed one
    return found


def echo(port, scored, salt):
    """Seconds of a long prompt."""
    body = {"prompt": LONG, "max_tokens": 1, "temperature": 0, "cache_salt": salt}
    if scored:
        body |= {"echo": True, "logprobs": 1}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    begun = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    if "error" in answer:
        sys.exit(f"bench/structured.py: {answer['error']}")
    return time.monotonic() - begun


def rows_of(kinds, rounds):
    """(kind or pair, figure, values)"""
    for kind in kinds:
        for figure in rounds[0][kind]:
            yield kind, figure, [each[kind][figure] for each in rounds]
    pairs = [("scores", "text"), ("schema", "text"), ("schema", "schema-off")]
    if "peer" in kinds:
        pairs += [("peer-schema", "peer"), ("schema", "peer-schema")]
    for one, other in pairs:
        yield f"{one}/{other}", "between", [each[one]["between"] / each[other]["between"] for each in rounds]


def main():
    options = parse_options(__doc__, [1, 8])
    options.peer_speculation = "none"  # it has no part in this
    made = servers(options)
    ports = {"text": "ours", "scores": "ours", "schema": "ours", "schema-off": "ours", "peer": "peer", "peer-schema": "peer"}
    kinds = {kind: made[server].port for kind, server in ports.items() if server in made}
    lines = head_of(options, "bench/structured.py")

    def note(clients, name, figure, values):
        lines.append(data_row(clients, name, figure, values=values))
        print(f"{clients:3} {name:18} {figure:8} {spread(values)}", flush=True)

    try:
        for clients in options.clients:
            rounds = []
            for turn in range(options.rounds + 1):
                order = list(kinds)[turn % len(kinds):] + list(kinds)[:turn % len(kinds)]
                salt = str(time.monotonic_ns())
                found = {kind: measured(kinds[kind], kind, clients, options, f"{salt}-{kind}") for kind in order}
                if turn > 0:  # the first warms up, and compiles the schema
                    rounds.append(found)
            for row in rows_of(kinds, rounds):
                note(clients, *row)
        echoes = []
        for turn in range(options.rounds + 1):
            pair = {scored: echo(made["ours"].port, scored, str(time.monotonic_ns()))
                    for scored in ([False, True] if turn % 2 else [True, False])}
            if turn > 0:
                echoes.append(pair[True] / pair[False])
        note(1, "echo/text", "prompt", echoes)
    finally:
        for server in made.values():
            server.stop()
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
