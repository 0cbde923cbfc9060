"""Before a job may start again, an operator looks whether its last run goes on."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from django_shedlock.console.models import LockAction
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.locks import MINUTE, expire, force_release, pause, state, take
from tests.support.operators import HOSTILE, LIST, ask, confirm, content

pytestmark = pytest.mark.django_db

HOLDER = "web-2:4711:9f86d081884c7d65"
COMMAND = "ps -p 4711 -o pid,lstart,etime,args"
BOX = 'type="checkbox" name="process_is_gone"'
WITHOUT_BOX = {"process_is_gone": ""}
"""What a browser sends of a check box that is not ticked is nothing, or no value."""
REFUSED = "Look first. Then tick this box."


def hold(name: str = "billing", locked_by: str = HOLDER, **columns: Any) -> None:
    """Let this holder have run the lock's job for 55 minutes."""
    take(name)
    told = {
        "locked_by": locked_by,
        "locked_at": DatabaseNow() - 55 * MINUTE,
        "open_run": locked_by,
        **columns,
    }
    LockRecord.objects.filter(name=name).update(**told)


def kept(name: str = "billing") -> Lock:
    """Make a lock whose job has ended, and that lock_at_least_for keeps."""
    lock = take(name, lock_at_least_for=MINUTE)
    lock.release()
    return lock


def abandoned(name: str = "billing") -> Lock:
    """Make a lock that is free, and whose last run may still go on."""
    lock = take(name)
    force_release(get_provider(), name)
    get_provider().account_for_loss(lock, has_ended=False)
    return lock


class TestClues:
    """What the page says of a job that may still run."""

    def test_duration_is_shown_beside_the_usual_one(self, chief: Client) -> None:
        """An operator sees at once that the run takes unusually long."""
        hold(usual=95)
        text = content(ask(chief, "billing"))
        assert re.search(r"running: runs for 55m(\d+s)?, usually 1m35s ", text)

    def test_usual_duration_may_be_unknown(self, chief: Client) -> None:
        """Without a success nobody knows it, and the page does not name it."""
        hold()
        text = content(ask(chief, "billing"))
        assert re.search(r"running: runs for 55m(\d+s)? no heartbeat", text)
        assert "usually" not in text

    def test_expired_run_has_begun_some_time_ago(self, chief: Client) -> None:
        """Nobody knows whether it still runs, so the page says when it began."""
        hold(usual=95)
        expire("billing")
        text = content(ask(chief, "billing"))
        assert re.search(r"began 55m(\d+s)? ago, usually takes 1m35s", text)
        hold("report")
        expire("report")
        assert re.search(r"began 55m(\d+s)? ago no", content(ask(chief, "report")))

    def test_last_heartbeat_is_shown(self, chief: Client) -> None:
        """A heartbeat of a few seconds ago means that the worker lives."""
        hold(extended_at=DatabaseNow() - timedelta(seconds=6))
        text = content(ask(chief, "billing"))
        assert re.search(r"last heartbeat [67]s ago", text)

    def test_lack_of_heartbeats_is_told(self, chief: Client) -> None:
        """A lease that was never extended says nothing about its worker."""
        hold()
        text = content(ask(chief, "billing"))
        assert "no heartbeat: its lease was not extended" in text

    @pytest.mark.parametrize("is_expired", [False, True])
    def test_command_is_ready_to_copy(self, chief: Client, is_expired: bool) -> None:
        """The page names the host, and the line that shows the process."""
        hold()
        if is_expired:
            expire("billing")
        page = ask(chief, "billing").content.decode()
        assert f'<code dir="ltr">{COMMAND}</code>' in page
        assert "On host <bdi>web-2</bdi>, run:" in page

    def test_holder_without_a_process_id_has_a_host_only(self, chief: Client) -> None:
        """ShedLock for Java writes the name of its host, and there is no command."""
        hold(locked_by="java-host")
        page = ask(chief, "billing").content.decode()
        assert "Check on <bdi>java-host</bdi> whether the process still runs." in page
        assert "ps -p" not in page

    def test_run_that_lost_its_lock_is_looked_for_too(self, chief: Client) -> None:
        """The holder may run beside an earlier run, so both processes are named."""
        hold(
            outcome=RunOutcome.LOST.value,
            last_run="web-1:815:2c624232cdd22177",
            started_at=DatabaseNow() - 90 * MINUTE,
        )
        text = content(ask(chief, "billing"))
        assert "On host web-2, run: ps -p 4711 " in text
        told = "Its last run, as web-1:815:2c624232cdd22177, may still go on."
        assert f"{told} On host web-1, run: ps -p 815 " in text

    def test_open_run_behind_another_holder_is_looked_for(self, chief: Client) -> None:
        """ShedLock for Java may have acquired the lock of a run that still goes on."""
        hold(locked_by="java-host", open_run=HOLDER)
        text = content(ask(chief, "billing"))
        assert "Check on java-host whether the process still runs." in text
        assert f"Its last run, as {HOLDER}, may still go on." in text
        assert f"On host web-2, run: {COMMAND}" in text

    def test_hostile_host_is_text(self, chief: Client) -> None:
        """A host with markup in its name is escaped."""
        hold(locked_by=f"{HOSTILE}:4711:9f86d081884c7d65")
        page = ask(chief, "billing").content.decode()
        assert HOSTILE not in page
        assert "On host <bdi>&lt;script&gt;" in page
        assert COMMAND in page

    @pytest.mark.parametrize("action", ["release_selected", "extend_selected"])
    def test_job_that_has_ended_has_no_clues(self, chief: Client, action: str) -> None:
        """Where only lock_at_least_for keeps the lock, there is nothing to look for."""
        kept()
        text = content(ask(chief, "billing", action=action))
        for clue in ("runs for", "heartbeat", "ps -p", "may still go on"):
            assert clue not in text


class TestAssurance:
    """Without the words that the process is gone, no job may start beside it."""

    @pytest.mark.parametrize("is_expired", [False, True])
    @pytest.mark.parametrize("told", [{}, WITHOUT_BOX])
    def test_release_is_refused_without_it(
        self, chief: Client, told: dict[str, str], is_expired: bool
    ) -> None:
        """The server asks again, also after a forged form that lacks the box."""
        hold()
        if is_expired:
            expire("billing")
        before = state("billing")
        assert BOX in ask(chief, "billing").content.decode()
        form = {
            "action": "release_selected",
            "confirmed": "yes",
            "_selected_action": ["billing"],
            "locked_by": [HOLDER],
            "reason": "the pod is gone",
        }
        page = chief.post(reverse(LIST), form | told)
        assert page.status_code == 200
        assert REFUSED in content(page)
        assert BOX in page.content.decode()
        assert "the pod is gone</textarea>" in page.content.decode()
        assert state("billing") is before
        assert not LockAction.objects.exists()
        assert not LogEntry.objects.exists()

    @pytest.mark.parametrize("is_expired", [False, True])
    def test_release_is_done_with_it(self, chief: Client, is_expired: bool) -> None:
        """An operator who has looked ticks the box and releases the lock."""
        hold()
        if is_expired:
            expire("billing")
        confirm(chief, "billing", HOLDER, process_is_gone="on")
        assert state("billing") is LockState.FREE
        assert LockAction.objects.get().result == "done"

    def test_box_is_not_asked_for_without_a_run(self, chief: Client) -> None:
        """A lock that only lock_at_least_for keeps is released without it."""
        lock = kept()
        assert "process_is_gone" not in ask(chief, "billing").content.decode()
        confirm(chief, "billing", lock.locked_by, **WITHOUT_BOX)
        assert state("billing") is LockState.FREE

    def test_run_that_has_ended_meanwhile_needs_no_box(self, chief: Client) -> None:
        """The record decides as it is now, and not the form that was opened."""
        lock = take("billing", lock_at_least_for=MINUTE)
        assert BOX in ask(chief, "billing").content.decode()
        lock.release()
        confirm(chief, "billing", lock.locked_by, **WITHOUT_BOX)
        assert state("billing") is LockState.FREE

    def test_lost_run_needs_it_although_the_holder_has_ended(
        self, chief: Client
    ) -> None:
        """A lock that is only kept may have an earlier run that still goes on."""
        lock = kept()
        LockRecord.objects.update(outcome=RunOutcome.ABANDONED.value, last_run=HOLDER)
        assert BOX in ask(chief, "billing").content.decode()
        confirm(chief, "billing", lock.locked_by, **WITHOUT_BOX)
        assert state("billing") is LockState.HELD_AT_LEAST

    def test_one_box_counts_for_all_locks_of_the_page(self, chief: Client) -> None:
        """If one job may still run, none of the locks is released without it."""
        lock = kept("calm")
        hold()
        page = ask(chief, "calm", "billing").content.decode()
        assert page.count(BOX) == 1
        form = {
            "action": "release_selected",
            "confirmed": "yes",
            "_selected_action": ["calm", "billing"],
            "locked_by": [lock.locked_by, HOLDER],
            "reason": "the pod is gone",
        }
        assert REFUSED in content(chief.post(reverse(LIST), form))
        assert state("calm") is LockState.HELD_AT_LEAST
        chief.post(reverse(LIST), {**form, "process_is_gone": "on"})
        assert {state("calm"), state("billing")} == {LockState.FREE}

    def test_paused_job_with_an_abandoned_run_needs_it(self, chief: Client) -> None:
        """A resumed job starts again, perhaps beside the run before the pause."""
        abandoned()
        pausing = pause("billing")
        resume = {"action": "resume_selected", **WITHOUT_BOX}
        assert BOX in ask(chief, "billing", action="resume_selected").content.decode()
        page = confirm(chief, "billing", pausing.locked_by, **resume)
        assert REFUSED in content(page)
        assert state("billing") is LockState.PAUSED
        confirm(chief, "billing", pausing.locked_by, action="resume_selected")
        assert state("billing") is LockState.FREE

    def test_other_paused_jobs_need_no_box(self, chief: Client) -> None:
        """Where no run is left, a pause ends as before."""
        pausing = pause("billing")
        page = ask(chief, "billing", action="resume_selected").content.decode()
        assert "process_is_gone" not in page
        resume = {"action": "resume_selected", **WITHOUT_BOX}
        confirm(chief, "billing", pausing.locked_by, **resume)
        assert state("billing") is LockState.FREE

    @pytest.mark.parametrize("action", ["extend_selected", "pause_selected"])
    def test_actions_that_start_nothing_need_no_box(
        self, chief: Client, action: str
    ) -> None:
        """A longer lease, and a pause, keep the job from starting."""
        hold()
        if action == "pause_selected":
            expire("billing")
        page = ask(chief, "billing", action=action).content.decode()
        assert "process_is_gone" not in page
        assert COMMAND in page
        confirm(chief, "billing", HOLDER, action=action, lock_at_most_for="2h")
        [done] = LockAction.objects.filter(result="done")
        assert action.startswith(done.kind)
