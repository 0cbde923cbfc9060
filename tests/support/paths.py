"""Where the repository's files are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the repository."""
MANAGE = ROOT / "example_project" / "manage.py"
"""The command of the example project."""
