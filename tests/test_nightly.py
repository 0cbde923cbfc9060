"""What runs at night: its sections, one after the other."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests import nightly
from tests.support.paths import ROOT
from tests.support.stores import REQUIRED

pytestmark = pytest.mark.once

FAKES = {
    "good": ("-c", "print('all is well')"),
    "bad": ("-c", "raise SystemExit(3)"),
    "last": ("-c", "print('still here')"),
}


def test_section_that_fails_does_not_stop_the_next(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """All sections run and show their time, and one failure fails the night."""
    assert nightly.main([], FAKES) == 1
    said = capfd.readouterr().out
    assert said.index("all is well") < said.index("still here")
    assert re.search(r"^good +0 s  passed$", said, re.M)
    assert re.search(r"^bad +0 s  FAILED with status 3$", said, re.M)
    assert re.search(r"^last +0 s  passed$", said, re.M)


def test_named_sections_run_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Sections that are not named do not run."""
    assert nightly.main(["last"], FAKES) == 0
    said = capfd.readouterr().out
    assert "still here" in said
    assert "all is well" not in said


def test_unknown_section_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    """A wrong name runs nothing, and shows the names that there are."""
    assert nightly.main(["good", "soap"], FAKES) == 2
    said = capfd.readouterr().out
    assert said == "No section soap: choose from good, bad, last.\n"


@pytest.mark.parametrize(
    ("named", "expected"), [({}, "all"), ({REQUIRED: "all but etcd"}, "all but etcd")]
)
def test_section_whose_server_is_missing_fails(
    named: dict[str, str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """All skips are failures, unless the environment names exceptions."""
    monkeypatch.delenv(REQUIRED, raising=False)
    for variable, value in named.items():
        monkeypatch.setenv(variable, value)
    show = f"import os; print('required:', os.environ['{REQUIRED}'])"
    assert nightly.main([], {"show": ("-c", show)}) == 0
    assert f"required: {expected}\n" in capfd.readouterr().out


@pytest.mark.parametrize("name", nightly.SECTIONS)
def test_section_names_what_exists(name: str) -> None:
    """Each module and each folder of tests that a section names is there."""
    _, module, *arguments = nightly.SECTIONS[name]
    assert importlib.util.find_spec(module) is not None
    assert all(Path(ROOT, each).is_dir() for each in arguments if "tests/" in each)


def test_workflow_runs_each_section() -> None:
    """The nightly workflow and the command know the same sections."""
    path = ROOT / ".github" / "workflows" / "nightly.yml"
    text = path.read_text(encoding="utf-8")
    stores = re.findall(r"\{store: (\w+),", text)
    called = set(re.findall(r"-m tests --nightly ([a-z]+)$", text, re.M))
    for kind in re.findall(r'-m tests --nightly "(\w+)-\$STORE"', text):
        called |= {
            name for name in nightly.SECTIONS if name in {f"{kind}-{s}" for s in stores}
        }
    assert called == set(nightly.SECTIONS)
