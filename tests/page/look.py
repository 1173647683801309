"""Uses the page of `paceline serve` in Chromium and writes pictures. Run by tests/page/look."""

import os
import re
import signal
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from paceline_cli import TINY, demo_model
from serve_server import Server

KEY = "a-key-for-page"
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
LIMIT_MS = 120_000
QUESTION = "Write a short poem about the sea, then repeat it word for word."


class Look:
    """A browser page whose errors are kept, and pictures of it."""

    def __init__(self, browser, address: str, folder: Path, size: dict, scheme: str) -> None:
        self.folder = folder
        self.context = browser.new_context(viewport=size, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(LIMIT_MS)
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", lambda told: self.errors.append(told.text) if told.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.page.goto(address)

    def picture(self, name: str) -> None:
        self.page.screenshot(path=self.folder / f"{name}.png")
        print(self.folder / f"{name}.png")

    def give_key(self) -> None:
        self.page.locator("#key").wait_for()
        self.page.locator("#key").fill(KEY)
        self.page.keyboard.press("Enter")
        expect(self.page.locator("#figures")).to_contain_text("running", timeout=LIMIT_MS)

    def ask(self, text: str, speculation: str) -> None:
        self.page.get_by_label(speculation, exact=True).check()
        self.page.locator("#prompt").fill(text)
        self.page.keyboard.press("Enter")

    def wait_end(self) -> None:
        expect(self.page.locator("#answers")).to_have_attribute("aria-busy", "false", timeout=LIMIT_MS)

    def unexpected(self) -> list[str]:
        """Without the browser's own lines about answers of the server that were asked for."""
        own = ("Failed to load resource",)
        return [text for text in self.errors if not text.startswith(own)]


def keyboard_reaches(page, wanted: set[str]) -> set[str]:
    """The ids that Tab does not reach."""
    page.locator("h1").click()
    left = set(wanted)
    for _ in range(40):
        page.keyboard.press("Tab")
        left.discard(page.evaluate("document.activeElement.id || document.activeElement.value"))
    return left


def use(browser, server: Server, address: str, folder: Path) -> None:
    light = Look(browser, address, folder, WIDE, "light")
    page = light.page
    page.locator("#key").wait_for()
    light.picture("1-wants-a-key")
    light.give_key()
    assert not page.evaluate("localStorage.length") and page.evaluate("sessionStorage.length") == 1

    light.ask(QUESTION, "compare")
    page.locator(".answer").nth(1).locator(".accepted").first.wait_for()
    light.picture("2-compare-under-way")
    light.wait_end()
    expect(page.locator(".verdict")).to_contain_text("the same")
    assert "NOT" not in page.locator(".verdict").inner_text()
    expect(page.locator("#positions li").first).to_be_visible(timeout=LIMIT_MS)
    page.wait_for_timeout(1500)
    light.picture("3-compared")
    print(page.locator(".verdict").inner_text())
    texts = page.locator(".answer .text").all_inner_texts()
    assert texts[0] == texts[1] and texts[0], texts

    # Stop and retry, by keyboard. The stages stand still, so that there is something to stop.
    page.get_by_label("at most").evaluate("field => { field.value = 400; }")
    server.stop_stages()
    light.ask("And now one about the mountains.", "on")
    page.locator("#stop:enabled").wait_for()
    page.keyboard.press("Escape")
    expect(page.locator(".failure")).to_have_text("Stopped.")
    server.continue_stages()
    light.picture("4-stopped")
    page.locator("#retry").focus()
    page.keyboard.press("Enter")
    page.locator(".turn").nth(1).locator(".text span").first.wait_for()
    light.wait_end()
    assert page.locator(".failure").count() == 0
    missed = keyboard_reaches(page, {"key-show", "answers", "prompt", "send", "retry", "clear"})
    assert not missed, missed

    for name, size, scheme in (("5-dark", WIDE, "dark"), ("6-narrow", NARROW, "light"), ("7-narrow-dark", NARROW, "dark")):
        other = Look(browser, address, folder, size, scheme)
        other.give_key()
        other.ask("Name three colours. Then name the same three colours again.", "compare")
        other.wait_end()
        other.page.wait_for_timeout(1500)
        other.picture(name)
        wide = other.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name}: {wide} pixels wider than the screen"
        assert not other.unexpected(), other.unexpected()
        other.context.close()

    # A stage that dies, in the middle of a stream.
    light.ask("Tell me a long story about a bear.", "on")
    page.locator(".turn").nth(2).locator(".text span").first.wait_for()
    for pid in server.stages():
        os.kill(pid, signal.SIGKILL)
    light.wait_end()
    page.wait_for_timeout(2500)
    light.picture("8-after-a-killed-stage")
    assert page.locator(".failure").count() == 0, "the stream did not survive"

    # A request that the server refuses, then a server that is gone.
    page.locator("#temperature").evaluate("field => { field.value = -1; }")
    light.ask("x", "on")
    expect(page.locator(".failure").last).to_contain_text("temperature")
    server.ended_by_test = True
    server.process.kill()
    server.process.wait()
    light.ask("Are you there?", "on")
    expect(page.locator(".failure").last).to_contain_text("connection")
    expect(page.locator("#state")).to_have_text("no connection", timeout=LIMIT_MS)
    light.picture("9-after-errors")
    assert not light.unexpected(), light.unexpected()
    assert light.hosts == {re.sub("https?://", "", address)}, light.hosts
    light.context.close()


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        keys = Path(name) / "keys"
        keys.write_text(KEY + "\n")
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium",
                                             args=["--no-sandbox", "--disable-gpu"])
        with Server("--method", "prompt-lookup", "-c", "1024", "--api-key-file", str(keys),
                    model=demo_model() or TINY) as server:
            use(browser, server, f"http://127.0.0.1:{server.port}", folder)
        browser.close()
    print("tests/page/look: all checks passed")


if __name__ == "__main__":
    main()
