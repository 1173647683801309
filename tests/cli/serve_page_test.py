"""paceline serve: the page at /, and the description of the API at /openapi.json."""

import base64
import hashlib
import json
import re
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

from paceline_cli import CliTest, PROMPT, ROOT
from serve_server import ALWAYS_PROPOSES, Server, chat_body

API = ROOT / "launch" / "api"
PAGE = ROOT / "launch" / "serve" / "page"


class ServeTest(CliTest):
    @classmethod
    def setUpClass(cls) -> None:
        config = Path(cls.enterClassContext(tempfile.TemporaryDirectory())) / "config.toml"
        config.write_text(ALWAYS_PROPOSES)
        cls.server = Server("--config", str(config), "--requests", "4")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)


class Elements(HTMLParser):
    """Tags with their attributes, and the texts of styles and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.inner: dict[str, list[str]] = {"style": [], "script": []}
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open = tag

    def handle_endtag(self, tag):
        self.open = ""

    def handle_data(self, data):
        if self.open in self.inner:
            self.inner[self.open].append(data)


class Page(ServeTest):
    def setUp(self) -> None:
        super().setUp()
        self.answer = self.server.get("/")
        self.elements = Elements(self.answer.text)

    def policy(self) -> dict[str, list[str]]:
        parts = [part.split() for part in self.answer.headers["Content-Security-Policy"].split(";")]
        return {part[0]: part[1:] for part in parts}

    def test_it_is_html_that_no_other_site_may_frame_or_read(self):
        self.assertEqual(self.answer.status, 200)
        self.assertEqual(self.answer.headers["Content-Type"], "text/html; charset=utf-8")
        self.assertEqual(self.answer.headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(self.answer.headers["Referrer-Policy"], "no-referrer")
        self.assertEqual(self.policy()["frame-ancestors"], ["'none'"])

    def test_the_policy_allows_its_own_style_and_script_and_nothing_else(self):
        policy = self.policy()
        for kind in ("style", "script"):
            [text] = self.elements.inner[kind]
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            self.assertEqual(policy[f"{kind}-src"], [f"'sha256-{digest}'"])
        self.assertEqual({name: values for name, values in policy.items() if name not in ("style-src", "script-src")},
                         {"default-src": ["'none'"], "connect-src": ["'self'"], "img-src": ["data:"],
                          "base-uri": ["'none'"], "form-action": ["'none'"], "frame-ancestors": ["'none'"],
                          "require-trusted-types-for": ["'script'"]})

    def test_no_handler_and_no_style_stands_in_the_elements(self):
        for tag, attributes in self.elements.tags:
            for name in attributes:
                self.assertFalse(name.startswith("on") or name == "style", (tag, name))
        script = self.elements.inner["script"][0]
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
                       "localStorage", "cookie"):
            self.assertNotIn(unsafe, script)

    def test_nothing_refers_to_another_host(self):
        for tag, attributes in self.elements.tags:
            for name in ("src", "href", "action", "srcset", "data"):
                value = attributes.get(name, "")
                self.assertTrue(value in ("", "data:,") or value.startswith("#"), (tag, name, value))
        text = self.answer.text.replace("http://www.w3.org/2000/svg", "")  # a name, never asked for
        self.assertEqual(re.findall(r"(?:https?:|wss?:)?//[\w.-]+\.\w+", text), [])
        self.assertNotIn("@import", text)
        self.assertNotIn("url(", text)

    def test_it_is_one_document_of_the_files_of_its_folder(self):
        scripts = [(PAGE / f"{name}.js").read_text() for name in ("server", "chat", "engine", "controls")]
        self.assertEqual(self.elements.inner["script"], ["".join(scripts)])
        self.assertEqual(self.elements.inner["style"], [(PAGE / "page.css").read_text()])

    def test_the_script_finds_its_elements(self):
        script = self.elements.inner["script"][0]
        ids = {attributes["id"] for _, attributes in self.elements.tags if "id" in attributes}
        asked = set(re.findall(r'\bat\("([\w-]+)"\)', script))
        self.assertGreater(len(asked), 10)
        self.assertEqual(asked - ids, set())
        labelled = {attributes.get("for") for tag, attributes in self.elements.tags if tag == "label"}
        for tag, attributes in self.elements.tags:
            if tag in ("textarea",) or attributes.get("type") in ("password",):
                self.assertIn(attributes["id"], labelled, "a field without a label")

    def test_the_metrics_and_fields_that_it_reads_exist(self):
        self.server.chat(PROMPT, max_tokens=200, ignore_eos=True)
        engine = (PAGE / "engine.js").read_text()
        named = re.search(r"const METRICS = \{(.*?)\n\};", engine, re.DOTALL)[1]
        names = re.findall(r'"(\w+)"', named)
        self.assertGreater(len(names), 8)
        metrics = self.server.get("/metrics").text
        # The expression of the script, on each line of the server.
        line_form = re.compile(re.search(r"= /(\^.*\$)/\.exec", engine)[1])
        found = {}
        for line in metrics.splitlines():
            if not line.startswith("#"):
                parts = line_form.match(line)
                self.assertIsNotNone(parts, line)
                found.setdefault(parts[1], []).append((parts[2] or "", float(parts[3])))
        self.assertEqual([name for name in names if name not in found], [])
        self.assertIn('process="', found["paceline_stage_up"][0][0])
        for name in ("paceline_stage_busy_seconds_total", "paceline_stage_restarts_total"):
            self.assertIn('process="', found[name][0][0])
        self.assertIn('position="', found["paceline_spec_num_accepted_tokens_per_pos_total"][0][0])
        props = self.server.get("/props").json
        for name in re.findall(r"props\.(\w+)", engine):
            self.assertIn(name, props)
        self.assertIn("method_changes", self.server.get("/health").json)
        known = {"status", "lost_stages", "waiting_for", "error", "method_changes"}
        self.assertEqual(set(re.findall(r"health\.(\w+)", engine)) - known, set())

    def test_the_fields_of_a_report_that_it_shows_exist(self):
        report = self.server.chat(max_tokens=5).json["paceline"]
        chat = (PAGE / "chat.js").read_text()
        shown = set(re.findall(r"report\.(\w+)", chat))
        self.assertIn("batches", shown)
        self.assertEqual(shown - set(report), set())


class Keys(CliTest):
    def test_the_page_needs_no_key_and_what_it_asks_for_does(self):
        keys = self.folder / "keys"
        keys.write_text("a-key-for-page\n")
        with Server("--method", "autoregressive", "--api-key-file", str(keys)) as server:
            self.assertEqual(server.get("/").status, 200)
            for path in ("/metrics", "/props", "/openapi.json"):
                self.assertEqual(server.get(path).status, 401, path)
                self.assertEqual(server.get(path, headers={"Authorization": "Bearer a-key-for-page"}).status, 200, path)


class Spans(ServeTest):
    """Which parts of the text were candidates: what the page shades."""

    BODY = chat_body(PROMPT, max_tokens=200, ignore_eos=True)

    def spans(self, **own) -> tuple[list[dict], list[dict]]:
        events = self.server.post("/v1/chat/completions", {**self.BODY, "stream": True, "paceline": own}).events
        for event in events:
            spans = event.get("paceline", {}).get("spans")
            text = "".join(choice["delta"].get("content", "") for choice in event["choices"])
            self.assertEqual(spans is not None, bool(text) and own.get("spans", False))
            if spans is not None:
                self.assertEqual("".join(span["text"] for span in spans), text)
        return events, [span for event in events for span in event.get("paceline", {}).get("spans", [])]

    def test_the_spans_of_a_chunk_are_its_text_and_their_counts_those_of_the_report(self):
        events, spans = self.spans(spans=True)
        report = events[-1]["paceline"]
        self.assertGreater(report["accepted"], 0)
        self.assertEqual(sum(span["tokens"] for span in spans if span["accepted"]), report["accepted"])
        self.assertEqual(sum(span["tokens"] for span in spans), 200)

    def test_without_speculation_no_token_was_a_candidate(self):
        _, spans = self.spans(spans=True, speculation="off")
        self.assertEqual({span["accepted"] for span in spans}, {False})

    def test_they_come_only_where_they_are_asked_for(self):
        self.assertEqual(self.spans()[1], [])
        refused = self.server.post("/v1/chat/completions", {**self.BODY, "paceline": {"spans": True}})
        self.assertEqual((refused.status, refused.json["error"]["param"]), (400, "paceline.spans"))


class OpenApi(ServeTest):
    def setUp(self) -> None:
        super().setUp()
        answer = self.server.get("/openapi.json")
        self.assertEqual(answer.status, 200)
        self.api = answer.json
        self.schemas = self.api["components"]["schemas"]

    def names(self, *schemas: str) -> set[str]:
        return {name for schema in schemas for name in self.schemas[schema]["properties"]}

    def test_it_is_the_file_of_the_source_tree(self):
        self.assertEqual(self.api, json.loads((ROOT / "launch/serve/openapi.json").read_text()))

    def test_every_reference_leads_to_a_schema_and_every_schema_is_used(self):
        used = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(self.api)))
        self.assertEqual(used, set(self.schemas))

    def test_its_paths_and_methods_are_the_routes_of_the_server(self):
        routes = (API / "routes.cpp").read_text()
        found = re.findall(r'^    \{"(/[^"]*)", (k\w+), Endpoint::', routes, re.MULTILINE)
        # One that ends with a slash, but for the page's own, has an ID behind it.
        known = {(path + "{id}" if path.endswith("/") and path != "/" else path, "post" if methods == "kPost" else "get")
                 for path, methods in found} | {("/models/{id}", "get")}
        self.assertGreater(len(known), 10)
        listed = {(path.removeprefix("/v1"), method)
                  for path, methods in self.api["paths"].items() for method in methods}
        self.assertEqual(listed, known)

    def test_the_server_answers_each_path_with_and_without_v1(self):
        for path, methods in self.api["paths"].items():
            for method, operation in methods.items():
                other = path.removeprefix("/v1") if path.startswith("/v1/") else "/v1" + path
                for alias in (path,) if path == "/" else (path, other):
                    answer = self.server.ask(method.upper(), alias.replace("{id}", "none"),
                                             *([{}] if method == "post" else []))
                    self.assertIn(str(answer.status), operation["responses"], (method, alias))
                    told = operation["responses"][str(answer.status)]["content"]
                    self.assertIn(answer.headers["Content-Type"].split(";")[0], told)

    def test_its_request_fields_are_those_that_the_code_reads(self):
        def read(source: str, reader: str) -> set[str]:
            text = (API / f"{source}.cpp").read_text()
            return set(re.findall(rf'\b{reader}(?:\.\w+\(|, )\s*"(\w+)"', text))

        # What read_deadlines() reads stands in the object `paceline`.
        common = read("generation_fields", "fields") - {"deadlines"}
        grammar = set(re.findall(r'error = read\("(\w+)"', (API / "grammar/grammar_request.cpp").read_text()))
        chat = read("chat_request", "fields") | read("tools/tool_request", "fields") - {"name", "description", "parameters"}
        scores, _, completion_scores = (API / "scores/scores_request.cpp").read_text().partition("completion_scores(")
        own_of = re.compile(r'fields\.(?:boolean|integer)\("(\w+)"')
        self.assertEqual(self.names("ChatRequest"), common | chat | grammar | set(own_of.findall(scores)))
        prompt = set(re.findall(r'Fields\{body\}\.find\("(\w+)"\)', (API / "completion_request.cpp").read_text()))
        self.assertEqual(self.names("CompletionRequest"),
                         common | prompt | grammar | set(own_of.findall(completion_scores)))
        self.assertEqual(self.names("StreamOptions", "Speculation", "Deadlines"),
                         read("generation_fields", "inner") | {"deadlines"})
        renamed = set(re.findall(r'rename\(common, "(\w+)"', (API / "native_request.cpp").read_text()))
        self.assertEqual(self.names("NativeRequest"),
                         common | prompt | renamed | grammar | read("prepare_answers", "own"))
        tokens = read("token_endpoints", "fields") | {"content", "prompt"} | chat
        self.assertEqual(self.names("TokenizeRequest"), tokens)

    def test_the_fields_that_are_not_implemented_are_those_that_the_code_refuses(self):
        refused = re.findall(r'^    \{"(\w+)", \w+\},', (API / "unsupported_fields.cpp").read_text(), re.MULTILINE)
        self.assertGreater(len(refused), 10)
        for request in ("ChatRequest", "CompletionRequest"):
            self.assertEqual(self.schemas[request]["x-not-implemented"], refused)
            answer = self.server.post({"ChatRequest": "/v1/chat/completions",
                                       "CompletionRequest": "/v1/completions"}[request],
                                      {"messages": [{"role": "user", "content": "x"}], "prompt": "x",
                                       refused[0]: "what no schema has"})
            self.assertEqual((answer.status, answer.json["error"]["param"]), (501, refused[0]))

    def wrong_value(self, schema: dict):
        """A value of a type that the schema does not allow."""
        types = json.dumps(schema)
        for kind, value in (("object", {"x": 1}), ("boolean", True), ("string", "no")):
            if f'"{kind}"' not in types and not ("$ref" in types and kind == "object"):
                return value
        raise AssertionError(types)

    def test_the_server_names_each_field_that_has_a_wrong_type(self):
        base = {"ChatRequest": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
                "CompletionRequest": ("/v1/completions", {"prompt": "x"}),
                "TokenizeRequest": ("/tokenize", {"prompt": "x"})}
        of_chats = self.names("TemplateRequest") - {"messages"}
        for request, (path, valid) in base.items():
            for name, schema in self.schemas[request]["properties"].items():
                body = {**valid, name: self.wrong_value(schema)}
                if request == "TokenizeRequest" and name in of_chats:
                    body = {"messages": [{"role": "user", "content": "x"}], name: self.wrong_value(schema)}
                if name == "stream_options":
                    body["stream"] = True
                answer = self.server.post(path, body)
                self.assertEqual(answer.status, 400, (request, name, answer.text))
                self.assertTrue(answer.json["error"]["param"].startswith(name), (request, name, answer.text))
        for outer, inner in (("stream_options", "StreamOptions"), ("paceline", "Speculation"),
                             ("paceline.deadlines", "Deadlines")):
            for name, schema in self.schemas[inner]["properties"].items():
                own = {name: self.wrong_value(schema)}
                for place in reversed(outer.split(".")):
                    own = {place: own}
                answer = self.server.post("/v1/chat/completions", {**base["ChatRequest"][1], "stream": True, **own})
                self.assertEqual((answer.status, answer.json["error"]["param"]), (400, f"{outer}.{name}"), answer.text)

    def test_answers_have_what_it_requires(self):
        def check(value, schema: dict, place: str) -> None:
            if "$ref" in schema:
                schema = self.schemas[schema["$ref"].rsplit("/", 1)[1]]
            kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
                     "boolean": bool, "null": type(None)}
            kind = schema.get("type", [])
            if kind and "const" not in schema:
                allowed = [kinds[each] for each in ([kind] if isinstance(kind, str) else kind)]
                self.assertTrue(any(isinstance(value, each) for each in allowed), f"{place}: {value!r}")
            if "const" in schema:
                self.assertEqual(value, schema["const"], place)
            if "enum" in schema:
                self.assertIn(value, schema["enum"], place)
            if isinstance(value, dict) and "properties" in schema:
                self.assertEqual(set(schema.get("required", [])) - set(value), set(), place)
                self.assertEqual(set(value) - set(schema["properties"]), set(), f"{place}: not described")
                for name, each in value.items():
                    check(each, schema["properties"][name], f"{place}.{name}")
            if isinstance(value, list) and "items" in schema and "oneOf" not in schema["items"]:
                for each in value:
                    check(each, schema["items"], place + "[]")

        user = [{"role": "user", "content": "x"}]
        model = self.server.get("/v1/models").json["data"][0]["id"]
        for answer, schema in (
                (self.server.chat(max_tokens=5, n=2), "ChatCompletion"),
                (self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 5}), "Completion"),
                (self.server.get("/v1/models"), "Models"), (self.server.get(f"/v1/models/{model}"), "Model"),
                (self.server.get("/v1/models/other"), "Error"), (self.server.get("/health"), "Health"),
                (self.server.get("/health?deep=1"), "Health"), (self.server.get("/slots"), "Slots"),
                (self.server.get("/tokenizer_info"), "TokenizerInfo"),
                (self.server.post("/completion", {"prompt": "x", "n_predict": 3}), "NativeCompletion"),
                (self.server.get("/version"), "Version"), (self.server.get("/props"), "Props"),
                (self.server.post("/tokenize", {"content": "x", "with_pieces": True}), "Tokens"),
                (self.server.post("/tokenize", {"messages": user, "return_token_strs": True}), "Tokens"),
                (self.server.post("/detokenize", {"tokens": [5]}), "Text"),
                (self.server.post("/apply-template", {"messages": user}), "Prompt"),
                (self.server.post("/v1/chat/completions/input_tokens", {"messages": user}), "TokenCount"),
                (self.server.post("/v1/messages", {"messages": user, "max_tokens": 5}), "MessagesAnswer"),
                (self.server.post("/v1/messages", {}), "MessagesError"),
                (self.server.chat(temperature=-1), "Error")):
            check(answer.json, {"$ref": f"#/components/schemas/{schema}"}, schema)


if __name__ == "__main__":
    unittest.main()
