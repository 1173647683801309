"""paceline serve: options, variables and the table [serve]; sockets, systemd, limits of time."""

import contextlib
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import unittest

from paceline_cli import BINARY, CliTest, TINY, environment, pipeline_toml
from serve_server import LIMIT_S, Answer, Server, chat_body, events_of, wait_until

METHOD = ("--method", "autoregressive")
LONG = {"ignore_eos": True, "max_tokens": 400}


class Settings(CliTest):
    def config(self, serve: str, pipeline: str | None = None) -> str:
        path = self.folder / "serve.toml"
        path.write_text((pipeline or pipeline_toml(1, False)) + "[serve]\n" + serve)
        return str(path)

    def fails(self, *args: str, **variables: str) -> str:
        done = subprocess.run([BINARY, "serve", "-m", TINY, *args], capture_output=True, timeout=LIMIT_S,
                              env={**environment(), **variables}, check=False)
        stderr = done.stderr.decode()
        self.assertEqual(done.returncode, 2, stderr)
        self.assertNotIn("listening", stderr)
        return stderr

    def test_the_option_counts_more_than_the_variable_and_that_more_than_the_file(self):
        file = self.config('alias = "of-file"\nrequests = 3\nport = 0\ncontext = 256\n')
        def names(*args: str, **variables: str) -> tuple:
            with Server("--config", file, *args, place=(), variables=variables) as server:
                props = server.get("/props").json
                return props["model_alias"], props["total_slots"], props["n_ctx"]
        self.assertEqual(names(), ("of-file", 3, 256))
        self.assertEqual(names(PACELINE_ALIAS="of-variable", PACELINE_REQUESTS=""), ("of-variable", 3, 256))
        self.assertEqual(names("--alias", "of-option", PACELINE_ALIAS="of-variable", PACELINE_REQUESTS="2",
                               PACELINE_CONTEXT="128"), ("of-option", 2, 128))

    def test_every_option_has_a_variable_and_a_key(self):
        shown = subprocess.run([BINARY, "serve", "--help"], capture_output=True, timeout=LIMIT_S, check=True,
                               env=environment()).stdout.decode()
        options = [word.strip(",") for line in shown.splitlines() if line.startswith("  -")
                   for word in line.split()[:1] for word in word.split(",") if word.startswith("--")]
        self.assertIn("--peer-connections", options)
        for option in sorted(set(options) - {"--help"}):
            key = option[2:].replace("-", "_")
            # A text that no option takes, and a type that no key has.
            wrong = self.config(f"{key} = 1979-05-27\n")
            if key in ("config", "method"):
                self.assertIn(f"[serve] {key} = 1979-05-27 is not a known key", self.fails("--config", wrong))
            else:
                self.assertIn(f"[serve] {key} = 1979-05-27 must be", self.fails("--config", wrong))
        for key, value in (("PORT", "70000"), ("REQUESTS", "many"), ("KV_MEMORY", "2X"), ("QUEUE", "-1"),
                           ("HEAD_TIMEOUT", "0"), ("DTYPE", "q9"), ("NO_CACHE", "perhaps")):
            self.assertIn(f"PACELINE_{key}={value}: ", self.fails(**{f"PACELINE_{key}": value}))

    def test_a_wrong_table_is_named_by_file_key_and_value(self):
        for text, parts in (('prot = 1\n', ("prot", "port")), ('port = "x"\n', ("port", "must be a number")),
                            ('port = 70000\n', ("port = 70000",)), ('alias = 3\n', ("alias = 3",)),
                            ('cors_origin = "http://x"\n', ("cors_origin", "must be a list")),
                            ('kv_memory = "2X"\n', ("kv_memory",)), ('verbose = 1\n', ("verbose = 1",))):
            stderr = self.fails("--config", self.config(text))
            for part in ("serve.toml:", "[serve]", *parts):
                self.assertIn(part, stderr)
        self.assertIn("serve", self.fails("--config", self.config_of("serve = 3\n")))

    def config_of(self, text: str) -> str:
        path = self.folder / "other.toml"
        path.write_text(text + pipeline_toml(1, False))
        return str(path)

    def test_lists_and_sizes_of_file_and_variable_are_read(self):
        file = self.config('cors_origin = ["http://a.example", "http://b.example"]\nkv_memory = "1M"\n')
        with Server("--config", file) as server:
            for origin in ("http://a.example", "http://b.example"):
                self.assertEqual(server.get("/v1/models", headers={"Origin": origin}).status, 200)
        with Server(*METHOD, variables={"PACELINE_CORS_ORIGIN": "http://c.example,http://d.example"}) as server:
            for origin, status in (("http://d.example", 200), ("http://a.example", 403)):
                self.assertEqual(server.get("/v1/models", headers={"Origin": origin}).status, status)

    def test_a_key_of_a_variable_is_needed_like_one_of_a_file(self):
        with Server(*METHOD, variables={"PACELINE_API_KEY": "secret-key-1"}) as server:
            self.assertEqual(server.get("/v1/models").status, 401)
            given = {"Authorization": "Bearer secret-key-1"}
            self.assertEqual(server.get("/v1/models", headers=given).status, 200)
        self.assertIn("PACELINE_API_KEY", self.fails(PACELINE_API_KEY="short"))

    def test_a_file_with_the_table_is_read_once_and_runs_elsewhere(self):
        pipe = self.folder / "pipe.toml"
        os.mkfifo(pipe)
        config = self.config('alias = "piped"\n')
        process = subprocess.Popen(["sh", "-c", f"cat '{config}' > '{pipe}'"])
        with Server("--config", str(pipe)) as server:
            self.assertEqual(server.get("/v1/models").json["data"][0]["id"], "piped")
        process.wait(timeout=LIMIT_S)
        self.run_ok("run", "-m", TINY, "-q", "-p", "x", "-n", "2", "--config", self.config("port = 1\n"))

    def test_options_of_other_servers_name_ours(self):
        for args, ours in ((("-np", "4"), "--requests"), (("--parallel", "4"), "--requests"),
                           (("--draft-max", "8"), "gamma"), (("--max-num-seqs", "8"), "--requests"),
                           (("--speculative-config", "{}"), "--method"), (("-ngl", "99"), "--device"),
                           (("--ctx-size", "8"), "-c"), (("--api-key", "x"), "--api-key-file"),
                           (("--gpu-memory-utilization", "0.9"), "--kv-memory"), (("-n", "5"), "max_tokens")):
            self.assertIn(ours, self.fails(*args), args)


class UnixSocket(CliTest):
    def test_it_is_for_this_user_alone_and_goes_with_the_server(self):
        path = self.folder / "s.sock"
        with Server(*METHOD, place=("--unix", str(path))) as server:
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
            self.assertEqual(server.chat(max_tokens=3).status, 200)
            answer = server.chat(max_tokens=3, stream=True)
            self.assertTrue(answer.text.endswith("data: [DONE]\n\n"))
            self.assertEqual(server.get("/health", headers={"Host": "any"}).status, 200)
            stderr = self.run_fails(1, "serve", "-m", TINY, "--unix", str(path))
            self.assertIn("another server listens", stderr)
            self.assertEqual(server.get("/health").status, 200)
        self.assertFalse(path.exists())

    def test_one_that_a_dead_server_left_is_replaced(self):
        path = self.folder / "s.sock"
        with Server(*METHOD, place=("--unix", str(path))) as server:
            server.ended_by_test = True
            server.process.kill()
            server.process.wait(timeout=LIMIT_S)
            self.assertTrue(path.exists())
        with Server(*METHOD, place=(), variables={"PACELINE_UNIX": str(path)}) as server:
            self.assertEqual(server.get("/health").status, 200)

    def test_a_path_that_cannot_be_a_socket_is_named(self):
        file = self.folder / "file"
        file.write_text("mine")
        for path in (str(file), "/nothing/s.sock", str(self.folder / ("x" * 200))):
            stderr = self.run_fails(1, "serve", "-m", TINY, "--unix", path)
            self.assertIn(path, stderr)
        self.assertEqual(file.read_text(), "mine")
        self.run_fails(2, "serve", "-m", TINY, "--unix", "s", "--port", "0")

    def test_a_port_of_the_command_line_counts_more_than_the_variable(self):
        with Server(*METHOD, variables={"PACELINE_UNIX": str(self.folder / "s.sock")}) as server:
            self.assertGreater(server.port, 0)


class Peers(CliTest):
    def own_address(self) -> str:
        """One of this machine's that is no loopback address. No packet is sent."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
            except OSError:
                self.skipTest("this machine has no network")
            return probe.getsockname()[0]

    def test_an_address_has_a_limit_of_connections_and_loopback_has_none(self):
        address = self.own_address()
        with Server(*METHOD, "--host", "0.0.0.0", "--peer-connections", "2",
                    variables={"PACELINE_API_KEY": "secret-key-1"}) as server:
            server.host = "127.0.0.1"
            def status(host: str) -> tuple:
                client = http.client.HTTPConnection(host, server.port, timeout=LIMIT_S)
                client.request("GET", "/health")
                response = client.getresponse()
                return client, response.status, response.read()
            first, second, third = (status(address) for _ in range(3))
            self.assertEqual([first[1], second[1], third[1]], [200, 200, 429])
            self.assertIn(b"too_many_connections", third[2])
            local = [status("127.0.0.1") for _ in range(5)]
            self.assertEqual([each[1] for each in local], [200] * 5)
            first[0].close()
            wait_until(lambda: self.is_admitted(status, address), "a place is free again")
            for client, *_ in (second, third, *local):
                client.close()

    def is_admitted(self, status, address: str) -> bool:
        client, code, _ = status(address)
        client.close()
        return code == 200


class Notify(CliTest):
    def test_systemd_is_told_when_the_server_is_ready_and_when_it_ends(self):
        path = str(self.folder / "notify.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(LIMIT_S)
            with Server(*METHOD, variables={"NOTIFY_SOCKET": path}) as server:
                linked = subprocess.run(["ldd", BINARY], capture_output=True, check=True).stdout
                if b"libsystemd" not in linked:
                    self.skipTest("built without libsystemd")
                self.assertIn(b"READY=1", manager.recv(4096))
                self.assertEqual(server.get("/health").status, 200)
                server.process.send_signal(signal.SIGTERM)
                self.assertIn(b"STOPPING=1", manager.recv(4096))
                self.assertEqual(server.process.wait(timeout=LIMIT_S), 0)


class Time(CliTest):
    def raw(self, server: Server, sent: bytes) -> bytes:
        """What comes back without an end of the client's half."""
        with socket.create_connection((server.host, server.port), timeout=LIMIT_S) as client:
            client.sendall(sent)
            got = b""
            while block := client.recv(65536):
                got += block
            return got

    def test_a_request_that_does_not_arrive_is_408(self):
        post = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 20\r\n\r\n{")
        with Server(*METHOD, "--head-timeout", "0.2", "--body-timeout", "0.3") as server:
            for sent in (b"GET /health HTTP/1.1\r\nHost: loc", post):
                got = self.raw(server, sent)
                self.assertTrue(got.startswith(b"HTTP/1.1 408 "), got)
                self.assertIn(b"request_timeout", got)
                self.assertIn(b"Connection: close", got)

    def test_bodies_that_are_announced_and_not_sent_keep_no_other_request_out(self):
        head = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Expect: 100-continue\r\nContent-Length: 8388608\r\n\r\n")
        with Server(*METHOD) as server, contextlib.ExitStack() as clients:
            for _ in range(40):  # 320 MiB; the bodies that a server holds have at most 256
                client = clients.enter_context(socket.create_connection((server.host, server.port), timeout=LIMIT_S))
                client.sendall(head)
                self.assertTrue(client.recv(4096).startswith(b"HTTP/1.1 100 "))
                client.sendall(b"{")
            self.assertEqual(server.chat(max_tokens=1).status, 200)

    def test_a_body_in_many_parts_is_read_to_its_end(self):
        text = b'{"content": "' + b"ab " * 100_000 + b'"}'
        parts = [text[i:i + 70_000] for i in range(0, len(text), 70_000)]
        with Server(*METHOD) as server:
            whole = server.post("/tokenize", text).json["tokens"]
            head = (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
            got = self.raw(server, head + chunks)
            self.assertTrue(got.startswith(b"HTTP/1.1 200 "), got[:200])
            self.assertEqual(json.loads(got.partition(b"\r\n\r\n")[2])["tokens"], whole)

    def test_deadlines_of_a_request_end_it_with_an_error(self):
        path = self.folder / "pipeline.toml"
        path.write_text(pipeline_toml(1, True) + "[supervision]\nstop_grace_s = 1000\n")
        with Server("--config", str(path), "--requests", "1") as server:
            server.stop_stages()
            for limits in ({"total_s": 0.2}, {"first_token_s": 0.2}):
                stream = server.stream(chat_body("x", paceline={"deadlines": limits}, **LONG))
                last = events_of(stream.rest())[-1]
                self.assertEqual(last["error"]["code"], "deadline", limits)
                refused = server.chat(paceline={"deadlines": limits})
                self.assertEqual((refused.status, refused.json["error"]["code"]), (503, "deadline"))
            holds = server.stream(chat_body("x", **LONG))
            queued = server.chat(paceline={"deadlines": {"queue_s": 0.2}})
            self.assertEqual((queued.status, queued.json["error"]["code"]), (503, "deadline"))
            self.assertIn("waited", queued.json["error"]["message"])
            server.continue_stages()
            self.assertTrue(holds.rest().endswith("data: [DONE]\n\n"))
            for wrong, name in (({"total_s": 0}, "total_s"), ({"gap_s": "x"}, "gap_s"), (3, "")):
                refused = server.chat(paceline={"deadlines": wrong})
                param = "paceline.deadlines" + (f".{name}" if name else "")
                self.assertEqual((refused.status, refused.json["error"]["param"]), (400, param))
            generous = {"queue_s": 1000, "first_token_s": 1000, "gap_s": 1000, "total_s": 1000}
            self.assertEqual(server.chat(max_tokens=3, paceline={"deadlines": generous}).status, 200)

    def test_a_recovery_that_takes_too_long_refuses_further_requests(self):
        path = self.folder / "pipeline.toml"
        path.write_text(pipeline_toml(1, False) + "[supervision]\nbackoff_ms = [86400000]\n"
                        "recovery_limit_s = 86400\n")
        with Server("--config", str(path), "--recovery-wait", "0.3", "--drain", "0") as server:
            os.kill(server.stages()[0], signal.SIGKILL)
            refused = wait_until(lambda: self.refusal(server), "requests are refused")
            self.assertEqual(refused.json["error"]["code"], "recovering")
            self.assertIsNotNone(refused.headers["Retry-After"])
            self.assertEqual(server.get("/health").status, 503)

    def refusal(self, server: Server) -> Answer | None:
        """A stream begins at once, also where its answer waits for the lost stage."""
        connection = server.connect()
        connection.request("POST", "/v1/completions", '{"prompt": "x", "stream": true, "max_tokens": 1}',
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        try:
            return Answer(response) if response.status != 200 else None
        finally:
            connection.close()


if __name__ == "__main__":
    unittest.main()
