"""``manage.py shedlock run --jitter``: hundreds of hosts need not ask at once."""

from __future__ import annotations

import signal
from datetime import timedelta
from functools import partial

import pytest
from django.core.management import CommandError

from django_shedlock.clocks import host_now
from django_shedlock.models import LockRecord
from tests.support.commands import run
from tests.support.locks import take
from tests.support.run_conditions import (
    PAUSES,
    draw_the_longest,
    have_begun,
    tell_of_pauses,
)
from tests.support.runs import Runner, first_line, sh
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

EACH_MINUTE = ("--schedule", "* * * * *")


def test_jitter_comes_before_the_lock(runner: Runner) -> None:
    """While it passes, another host may take the lock; a signal ends it at once."""
    runner.prepare += [draw_the_longest, tell_of_pauses]
    waiting = runner.start("job", "--jitter", "1h", *sh("echo ran"))
    assert first_line(waiting) == PAUSES
    assert take("job").is_active
    waiting.terminate()
    assert waiting.communicate(timeout=PATIENCE) == ("", "")
    assert waiting.returncode == 128 + signal.SIGTERM


def test_command_runs_after_the_jitter(runner: Runner) -> None:
    """With ``--jitter`` the command runs after a pause."""
    runner.prepare.append(tell_of_pauses)
    assert runner.run("job", "--jitter", "10ms", *sh("echo ran"))[:2] == (
        0,
        f"{PAUSES}\nran\n",
    )


def test_jitter_shifts_no_tick(runner: Runner) -> None:
    """A start counts for the tick that it was started for, however late it is."""
    tick = host_now().replace(second=0, microsecond=0) - timedelta(minutes=2)
    begun = tick + timedelta(seconds=30)
    runner.prepare.append(partial(have_begun, begun))
    command = [*EACH_MINUTE, "--jitter", "1ms", *sh("echo ran")]
    assert runner.run("job", *command)[1] == "ran\n"
    assert LockRecord.objects.get().tick == tick
    assert runner.run("job", *command) == (0, "", "")


def test_operator_runs_the_newest_tick(runner: Runner) -> None:
    """What a person starts by force belongs to no tick that was missed."""
    begun = host_now() - timedelta(days=1)
    runner.prepare.append(partial(have_begun, begun))
    command = [*EACH_MINUTE, "--jitter", "1ms", "--force", *sh("echo ran")]
    assert runner.run("job", *command)[1] == "ran\n"
    tick = LockRecord.objects.get().tick
    assert tick is not None
    assert tick > begun + timedelta(hours=1)


@pytest.mark.parametrize("jitter", ["1m", "1h"])
def test_jitter_as_long_as_the_interval_is_refused(jitter: str) -> None:
    """A start would come with the next one."""
    with pytest.raises(CommandError, match=f"--jitter .{jitter}.* shorter"):
        run("run", "job", *EACH_MINUTE, "--jitter", jitter, "--", "true")
