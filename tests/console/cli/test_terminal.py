"""What people read fits their terminal, and has its colours."""

from __future__ import annotations

import io
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import OutputWrapper
from django.core.management.color import color_style

from django_shedlock.console.cli.terminal import (
    Cell,
    Column,
    Terminal,
    display_width,
    shortened,
)
from django_shedlock.fields import DatabaseNow
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRecord
from tests.support.commands import run
from tests.support.durations import rounded_up
from tests.support.lateness import be_overdue
from tests.support.locks import MINUTE, add_run, expire, take
from tests.support.runs import InterpreterRunner
from tests.support.terminals import in_terminal

ESCAPE = re.compile(r"\x1b\[[\d;]*m")
COLUMNS = [
    Column("NAME", 0, least=8, stays=True),
    Column("STATE", 1, stays=True),
    Column("HOLDER", 3, least=6),
    Column("WHEN", 2),
]
ROW = ("billing.send_digest", "free", "web-1:4711:9f86", Cell("2026-03-02", "03-02"))
NAMES = (
    'cron:shop.reports.jobs.send_monthly_report("customer-0000", days=30)',
    "تقرير:العملاء:المدفوعات:نهاية:الشهر:الماضي",
    "請求書の送信:顧客:月次レポート:東京支店:大阪支店",
    "short",
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Be in a terminal of so many columns."""

    def set_columns(number: int) -> Terminal:
        monkeypatch.setenv("COLUMNS", str(number))
        return Terminal(OutputWrapper(Screen()), color_style(force_color=True))

    return set_columns


def plain(text: str) -> list[str]:
    return ESCAPE.sub("", text).splitlines()


def shown(*args: str) -> list[str]:
    """Return the lines of the command in a terminal, without colours."""
    screen = Screen()
    call_command("shedlock", *args, stdout=screen)
    return plain(screen.getvalue())


@pytest.mark.once
@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("billing", 7, "billing"),
        ("billing", 6, "bil…ng"),
        ("billing", 1, "…"),
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
@pytest.mark.parametrize(
    ("width", "line"),
    [
        (60, "billing.send_digest  free   web-1:4711:9f86  2026-03-02"),
        (51, "billing.send_digest  free   web-1:4711:9f86  03-02"),
        (47, "billing.send_digest  free   web-1:…:9f86  03-02"),
        (40, "billing.s…d_digest  free   web…86  03-02"),
    ],
)
def test_table_gives_way_in_order(columns: Any, width: int, line: str) -> None:
    """First instants are short, then holders are cut, then names."""
    table = columns(width).table(COLUMNS, [ROW])
    assert plain(table)[1].rstrip() == line
    assert max(map(display_width, plain(table))) <= width


@pytest.mark.once
def test_columns_that_do_not_fit_are_left_out(columns: Any) -> None:
    """The least important one goes first, and the name has the room."""
    wide = [*COLUMNS, Column("X" * 25, 4)]
    table = columns(50).table(wide, [(*ROW, "x")])
    assert plain(table)[0].split() == ["NAME", "STATE", "HOLDER", "WHEN"]


@pytest.mark.once
def test_pipe_gets_everything() -> None:
    """Where there is no terminal nothing is cut, whatever COLUMNS says."""
    terminal = Terminal(OutputWrapper(io.StringIO()), color_style(force_color=True))
    long = ["x" * 500, *ROW[1:]]
    assert "x" * 500 in terminal.table(COLUMNS, [long])
    assert "\x1b" not in terminal.table(COLUMNS, [ROW])


@pytest.mark.once
def test_paragraph_keeps_commands_whole(columns: Any) -> None:
    """A command with the name of a lock can be copied, however long it is."""
    command = "`shedlock release 'a lock  with spaces' --force`"
    text = f"WARNING Lock 'a lock  with spaces': it has expired. {command} releases it."
    lines = plain(columns(40).paragraph(text, indent="  ", role="WARNING"))
    assert [line for line in lines if command in line]
    assert all(line.startswith("  ") for line in lines[1:])
    others = [line for line in lines if command not in line]
    assert max(map(display_width, others)) <= 40
    assert "'a lock  with spaces'" in " ".join(lines)


@pytest.mark.once
def test_output_that_cannot_show_a_name() -> None:
    """An old encoding gets escapes, and no traceback."""
    bytes_written = io.BytesIO()
    out = io.TextIOWrapper(bytes_written, encoding="latin-1")
    Terminal(OutputWrapper(out)).write("東京 … Zürich")
    out.flush()
    assert bytes_written.getvalue() == b"\\u6771\\u4eac ~ Z\xfcrich\n"


@pytest.fixture
def crowd() -> None:
    for name in NAMES:
        take(name)
        add_run(name)
    LockRecord.objects.update(locked_by="worker-4.eu-central-1.internal:4000:9f86d0818")
    add_run(NAMES[0], RunOutcome.FAILED, exception_type="shop.errors.TooLate")
    be_overdue(NAMES[1])
    expire(NAMES[2])


@pytest.mark.django_db
@pytest.mark.usefixtures("crowd")
@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("call", [("list",), ("history",), ("check",)])
def test_nothing_is_wider_than_the_terminal(
    columns: Any, width: int, call: tuple[str, ...]
) -> None:
    """Whatever the names, no line wraps wildly; and each lock is there."""
    columns(width)
    lines = plain(checked()) if call == ("check",) else shown(*call)
    commands = [line for line in lines if line.strip().startswith("`")]
    others = [line for line in lines if line not in commands]
    assert max(map(display_width, others)) <= width
    for beginning in ("cron:shop", "تقرير", "請求書"):
        assert any(beginning in line for line in lines)


def checked() -> str:
    screen = Screen()
    with pytest.raises(SystemExit):
        call_command("shedlock", "check", stdout=screen)
    return screen.getvalue()


@pytest.mark.django_db
@pytest.mark.usefixtures("crowd")
def test_columns_stand_below_each_other(columns: Any) -> None:
    """Wide letters and marks do not move the columns after them."""
    columns(200)
    header, *lines = shown("list")
    begin = header.index("STATE")
    for line in lines[: len(NAMES)]:
        before = re.split(r"(?=  (?:free|running|expired) )", line)[0]
        rest = line[len(before) :]
        gap = len(rest) - len(rest.lstrip())
        assert display_width(before) + gap == begin


@pytest.mark.django_db
def test_colours_by_state() -> None:
    """Forced or on a terminal, states and outcomes have Django's styles."""
    style = color_style(force_color=True)
    take("runs")
    take("kept", lock_at_least_for=MINUTE).release()
    take("expired")
    expire("expired")
    add_run("runs", RunOutcome.FAILED)
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
    add_run("job", RunOutcome.FAILED)
    assert "\x1b" not in run(*call)
    assert "\x1b" in run(*call, "--force-color")
    assert "\x1b" in run("--force-color", *call)
    assert "\x1b" not in run(*call, "--no-color")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("width", "is_whole"), [(80, False), (200, True)])
def test_real_terminal(width: int, is_whole: bool, tmp_path: Path) -> None:
    """In 80 columns the middle of a long name is cut out, in 200 it is not."""
    take(NAMES[0])
    environment = InterpreterRunner(tmp_path).environment
    command = [sys.executable, "-m", "django", "shedlock", "list"]
    coloured = in_terminal(command, environment, columns=width)
    assert max(map(len, plain(coloured))) <= width
    assert (NAMES[0] in coloured) is is_whole
    assert "\x1b[" in coloured
    command.append("--no-color")
    assert "\x1b[" not in in_terminal(command, environment, columns=width)


@pytest.mark.django_db
def test_long_list_says_how_much_is_left(columns: Any) -> None:
    """Of three hundred locks a screenful is shown, and how many more there are."""
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
    columns(80)
    lines = shown("list")
    assert lines[-1] == "250 more: see --limit."
    assert len(lines) == 52
    assert len(set(lines[1:-1])) == 50
