"""Commands in child processes of a command that has their lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRun
from tests.support.locks import state
from tests.support.nested import NestedProject
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.each_store, pytest.mark.django_db(transaction=True)]

REFUSAL = (
    "CommandError: Lock 'job' is held by {}, a run that this process belongs to, so "
    "nothing was done: a child process never enters a lock of its parent. There are "
    "three ways out: name an option of the child's command in its `unless`, use "
    "another name for one of the two, or no lock for the parent.\n"
)


@pytest.fixture
def project(tmp_path: Path) -> NestedProject:
    return NestedProject(tmp_path)


def refusals(count: int = 1, locked_by: str | None = None) -> str:
    """Return what so many children print that meet the lock of the only run."""
    if locked_by is None:
        locked_by = LockRun.objects.get().locked_by
    return REFUSAL.format(locked_by) * count


def test_command_that_starts_itself(project: NestedProject) -> None:
    """Each child is refused by the lock of its parent, and says so."""
    project.lock("outer", name="job")
    child = '$MANAGE outer "echo done"; echo status $?; '
    ended = project.manage("outer", child * 2)
    assert (ended.returncode, ended.stdout) == (0, "status 75\n" * 2)
    assert ended.stderr == refusals(2)


def test_child_does_not_wait_for_its_parent(project: NestedProject) -> None:
    """The parent may wait for the child, so a wait could only end in a skip."""
    project.lock("outer", name="job", wait="1h", keep_alive=True)
    ended = project.manage("outer", '$MANAGE outer "echo done"')
    assert (ended.returncode, ended.stdout) == (75, "")
    assert ended.stderr == refusals()


def test_command_that_starts_another_one_with_its_lock(project: NestedProject) -> None:
    """Two commands share a lock, and the decorated one starts the other."""
    project.lock("inner", name="decorated")
    ended = project.manage("decorated", '$MANAGE inner "echo done"')
    assert (ended.returncode, ended.stdout) == (75, "")
    assert "CommandError: Lock 'decorated' is held by" in ended.stderr


def test_name_of_each_shard(project: NestedProject) -> None:
    """A way out: a name with the arguments gives each child a lock of its own."""
    project.lock("outer", name="job:{shard}")
    ended = project.manage("outer", '$MANAGE outer "echo done" --shard 7')
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_option_of_the_shards(project: NestedProject) -> None:
    """A way out: the calls for the shards are part of the parent's, without a lock."""
    project.lock("outer", name="job", unless=["shard"])
    ended = project.manage("outer", '$MANAGE outer "echo done" --shard 7')
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
    assert LockRun.objects.get().name == "job"


def test_no_lock_for_the_parent(project: NestedProject) -> None:
    """A way out: what only starts the others needs no lock."""
    project.lock("inner", name="job")
    ended = project.manage("outer", '$MANAGE inner "echo done"')
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_shedlock_run_around_a_command_with_its_lock(project: NestedProject) -> None:
    """
    A command inside ``shedlock run`` with the same lock is refused with status 75.

    ``--on-skip-exit`` does not change that.
    """
    project.lock("inner", name="job")
    script = '$MANAGE inner "echo done"'
    options = ("--on-skip-exit", "3", "job")
    ended = project.manage("shedlock", "run", *options, "--", "sh", "-c", script)
    assert (ended.returncode, ended.stdout) == (75, "")
    assert ended.stderr == refusals()


@pytest.mark.parametrize("options", ["", "--wait 1h", "--force", "--on-skip-exit 3"])
def test_shedlock_run_inside_shedlock_run(project: NestedProject, options: str) -> None:
    """With one name, the inner one can never run its program."""
    script = f"$MANAGE shedlock run {options} job -- echo done"
    ended = project.manage("shedlock", "run", "job", "--", "sh", "-c", script)
    assert (ended.returncode, ended.stdout) == (75, "")
    assert ended.stderr == refusals()


def test_lock_of_a_grandparent(project: NestedProject) -> None:
    """A process knows the locks of all its ancestors."""
    project.lock("inner", name="job")
    script = "$MANAGE shedlock run other -- $MANAGE inner 'echo done'"
    ended = project.manage("shedlock", "run", "job", "--", "sh", "-c", script)
    assert (ended.returncode, ended.stdout) == (75, "")
    assert ended.stderr == refusals(locked_by=LockRun.objects.get(name="job").locked_by)


def test_same_name_in_another_namespace(project: NestedProject) -> None:
    """A lock of the same name in another namespace is another lock."""
    project.lock("inner", name="job")
    script = '$MANAGE inner "echo done"'
    project.settings["SHEDLOCK_NAMESPACE"] = "one"
    child = project.settings | {"SHEDLOCK_NAMESPACE": "two"}
    ended = project.manage(
        *("shedlock", "run", "job", "--", "sh", "-c"),
        f"export SHEDLOCK_TEST_SETTINGS='{project.dumped(child)}'; {script}",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_entry_of_cronjobs(project: NestedProject) -> None:
    """A child of a command that an entry of CRONJOBS calls is refused its lock."""
    project.lock("outer", name="job")
    project.lock("inner", name="job")
    project.settings["SHEDLOCK_NAMESPACE"] = "ours"
    name = project.add_cronjob("outer", '$MANAGE inner "echo done"')
    ended = project.manage("crontab", "run", name)
    assert ended.stdout == ""
    assert "CommandError: Lock 'ours.job' is held by" in ended.stderr


def test_job_that_an_operator_triggers(project: NestedProject) -> None:
    """A child of a job that ``shedlock trigger`` starts is refused the job's lock."""
    project.lock("inner", name="job")
    name = project.add_cronjob("outer", '$MANAGE inner "echo done"')
    project.settings["SHEDLOCK_CRONTAB"] = {
        "django.core.management.call_command": {"name": "job"}
    }
    assert name
    ended = project.manage("shedlock", "trigger", "job")
    assert ended.stdout == ""
    assert "CommandError: Lock 'job' is held by" in ended.stderr


def test_trigger_inside_a_run(project: NestedProject) -> None:
    """``shedlock trigger`` inside a run of the same job names the ways out."""
    project.lock("inner", name="job")
    project.add_cronjob("inner", "echo done")
    command = ("sh", "-c", "$MANAGE shedlock trigger job")
    ended = project.manage("shedlock", "run", "job", "--", *command)
    assert (ended.returncode, ended.stdout) == (75, "")
    assert ended.stderr.endswith(refusals())


def test_entry_of_cronjobs_inside_a_run(project: NestedProject) -> None:
    """A crontab's line that is wrapped by hand, with the lock of its entry."""
    project.lock("inner", name="job")
    name = project.add_cronjob("inner", "echo done")
    command = ("sh", "-c", f"$MANAGE crontab run {name}")
    ended = project.manage("shedlock", "run", "job", "--", *command)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert refusals() in ended.stderr


def after_the_run(
    project: NestedProject, folder: Path, child: str, left: LockState
) -> str:
    """
    Let a child of a run do its work once the run is over; return what it has written.

    ``left`` is the state in which the run leaves the lock.
    """
    os.mkfifo(folder / "go")
    script = (
        f"( read go < {folder}/go; {child}; mv {folder}/writing {folder}/written ) "
        f"> {folder}/writing 2>&1 &"
    )
    assert project.manage("outer", script).returncode == 0
    assert state("job") is left
    with (folder / "go").open("w") as go:
        print(file=go)
    wait_for((folder / "written").exists)
    return (folder / "written").read_text()


def test_child_that_outlives_the_run(project: NestedProject, tmp_path: Path) -> None:
    """A child that outlives the run can acquire the run's lock."""
    project.lock("outer", name="job")
    child = '$MANAGE outer "echo done"'
    assert after_the_run(project, tmp_path, child, LockState.FREE) == "done\n"


def test_child_of_a_run_whose_lock_is_kept(
    project: NestedProject, tmp_path: Path
) -> None:
    """The run is over, and its lock is kept by ``lock_at_least_for``: a usual skip."""
    project.lock("outer", name="job", lock_at_least_for="10m")
    child = '$MANAGE outer "echo done"; echo status $?'
    written = after_the_run(project, tmp_path, child, LockState.HELD_AT_LEAST)
    assert written == "status 0\n"


def test_identity_of_a_run_that_is_long_over(project: NestedProject) -> None:
    """A daemon passes on what it inherited when it was started, for years."""
    project.lock("outer", name="job")
    ended = project.manage("outer", "echo $SHEDLOCK_HELD_BY", SHEDLOCK_HELD_BY="old")
    locked_by = LockRun.objects.get().locked_by
    assert ended.stdout == f"old {locked_by}\n"


def test_somebody_elses_lock_is_skipped(project: NestedProject) -> None:
    """A command of another cron line meets the lock as ever, with status 0."""
    project.lock("outer", name="job")
    script = '(unset SHEDLOCK_HELD_BY; $MANAGE outer "echo done")'
    ended = project.manage("outer", script)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_without_locks(project: NestedProject) -> None:
    """With ``SHEDLOCK_ENABLED = False`` nothing is passed on, or refused."""
    project.settings["SHEDLOCK_ENABLED"] = False
    project.lock("outer", name="job")
    script = '$MANAGE outer "echo done [$SHEDLOCK_HELD_BY]"'
    ended = project.manage("outer", script)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done []\n", "")
