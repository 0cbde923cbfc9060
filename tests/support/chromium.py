"""Debian's Chromium, driven through Selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.waiting import STARTUP_PATIENCE

QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)


def missing_reason() -> str | None:
    """Return why there can be no browser here, or ``None`` if there can."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed: it is in the group 'test-all'"
    for command in ("chromium", "chromedriver"):
        if not shutil.which(command):
            return f"{command} is not installed; Debian has it as a package"
    return None


@contextmanager
def chromium(
    profile: Path, *, width: int = 1280, height: int = 900, theme: str = "light"
) -> Iterator[Any]:
    """Give a browser with an empty profile; it ends with the block."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in (*QUIET, f"--user-data-dir={profile}", "--lang=en-US"):
        options.add_argument(argument)
    driver_path = shutil.which("chromedriver")
    service = webdriver.ChromeService(executable_path=driver_path, port=free_port())
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_script_timeout(STARTUP_PATIENCE)
        # A window of headless Chromium is never narrower than 500; a device is.
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": theme}]},
        )
        yield driver
    finally:
        driver.quit()
