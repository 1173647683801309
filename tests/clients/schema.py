"""Runs schemathesis on a server of a tiny model. Run by tests/clients/schema."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from serve_server import Server

# The answer of a valid request is bounded, so that a run is short; a request may still ask for less.
CONTEXT = "64"
# What JSON Schema cannot say, and the server refuses: prompts that fill the context, tokens that are not of the
# vocabulary, candidates beyond the method's, more answers than places, names of another model, stream options
# without a stream.
LEFT_OUT = ["positive_data_acceptance"]
# 501 is an answer of this API, and 503 one of every server.
CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "4xx", "501", "503"]
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as name, \
            Server("--method", "prompt-lookup", "--requests", "4", "-c", CONTEXT) as server:
        config = Path(name) / "schemathesis.toml"
        config.write_text(CONFIG)
        api = server.get("/openapi.json").json
        # Names that are drawn would nearly always be another model's and end each request.
        for schema, field in (("ChatRequest", "model"), ("CompletionRequest", "model"), ("TokenizeRequest", "model"),
                              ("Speculation", "method")):
            del api["components"]["schemas"][schema]["properties"][field]
        file = Path(name) / "openapi.json"
        file.write_text(json.dumps(api))
        command = [str(Path(sys.executable).parent / "st"), "--config-file", str(config), "run",
                   str(file), "--url", f"http://127.0.0.1:{server.port}",
                   "--checks", "all", "--exclude-checks", ",".join(LEFT_OUT), *sys.argv[1:]]
        code = subprocess.run(command, cwd=name, check=False).returncode
        health = server.get("/health").json["status"]
        print(f"the server is {health} afterwards")
        return code or int(health != "ok")


if __name__ == "__main__":
    sys.exit(main())
