"""A Prometheus of the tests' own, which scrapes a page, and the tool beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest
import yaml

from tests.support.ports import free_port
from tests.support.waiting import STARTUP_PATIENCE, wait_for


def needs(program: str) -> pytest.MarkDecorator:
    """Skip a test where the program is missing; in ``.ci/run`` a skip is a failure."""
    reason = f"{program} is missing: install Debian's package prometheus"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


class Prometheus:
    """Answers queries on loopback."""

    def __init__(self, address: str):
        self._address = f"http://{address}/api/v1"
        self._open = build_opener(ProxyHandler({})).open

    def ask(self, path: str) -> Any:
        """Return the data of its answer; ``None`` while it does not listen yet."""
        try:
            with self._open(
                f"{self._address}/{path}", timeout=STARTUP_PATIENCE
            ) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:  # it is not ready
            error.close()
        except OSError:
            pass
        return None

    def firing(self) -> set[tuple[str, str]]:
        """Return each alert that fires, with its lock."""
        found = self.ask("alerts") or {"alerts": []}
        return {
            (alert["labels"]["alertname"], alert["labels"].get("lock", ""))
            for alert in found["alerts"]
            if alert["state"] == "firing"
        }


@contextmanager
def prometheus(
    folder: Path, rules: dict[str, Any], scraped: str, token: str
) -> Iterator[Prometheus]:
    """Start one that scrapes this address several times a second; end it afterwards."""
    (folder / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "200ms"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": "project",
                "metrics_path": "/metrics",
                "scrape_timeout": "1s",
                "authorization": {"credentials": token},
                "static_configs": [{"targets": [scraped]}],
            }
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        server = Prometheus(address)

        def listens() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            return server.ask("status/config") is not None

        assert wait_for(listens, STARTUP_PATIENCE)
        yield server
    finally:
        process.kill()
        process.wait(STARTUP_PATIENCE)
