"""The screenshots of the documentation: ``python -m tests.browser.screenshots``."""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path
from typing import Any

import django

FOLDER = Path(__file__).parents[2] / "docs" / "images"
PASSWORD = "screenshots"
WIDTH = 1280
PHONE = 390
LONGEST = 1100


def main() -> None:
    """Make a database in a file, show it in Chromium, and write the pictures."""
    django.setup()
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test.utils import get_runner, setup_test_environment

    from tests.support.scenes import incident

    setup_test_environment()
    runner = get_runner(settings)(verbosity=0, interactive=False)
    databases = runner.setup_databases()
    try:
        User.objects.create_superuser("operator", password=PASSWORD)
        incident()
        take_pictures()
    finally:
        runner.teardown_databases(databases)


def take_pictures() -> None:
    """Take a picture of each page in both themes, and of the list on a phone."""
    from django.contrib.staticfiles.testing import StaticLiveServerTestCase

    from tests.support.chromium import chromium

    class Server(StaticLiveServerTestCase):
        host = "127.0.0.1"

    FOLDER.mkdir(parents=True, exist_ok=True)
    Server.setUpClass()
    try:
        for theme in ("light", "dark"):
            with tempfile.TemporaryDirectory() as profile:
                with chromium(Path(profile), width=WIDTH, theme=theme) as browser:
                    visit(browser, Server.live_server_url, theme)
        with tempfile.TemporaryDirectory() as profile:
            with chromium(Path(profile), width=PHONE, height=844) as browser:
                log_in(browser, Server.live_server_url)
                browser.get(
                    f"{Server.live_server_url}/admin/django_shedlock/lockrecord/"
                )
                save(browser, "list-phone", PHONE)
    finally:
        Server.tearDownClass()


def log_in(browser: Any, server: str) -> None:
    browser.get(f"{server}/admin/")
    browser.find_element("name", "username").send_keys("operator")
    browser.find_element("name", "password").send_keys(PASSWORD)
    browser.find_element("css selector", "input[type=submit]").click()


def visit(browser: Any, server: str, theme: str) -> None:
    from tests.support.scenes import STUCK

    log_in(browser, server)
    locks = f"{server}/admin/django_shedlock/lockrecord/"
    browser.get(locks)
    save(browser, f"list-{theme}")
    browser.get(f"{locks}mirror.pull/change/")
    save(browser, f"lock-{theme}")
    browser.get(f"{locks}{STUCK.replace('_', '_5F')}/change/")
    browser.find_element("css selector", "button[value=release_selected]").click()
    save(browser, f"confirmation-{theme}")


def save(browser: Any, name: str, width: int = WIDTH) -> None:
    """Write the whole page as ``name.png``."""
    size = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    height = min(size["height"], LONGEST)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    picture = browser.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    (FOLDER / f"{name}.png").write_bytes(base64.b64decode(picture["data"]))
    print(name, size["width"], size["height"])


if __name__ == "__main__":
    sys.exit(main())
