"""Before a job may start again, an operator looks whether its last run goes on."""

from __future__ import annotations

import re
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
from tests.console.admin.conftest import Stage
from tests.console.admin.reading import html_of, steady, told
from tests.support.locks import MINUTE, expire, force_release, pause, state, take
from tests.support.operators import (
    ALL,
    HOSTILE,
    LIST,
    ask,
    confirm,
    content,
    operator,
)
from tests.support.scenes import each_state

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
    columns = {
        "locked_by": locked_by,
        "locked_at": DatabaseNow() - 55 * MINUTE,
        "open_run": locked_by,
        **columns,
    }
    LockRecord.objects.filter(name=name).update(**columns)


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


LOOK = "-o pid,lstart,etime,args"
TIMES = "SinceINSTANT Held untilINSTANT"
REASON = "Reason: It is written to the admin's log."
RELEASE = (
    "Another worker can acquire a released lock at once. A job that still runs under "
    "it is not stopped: make sure that it is dead, or it may run twice."
)
EXTEND = (
    "An extended lock stays held for longer, even if its worker is dead. A worker "
    "learns of its longer lease when it asks the next time."
)
PAUSE = (
    "A paused job is skipped on all hosts, and is not overdue, until the pause ends or "
    "somebody resumes the job. Each skip tells who paused it and why."
)
RESUME = (
    "The next start of a resumed job runs it. Ticks that came before or during the "
    "pause are not run."
)
LEASE = steady("Lease from now: For example 30m or 1h30m. It never becomes shorter.")
LASTING = "For: For example 2h. If it is empty, the pause has no end of its own."
LOOKED = (
    "I have looked: the process is gone You confirm this for each lock above whose job "
    "may still run."
)
RUNNING = (
    "d.running Its job may still be running: runs for 3h, usually 4h last heartbeat 1h "
    f"ago On host web-2, run: ps -p 4711 {LOOK} Holderweb-2 (4711) {TIMES} "
    "Acquisitionweb-2:4711:TOKEN"
)
LONG = (
    "g.long Its job may still be running: runs for 2h, usually 10m no heartbeat: its "
    f"lease was not extended On host web-1, run: ps -p 815 {LOOK} Holderweb-1 (815) "
    f"{TIMES} Acquisitionweb-1:815:TOKEN"
)
EXPIRED = (
    "h.expired Its job may still be running: began 5h ago, usually takes 1m last "
    f"heartbeat 2h ago On host web-3, run: ps -p 99 {LOOK} Holderweb-3 (99) {TIMES} "
    "Acquisitionweb-3:99:TOKEN"
)
KEPT = (
    "b.kept Its job has ended; only lock_at_least_for keeps the lock. Holderweb-1 (7) "
    f"{TIMES} Acquisitionweb-1:7:TOKEN"
)
PAUSED = (
    "c.paused maria paused its job, because: until the new template is approved "
    "SinceINSTANT Leaseuntil it is resumed Acquisitionpaused by maria: until the new "
    "template is approved (NUMBER)"
)
UNSTOPPED = (
    "e.abandoned Nobody holds it. Its last run, as web-1:7:TOKEN, may still go on. On "
    f"host web-1, run: ps -p 7 {LOOK}"
)
QUESTIONS = {
    ("release", "b.kept"): f"{RELEASE} {KEPT} {REASON}",
    ("release", "d.running"): f"{RELEASE} {RUNNING} {REASON} {LOOKED}",
    ("release", "g.long"): f"{RELEASE} {LONG} {REASON} {LOOKED}",
    ("release", "h.expired"): f"{RELEASE} {EXPIRED} {REASON} {LOOKED}",
    ("extend", "b.kept"): f"{EXTEND} {KEPT} {LEASE} {REASON}",
    ("extend", "d.running"): f"{EXTEND} {RUNNING} {LEASE} {REASON}",
    ("pause", "a.free"): f"{PAUSE} a.free Nobody holds it. {LASTING} {REASON}",
    ("pause", "b.kept"): f"{PAUSE} {KEPT} {LASTING} {REASON}",
    ("pause", "e.abandoned"): f"{PAUSE} {UNSTOPPED} {LASTING} {REASON}",
    ("pause", "h.expired"): f"{PAUSE} {EXPIRED} {LASTING} {REASON}",
    ("resume", "c.paused"): f"{RESUME} {PAUSED} {REASON}",
}
"""What the page asks, by the action and the lock."""
PAUSED_BY_MARIA = (
    "maria paused it, because: until the new template is approved; until it is resumed"
)
REFUSALS = {
    ("release", "a.free"): "Lock 'a.free' is not released: nobody holds it.",
    ("release", "c.paused"): f"Lock 'c.paused' is not released: {PAUSED_BY_MARIA}.",
    ("extend", "h.expired"): (
        "Lock 'h.expired' is not extended: its lease is over, but its job may still be "
        "running as web-3:99:TOKEN."
    ),
    ("pause", "d.running"): (
        "The job of lock 'd.running' is not paused: its job is running as "
        "web-2:4711:TOKEN."
    ),
    (
        "run",
        "c.paused",
    ): f"The job of lock 'c.paused' was not started: {PAUSED_BY_MARIA}.",
    ("run", "d.running"): (
        "The job of lock 'd.running' was not started: its job is running as "
        "web-2:4711:TOKEN."
    ),
    ("run", "e.abandoned"): (
        "The job of lock 'e.abandoned' was not started: its last run may still go on "
        "in process web-1:7; if that process is gone, say so when you acknowledge the "
        "finding."
    ),
    ("withdraw", "a.free"): (
        "No request for lock 'a.free' is withdrawn: nobody asks for a run of its job."
    ),
}
"""What the list says instead of a page that asks."""


@pytest.fixture(scope="module")
def asked(stage: Stage) -> dict[tuple[str, str], str]:
    """The page that asks for each action on each lock, or the message instead."""
    with stage():
        each_state()
        chief, found = operator(*ALL), {}
        before = list(LockRecord.objects.order_by("name").values())
        for action, name in [*QUESTIONS, *REFUSALS]:
            page = ask(chief, name, action=f"{action}_selected")
            if page.status_code == 302:
                [found[action, name]] = told(chief.get(page.url))
            else:
                found[action, name] = html_of(page)
        # To ask for an action changes nothing.
        assert list(LockRecord.objects.order_by("name").values()) == before
        assert not LockAction.objects.exists()
        return found


class TestQuestions:
    """What the page asks, and what it says of a job that may still run."""

    @pytest.mark.parametrize(("action", "name"), list(QUESTIONS))
    def test_page_says_what_may_still_run(
        self, asked: dict[tuple[str, str], str], action: str, name: str
    ) -> None:
        """The page says how long it has run, where to look, and what is done."""
        shown = steady(content(asked[action, name]))
        shown = re.sub(r"\([0-9a-f]{8}\)", "(NUMBER)", shown)
        assert shown == QUESTIONS[action, name]

    @pytest.mark.parametrize(("action", "name"), list(REFUSALS))
    def test_action_that_does_not_apply_is_not_asked_for(
        self, asked: dict[tuple[str, str], str], action: str, name: str
    ) -> None:
        """The list says why, instead of a page that asks."""
        assert steady(asked[action, name]) == REFUSALS[action, name]

    def test_command_is_ready_to_copy(self, asked: dict[tuple[str, str], str]) -> None:
        """The command is code that is always read from left to right."""
        for action in ("release", "extend"):
            page = asked[action, "d.running"]
            assert f'<code dir="ltr">{COMMAND}</code>' in page
            assert "On host <bdi>web-2</bdi>, run:" in page

    def test_form_has_the_acquisition_that_was_shown(
        self, asked: dict[tuple[str, str], str]
    ) -> None:
        """The confirmation is for the holder that the operator has seen."""
        page = asked["release", "d.running"]
        assert page.count('name="locked_by"') == 1
        assert f'name="locked_by" value="{HOLDER}"' in page
        assert page.count(BOX) == 1
        assert BOX not in asked["extend", "d.running"]
        assert 'name="lasting"' in asked["pause", "a.free"]


class TestClues:
    """What the page says of less common holders."""

    def test_usual_duration_may_be_unknown(self, chief: Client) -> None:
        """Without a success nobody knows it, and the page does not name it."""
        hold()
        text = steady(content(ask(chief, "billing")))
        assert "running: runs for 50m no heartbeat: its lease was not extended" in text
        expire("billing")
        text = steady(content(ask(chief, "billing")))
        assert "running: began 50m ago no heartbeat: its lease was" in text
        assert "usually" not in text

    def test_holder_without_a_process_id_has_a_host_only(self, chief: Client) -> None:
        """ShedLock for Java writes the name of its host, and there is no command."""
        hold(locked_by="java-host")
        page = html_of(ask(chief, "billing"))
        assert "Check on <bdi>java-host</bdi> whether the process still runs." in page
        assert "ps -p" not in page

    def test_other_runs_that_may_go_on_are_looked_for(self, chief: Client) -> None:
        """The holder may run beside a run that lost its lock, or that is still open."""
        hold(
            outcome=RunOutcome.LOST.value,
            last_run="web-1:815:2c624232cdd22177",
            started_at=DatabaseNow() - 90 * MINUTE,
        )
        text = content(ask(chief, "billing"))
        assert "On host web-2, run: ps -p 4711 " in text
        last = "Its last run, as web-1:815:2c624232cdd22177, may still go on."
        assert f"{last} On host web-1, run: ps -p 815 " in text
        hold("shared", locked_by="java-host", open_run=HOLDER)
        text = content(ask(chief, "shared"))
        assert "Check on java-host whether the process still runs." in text
        last = f"Its last run, as {HOLDER}, may still go on."
        assert f"{last} On host web-2, run: {COMMAND}" in text

    def test_hostile_host_is_text(self, chief: Client) -> None:
        """A host with markup in its name is escaped."""
        hold(locked_by=f"{HOSTILE}:4711:9f86d081884c7d65")
        page = html_of(ask(chief, "billing"))
        assert HOSTILE not in page
        assert "On host <bdi>&lt;script&gt;" in page
        assert COMMAND in page


class TestAssurance:
    """What is done only by an operator who says that the process is gone."""

    @pytest.mark.parametrize("is_expired", [False, True])
    def test_release_needs_it(self, chief: Client, is_expired: bool) -> None:
        """The server refuses a release without the box, also from a forged form."""
        hold()
        if is_expired:
            expire("billing")
        before = state("billing")
        form = {
            "action": "release_selected",
            "confirmed": "yes",
            "_selected_action": ["billing"],
            "locked_by": [HOLDER],
            "reason": "the pod is gone",
        }
        for box in ({}, WITHOUT_BOX):
            page = chief.post(reverse(LIST), form | box)
            assert REFUSED in content(page)
            assert BOX in html_of(page)
            assert "the pod is gone</textarea>" in html_of(page)
        assert state("billing") is before
        assert not LockAction.objects.exists()
        assert not LogEntry.objects.exists()
        confirm(chief, "billing", HOLDER, follow=False, process_is_gone="on")
        assert state("billing") is LockState.FREE
        assert LockAction.objects.get().result == "done"

    def test_box_is_not_asked_for_without_a_run(self, chief: Client) -> None:
        """A lock that only lock_at_least_for keeps is released without it."""
        lock = kept()
        assert "process_is_gone" not in ask(chief, "billing").content.decode()
        confirm(chief, "billing", lock.locked_by, **WITHOUT_BOX)
        assert state("billing") is LockState.FREE

    def test_run_that_has_ended_meanwhile_needs_no_box(self, chief: Client) -> None:
        """A run that has ended meanwhile needs no box: the present record decides."""
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
        """A pause behind which no run is left ends without the box."""
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
        """A longer lease and a pause need no box, because they start no job."""
        hold()
        if action == "pause_selected":
            expire("billing")
        page = ask(chief, "billing", action=action).content.decode()
        assert "process_is_gone" not in page
        assert COMMAND in page
        confirm(chief, "billing", HOLDER, action=action, lock_at_most_for="2h")
        [done] = LockAction.objects.filter(result="done")
        assert action.startswith(done.kind)
