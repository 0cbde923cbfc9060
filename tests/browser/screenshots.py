"""
The screenshots of the documentation: ``python -m tests.browser.screenshots``.

They show the demo's incident, a quiet project, and the plain admin of a project that
lacks the console. ``python -m tests.browser.screenshots /tmp/new`` writes the pictures
to that folder instead of that of the documentation.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.support.paths import MANAGE, ROOT

FOLDER = ROOT / "docs" / "images"
LOCKS = "/admin/django_shedlock/lockrecord/"
WIDTH, LONGEST = 1280, 1100
PHONE_WIDTH, PHONE_HEIGHT = 390, 844
THEMES = ("light", "dark")
START_TIMEOUT_SECONDS = 60
USER = "admin"
"""The name and the password, as the demo has them."""

SERVE_SCENE = """
import importlib, os, sys, threading

import django
from django.test.utils import get_runner, setup_test_environment

django.setup()
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles.testing import StaticLiveServerTestCase

setup_test_environment()
runner = get_runner(settings)(verbosity=0, interactive=False)
databases = runner.setup_databases()

class Server(StaticLiveServerTestCase):
    host = "127.0.0.1"

try:
    User.objects.create_superuser("admin", password="admin")
    module, _, scene = sys.argv[1].rpartition(".")
    getattr(importlib.import_module(module), scene)()
    Server.setUpClass()
    print(Server.live_server_url, flush=True)
    sys.stdin.read()
    Server.tearDownClass()
finally:
    runner.teardown_databases(databases)
"""
"""Serves what a function has made, until its input ends."""


class Photographer:
    """Takes pictures of one server's pages, for one screen and theme."""

    def __init__(self, browser: Any, server: str, folder: Path, width: int):
        self.browser = browser
        self.server = server
        self.folder = folder
        self.width = width

    def log_in(self) -> None:
        self.open("/admin/")
        self.browser.find_element("name", "username").send_keys(USER)
        self.browser.find_element("name", "password").send_keys(USER)
        self.press("#login-form [type=submit]")

    def open(self, address: str) -> None:
        self.browser.get(self.server + address)

    def press(self, selector: str) -> None:
        self.browser.find_element("css selector", selector).click()

    def save(self, name: str) -> None:
        """Write the page, or the upper part of a long one, as ``name.png``."""
        size = self.browser.execute_cdp_cmd("Page.getLayoutMetrics", {})
        height = min(size["cssContentSize"]["height"], LONGEST)
        clip = {"x": 0, "y": 0, "width": self.width, "height": height, "scale": 1}
        picture = self.browser.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        (self.folder / f"{name}.png").write_bytes(base64.b64decode(picture["data"]))
        print(name, self.width, height)


def main() -> None:
    """Serve each of the three projects, and take its pictures."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["NO_PROXY"] = "127.0.0.1"
    with incident() as server:
        for theme in THEMES:
            with photographer(server, folder, theme=theme) as camera:
                take_incident(camera, theme)
        with photographer(server, folder, width=PHONE_WIDTH) as camera:
            take_phone(camera)
    with scene("tests.support.scenes.quiet", "tests.settings") as server:
        with photographer(server, folder) as camera:
            camera.open(LOCKS)
            camera.save("quiet-light")
    with scene("tests.support.scenes.bad_morning", "tests.core_settings") as server:
        for theme in THEMES:
            with photographer(server, folder, theme=theme) as camera:
                camera.open(lock("billing.send_digest"))
                camera.save(f"plain-lock-{theme}")


def take_incident(camera: Photographer, theme: str) -> None:
    """Show what is wrong, and the way to a release."""
    camera.open(LOCKS)
    camera.save(f"list-{theme}")
    camera.open(f"{LOCKS}timeline/")
    camera.save(f"timeline-{theme}")
    camera.open(lock("shop.pay_suppliers"))
    camera.save(f"lock-{theme}")
    camera.open(lock("shop.sync_prices"))
    camera.press("button[value=release_selected]")
    camera.save(f"confirmation-{theme}")


def take_phone(camera: Photographer) -> None:
    """Show the first pages as somebody sees them who was woken up."""
    camera.open(LOCKS)
    camera.save("list-phone")
    camera.open(f"{LOCKS}timeline/")
    camera.save("timeline-phone")


def lock(name: str) -> str:
    """Return the address of a lock's page."""
    return f"{LOCKS}{name.replace('_', '_5F')}/change/"


@contextmanager
def photographer(
    server: str, folder: Path, *, width: int = WIDTH, theme: str = "light"
) -> Iterator[Photographer]:
    """Give a browser of a person who is logged in."""
    from tests.support.chromium import chromium

    height = 900 if width == WIDTH else PHONE_HEIGHT
    screen: dict[str, Any] = {"width": width, "height": height, "theme": theme}
    with tempfile.TemporaryDirectory() as profile:
        with chromium(Path(profile), **screen) as browser:
            camera = Photographer(browser, server, folder, width)
            camera.log_in()
            yield camera


@contextmanager
def incident() -> Iterator[str]:
    """Let the demo make its incident, and serve it, on the host with a wrong clock."""
    from tests.support.incident import incident as made_incident
    from tests.support.ports import free_port

    with tempfile.TemporaryDirectory() as folder:
        # The demo finds its database by the environment.
        os.environ["SHEDLOCK_EXAMPLE_FILE"] = str(Path(folder, "example.sqlite3"))
        os.environ.pop("SHEDLOCK_EXAMPLE_DATABASE_URL", None)
        with made_incident():
            address = f"127.0.0.1:{free_port()}"
            with subprocess.Popen(
                [sys.executable, str(MANAGE), "runserver", "--noreload", address],
                env={**os.environ, "SHEDLOCK_EXAMPLE_CLOCK_AHEAD": "120"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as process:
                try:
                    wait_until_served(f"http://{address}/admin/login/")
                    yield f"http://{address}"
                finally:
                    process.kill()


def wait_until_served(address: str) -> None:
    """Return as soon as the server answers."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        try:
            with urlopen(address):
                return
        except URLError:
            assert time.monotonic() < deadline, address
            time.sleep(0.1)


@contextmanager
def scene(function: str, settings: str) -> Iterator[str]:
    """Serve a project with these settings, and what the function has made."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE_SCENE, function],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": settings},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            server = process.stdout.readline().strip()
            assert server, f"{function} can't be served"
            yield server
            process.communicate()
        finally:
            process.kill()


if __name__ == "__main__":
    main()
