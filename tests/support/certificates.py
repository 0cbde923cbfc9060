"""Certificates that the tests make for servers of their own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

NEW = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
    *("ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=tests"),
    *("-addext", "subjectAltName=IP:127.0.0.1"),
)


class Certificate(NamedTuple):
    """The paths of a certificate of 127.0.0.1, which signed itself, and of its key."""

    path: str
    key: str


def certificate(folder: Path, name: str) -> Certificate:
    """Make one; whoever is to trust it names it as its authority."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing: install Debian's package openssl")
    made = Certificate(str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
    command = (*NEW, "-out", made.path, "-keyout", made.key)
    subprocess.run(command, check=True, capture_output=True)
    return made
