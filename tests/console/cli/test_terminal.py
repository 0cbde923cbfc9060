"""What people read: narrow and wide tables, and Django's colours."""

from __future__ import annotations

import io
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.color import color_style, no_style

from django_shedlock.cli.terminal import (
    Cell,
    display_width,
    shortened,
    table,
)
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import run
from tests.support.durations import rounded_up
from tests.support.lateness import be_overdue
from tests.support.locks import MINUTE, end_run, expire, take
from tests.support.runs import InterpreterRunner
from tests.support.terminals import in_terminal

ESCAPE = re.compile(r"\x1b\[[\d;]*m")
HOLDER = "worker-4.eu-central-1.internal:4000:9f86d0818"
NAMES = (
    'cron:shop.reports.jobs.send_monthly_report("customer-0000", days=30)',
    "تقرير:العملاء:المدفوعات:نهاية:الشهر:الماضي",
    "請求書の送信:顧客:月次レポート:東京支店:大阪支店",
    "short",
)


@pytest.mark.once
@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("billing", 7, "billing"),
        ("billing", 6, "bil…ng"),
        ("billing", 1, "…"),
        ("bill\ning", 9, r"bill\ning"),
        ("請求書の送信", 12, "請求書の送信"),
        ("請求書の送信", 9, "請求…送信"),
        ("請求書の送信", 8, "請求…信"),
        ("e\u0301e\u0301e\u0301e\u0301", 3, "e\u0301…e\u0301"),
    ],
)
def test_middle_is_cut(text: str, width: int, short: str) -> None:
    """What distinguishes names is often at their end; wide letters count twice."""
    assert shortened(text, width) == short
    assert display_width(short) <= width


@pytest.mark.once
@pytest.mark.parametrize("width", range(1, 20))
def test_no_mark_stands_over_the_ellipsis(width: int) -> None:
    """A letter is cut together with what is drawn over it."""
    short = shortened("a\u0301" * 12, width)
    assert display_width(short) <= width
    assert "…\u0301" not in short


@pytest.mark.once
@pytest.mark.parametrize("style", [no_style(), color_style(force_color=True)])
def test_columns_stand_below_each_other(style: object) -> None:
    """Neither wide letters and marks nor colours move the columns after them."""
    rows = [{"NAME": Cell(name, "ERROR"), "STATE": "free"} for name in NAMES]
    header, *lines = ESCAPE.sub("", table(style, rows)).splitlines()
    begin = header.index("STATE")
    assert begin == max(map(display_width, NAMES)) + 2
    for line in lines:
        assert display_width(line.removesuffix("free")) == begin


@pytest.fixture
def crowd() -> None:
    for name in NAMES:
        take(name)
        end_run(name, duration=timedelta(minutes=2))
    LockRecord.objects.update(locked_by=HOLDER)
    end_run(NAMES[0], RunOutcome.FAILED, exception_type="shop.errors.TooLate")
    be_overdue(NAMES[1])
    expire(NAMES[2])


@pytest.mark.django_db
@pytest.mark.usefixtures("crowd")
@pytest.mark.parametrize("call", ["list", "history"])
def test_narrow_table_fits_a_terminal(call: str) -> None:
    """Whatever the names and the findings, eighty columns show each lock."""
    header, *lines = run(call).splitlines()
    assert "LOCKED BY" not in header
    assert max(map(display_width, [header, *lines])) <= 80
    for beginning in ("cron:shop", "تقرير", "請求書"):
        assert any(beginning in line for line in lines)


@pytest.mark.django_db
@pytest.mark.usefixtures("crowd")
@pytest.mark.parametrize("call", ["list", "history"])
def test_wide_table_cuts_nothing(call: str) -> None:
    """A wide table has all columns, and whole names, holders and instants."""
    header, *lines = run(call, "--wide").splitlines()
    assert "LOCKED BY" in header
    for name in NAMES:
        [line] = [line for line in lines if name in line][:1]
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line)
    assert sum(HOLDER in line for line in lines) == (4 if call == "list" else 0)


@pytest.mark.django_db
def test_output_that_cannot_show_a_name() -> None:
    """An old encoding gets escapes, and no traceback."""
    take("東京 Zürich")
    written = io.BytesIO()
    out = io.TextIOWrapper(written, encoding="latin-1")
    call_command("shedlock", "list", stdout=out)
    out.flush()
    assert b"\\u6771\\u4eac Z\xfcrich  running" in written.getvalue()


@pytest.mark.django_db
def test_colours_by_state() -> None:
    """Forced or on a terminal, states and outcomes have Django's styles."""
    style = color_style(force_color=True)
    take("runs")
    take("kept", lock_at_least_for=MINUTE).release()
    take("expired")
    expire("expired")
    end_run("runs", RunOutcome.FAILED)
    coloured = run("--force-color", "list")
    assert style.SUCCESS("running") in coloured
    assert style.HTTP_NOT_MODIFIED("held at least") in coloured
    assert style.ERROR("expired") in coloured
    assert style.ERROR("failed") in coloured
    plain = rounded_up(ESCAPE.sub("", coloured))
    assert plain.split() == rounded_up(run("list")).split()


@pytest.mark.django_db
@pytest.mark.parametrize("call", [("list",), ("history",), ("show", "job")])
def test_no_colours_without_a_terminal(call: tuple[str, ...]) -> None:
    """A pipe gets plain text, unless it is forced; before or after the subcommand."""
    take("job")
    end_run("job", RunOutcome.FAILED)
    assert "\x1b" not in run(*call)
    assert "\x1b" in run(*call, "--force-color")
    assert "\x1b" in run("--force-color", *call)
    assert "\x1b" not in run(*call, "--no-color")


@pytest.mark.django_db(transaction=True)
def test_real_terminal(tmp_path: Path) -> None:
    """A terminal gets colours, and the same wide columns at any width."""
    take(NAMES[0])
    environment = InterpreterRunner(tmp_path).environment
    command = [sys.executable, "-m", "django", "shedlock", "list"]
    coloured = in_terminal(command, environment, columns=200)
    assert shortened(NAMES[0]) in coloured
    assert "\x1b[" in coloured
    command += ["--no-color", "--wide"]
    plain = in_terminal(command, environment, columns=40)
    assert NAMES[0] in plain
    assert "\x1b[" not in plain


@pytest.mark.django_db
def test_long_list_says_that_there_is_more() -> None:
    """Of three hundred locks a screenful is shown, and that there are more."""
    now = DatabaseNow()
    LockRecord.objects.bulk_create(
        LockRecord(
            name=f"{NAMES[0]}:{number:03}",
            locked_by="",
            locked_at=now - timedelta(hours=1),
            lock_until=now - timedelta(hours=1),
            released_at=now,
        )
        for number in range(300)
    )
    lines = run("list").splitlines()
    assert lines[-1] == "There are more locks: see --limit."
    assert len(lines) == 52
    assert len(set(lines[1:-1])) == 50
