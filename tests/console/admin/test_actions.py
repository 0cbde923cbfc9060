"""Releasing and extending: the page that asks, and what is done after it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

from django_shedlock import LockProviderError, signals
from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.console.admin import LockRecordAdmin, actions
from django_shedlock.console.models import ActionResult, LockAction
from django_shedlock.console.operators import AuditedAction, WithdrawRequest
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.registry.requests import asked_at
from django_shedlock.sql.fields import DatabaseNow
from tests.console.admin.reading import html_of, steady, texts
from tests.console.admin.reading import told as messages
from tests.support.commands import run
from tests.support.durations import rounded_up
from tests.support.jobs import Jobs, ran, scheduled_jobs
from tests.support.lateness import be_overdue
from tests.support.locks import expire, force_release, pause, state, status_of, take
from tests.support.operators import (
    CHANGE,
    HOSTILE,
    LIST,
    ask,
    confirm,
    content,
    operator,
)
from tests.support.records import counted_records

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
ACTIONS = ["release_selected", "extend_selected"]
ALL_ACTIONS = [*ACTIONS, "pause_selected", "resume_selected", "acknowledge_selected"]
ALL_ACTIONS += ["run_selected"]
OF_PERMISSION = {
    "release_lockrecord": ["release_selected"],
    "extend_lockrecord": ["extend_selected"],
    "pause_lockrecord": ["pause_selected", "resume_selected"],
    "acknowledge_lockrecord": ["acknowledge_selected"],
    "run_lockrecord": ["run_selected"],
}


SIGNALS = [
    signals.lock_force_released,
    signals.lock_force_extended,
    signals.lock_paused,
    signals.lock_resumed,
]


@pytest.fixture
def told() -> Iterator[list[AuditedAction]]:
    """Collect each action that the signals report."""
    heard: list[AuditedAction] = []

    def hear(*, action: AuditedAction, **kwargs: Any) -> None:
        heard.append(action)

    for signal in SIGNALS:
        signal.connect(hear)
    yield heard
    for signal in SIGNALS:
        signal.disconnect(hear)


def remaining(name: str) -> timedelta:
    return status_of(get_provider(), name).remaining


def release_all(client: Client, locks: list[Lock]) -> Any:
    """Confirm the release of these locks at once, as they were seen."""
    return client.post(
        reverse(LIST),
        {
            "action": "release_selected",
            "confirmed": "yes",
            "_selected_action": [lock.name for lock in locks],
            "locked_by": [lock.locked_by for lock in locks],
            "reason": "all pods are gone",
            "process_is_gone": "on",
        },
        follow=True,
    )


def fact_of_request(status: LockStatus) -> str:
    [fact] = WithdrawRequest.facts(status, ())
    return fact


def test_confirmed_release_frees_the_lock(
    chief: Client, told: list[AuditedAction]
) -> None:
    """A released lock is free; log and signal have who released whose lock, and why."""
    lock = take("billing")
    page = confirm(chief, "billing", lock.locked_by).content.decode()
    assert "is released" in page
    assert state("billing") is LockState.FREE
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user.get_username()) == ("billing", "operator")
    assert lock.locked_by in entry.change_message
    assert "the pod is gone" in entry.change_message
    [action] = told
    assert action.locked_by == lock.locked_by
    assert (action.operator, action.reason) == (
        "operator",
        "the pod is gone",
    )


def test_confirmed_extension_lengthens_the_lease(
    chief: Client, told: list[AuditedAction]
) -> None:
    """An extended lease counts from now, and log and signal report it."""
    lock = take("billing")
    page = confirm(
        chief,
        "billing",
        lock.locked_by,
        action="extend_selected",
        lock_at_most_for="2h",
    ).content.decode()
    assert "is held for 2h more at the most" in rounded_up(page)
    assert 119 * MINUTE < remaining("billing") <= 120 * MINUTE
    message = LogEntry.objects.get().change_message
    assert "is held for 2h more" in rounded_up(message)
    assert [i.reason for i in told] == ["the pod is gone"]


def test_release_frees_a_lock_that_is_only_kept(chief: Client) -> None:
    """A lock that only lock_at_least_for keeps can be released."""
    lock = take("billing", lock_at_least_for=MINUTE)
    lock.release()
    confirm(chief, "billing", lock.locked_by)
    assert state("billing") is LockState.FREE


def test_several_locks_at_once(chief: Client) -> None:
    """Each lock of a selection is released as it was seen."""
    locks = [take(name) for name in ("a", "b")]
    release_all(chief, locks)
    assert {state("a"), state("b")} == {LockState.FREE}
    assert LogEntry.objects.count() == 2


def test_many_locks_get_one_message(chief: Client) -> None:
    """One message counts the locks, names a few, and has an example of what failed."""
    locks = [take(f"tenant_{number}") for number in range(6)]
    for lock in locks[:2]:
        lock.release()
        take(lock.name)
    page = release_all(chief, locks)
    [told] = map(str, page.context["messages"])
    assert told.startswith(
        "Release: 2 refused ('tenant_0', 'tenant_1'), "
        "4 done ('tenant_2', 'tenant_3', 'tenant_4', …). "
        f"Lock 'tenant_0' is not released: '{locks[0].locked_by}' does not hold it; "
    )
    assert LogEntry.objects.count() == 4


def test_reason_is_kept_without_secrets(chief: Client) -> None:
    """The admin's log has a reason without its secrets, as the audit log has."""
    lock = take("billing")
    reason = {"reason": "its pod has X-Token: s3cr3t"}
    confirm(chief, "billing", lock.locked_by, **reason)
    message = LogEntry.objects.get().change_message
    assert "its pod has X-Token: *" in message
    assert "s3cr3t" not in message


def test_admin_s_log_that_cannot_be_written_stops_nothing(
    chief: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Locks are released although the admin's log can't be written."""

    def fail(*args: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(LockRecordAdmin, "log_change", fail)
    locks = [take(name) for name in ("a", "b")]
    page = release_all(chief, locks)
    told = [str(each) for each in page.context["messages"]]
    assert ["is released" in each for each in told] == [True, True]
    assert {state("a"), state("b")} == {LockState.FREE}
    assert caplog.text.count("the admin's log can't be written: database is") == 2


@pytest.mark.parametrize("action", ACTIONS)
def test_holder_that_came_in_between_is_spared(
    chief: Client, told: list[AuditedAction], action: str
) -> None:
    """A confirmation is only for the acquisition that the operator saw."""
    seen = take("billing")
    seen.release()
    take("billing")
    page = confirm(
        chief, "billing", seen.locked_by, action=action, lock_at_most_for="2h"
    ).content.decode()
    assert "does not hold it; " in page
    assert state("billing") is LockState.RUNNING
    assert remaining("billing") <= 9 * MINUTE
    assert (LogEntry.objects.count(), told) == (0, [])


def test_expired_lock_is_released(chief: Client) -> None:
    """An operator who has looked releases it, although its job may still run."""
    lock = take("billing")
    expire("billing")
    assert "is released" in confirm(chief, "billing", lock.locked_by).content.decode()
    assert state("billing") is LockState.FREE
    assert LogEntry.objects.count() == 1


def test_expired_lock_is_not_extended(chief: Client) -> None:
    """A lock whose lease has ended since is not revived, and the page says so."""
    lock = take("billing")
    expire("billing")
    page = confirm(
        chief,
        "billing",
        lock.locked_by,
        action="extend_selected",
        lock_at_most_for="2h",
    ).content.decode()
    assert "its lease is over, but its job may still be running" in page
    assert state("billing") is LockState.EXPIRED
    assert not LogEntry.objects.exists()


def test_filter_does_not_hide_what_was_confirmed(chief: Client) -> None:
    """A confirmed lock is released even if the list's filter hides it now."""
    lock = take("billing", lock_at_least_for=MINUTE)
    lock.release()
    page = confirm(chief, "billing", lock.locked_by, query="?state=running")
    assert "is released" in page.content.decode()
    assert state("billing") is LockState.FREE


def test_deleted_lock_is_told_of(chief: Client) -> None:
    """A lock whose record is gone since is reported, and is no error."""
    lock = take("billing")
    LockRecord.objects.all().delete()
    page = confirm(chief, "billing", lock.locked_by).content.decode()
    assert "is not released: it has no record" in page


def test_reason_is_required(chief: Client) -> None:
    """Without a reason, or with an endless one, the page asks again."""
    lock = take("billing")
    for reason in ("", "   ", "x" * 501):
        page = confirm(chief, "billing", lock.locked_by, reason=reason)
        assert "errorlist" in page.content.decode()
    assert state("billing") is LockState.RUNNING


def test_page_that_asks_again_is_for_what_was_seen(chief: Client) -> None:
    """With a mistake in the form, the page never turns to another holder unnoticed."""
    seen, kept = take("billing"), take("cleanup")
    seen.release()
    now = take("billing")
    page = chief.post(
        reverse(LIST) + "?q=billing",
        {
            "action": "release_selected",
            "confirmed": "yes",
            "_selected_action": ["billing", "cleanup"],
            "locked_by": [seen.locked_by, kept.locked_by],
            "reason": "",
        },
    ).content.decode()
    assert "does not hold it; " in page
    assert f'value="{now.locked_by}"' not in page
    assert f'name="locked_by" value="{kept.locked_by}"' in page


def test_nothing_is_left_to_ask_again_about(chief: Client) -> None:
    """If another holder has the only lock, a mistake in the form leads to the list."""
    seen = take("billing")
    seen.release()
    take("billing")
    page = confirm(chief, "billing", seen.locked_by, reason="").content.decode()
    assert "does not hold it; " in page
    assert 'name="reason"' not in page


def errors(page: Any) -> list[str]:
    """Return what the form says of wrong fields."""
    return texts(r'<ul class="errorlist.*?<li>(.*?)</li>', html_of(page))


def test_lease_must_make_sense(chief: Client) -> None:
    """The form says which value is wrong and, without a unit, how to write it."""
    lock = take("billing")
    wrong = "Enter a duration of at most a year, such as 30m or 1h30m, instead of '{}'."
    said = {lease: wrong.format(lease) for lease in ("soon", "0s", "-5m", "400d")}
    said |= {lease: wrong.format(lease) for lease in ("9" * 29 + "d", "1e9d")}
    said["5"] = "'5' has no unit: write 5s or 5m."
    said["1.5"] = "'1.5' has no unit: write 1.5s or 1.5m."
    said[""] = "This field is required."
    extend = {"action": "extend_selected", "follow": False}
    for lease, expected in said.items():
        page = confirm(
            chief, "billing", lock.locked_by, lock_at_most_for=lease, **extend
        )
        assert errors(page) == [expected]
    assert remaining("billing") <= 9 * MINUTE


def test_extension_never_shortens(chief: Client) -> None:
    """A lease shorter than what is left changes nothing."""
    lock = take("billing", lock_at_most_for=9 * MINUTE)
    confirm(
        chief,
        "billing",
        lock.locked_by,
        action="extend_selected",
        lock_at_most_for="1m",
    )
    assert remaining("billing") > 8 * MINUTE


def test_free_locks_are_left_alone(chief: Client) -> None:
    """Of a selection only held locks are asked about; without any, that is said."""
    take("held")
    take("free").release()
    page = ask(chief, "held", "free").content.decode()
    assert "<bdi>free</bdi>: nobody holds it" in page
    assert page.count('name="locked_by"') == 1
    lone = ask(chief, "free")
    assert lone.status_code == 302
    page = chief.get(lone.url).content.decode()
    assert "Lock &#x27;free&#x27; is not released: nobody holds it." in page


def test_store_that_fails_is_told(
    chief: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the store is a message, and makes no log entry."""
    lock = take("billing")

    def fail(*args: object, **options: object) -> bool:
        raise LockProviderError("the store is away")

    monkeypatch.setattr(DatabaseLockProvider, "replace", fail)
    page = confirm(chief, "billing", lock.locked_by).content.decode()
    assert "The store is away" in page
    assert not LogEntry.objects.exists()


def test_hostile_texts_are_escaped(chief: Client) -> None:
    """Names and reasons with markup are text on pages, in messages and in the log."""
    lock = take(HOSTILE)
    pages = [
        ask(chief, HOSTILE),
        confirm(chief, HOSTILE, lock.locked_by, reason=HOSTILE),
        chief.get(reverse("admin:index")),
    ]
    for page in pages:
        assert HOSTILE not in page.content.decode()
    assert "&lt;script&gt;" in pages[1].content.decode()
    assert state(HOSTILE) is LockState.FREE


FIELDS = {"lock_at_most_for": "2h", "lasting": "1h", "post": "yes"}
"""What the forms of all actions have."""


def some_locks() -> dict[str, str]:
    """Make a running, a free and a paused lock; return who holds, or held, them."""
    locks = {name: take(name) for name in ("billing", "free")}
    locks["free"].release()
    locks["paused"] = pause("paused")
    return {name: lock.locked_by for name, lock in locks.items()}


class TestPermissions:
    """What somebody without a permission can do: nothing."""

    @pytest.mark.each_store
    def test_locks_beyond_the_queryset_are_spared(
        self,
        chief: Client,
        monkeypatch: pytest.MonkeyPatch,
        told: list[AuditedAction],
    ) -> None:
        """Where a project shows only some locks, the others can't be acted on."""
        everything = LockRecordAdmin.get_queryset
        locks = some_locks()
        monkeypatch.setattr(
            LockRecordAdmin,
            "get_queryset",
            lambda *args: everything(*args).exclude(name__in=locks),
        )
        for action in ALL_ACTIONS:
            for name, locked_by in locks.items():
                confirm(chief, name, locked_by, action=action, follow=False, **FIELDS)
        said = messages(chief.get(reverse(LIST)))
        assert len(said) == len(ALL_ACTIONS) * len(locks)
        assert told == []
        assert not LockAction.objects.exists()

    def test_action_that_a_project_leaves_out_is_not_done(
        self, chief: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where a project's admin offers less, a forged confirmation does no more."""
        offered = LockRecordAdmin.get_actions

        def get_actions(
            self: LockRecordAdmin, request: Any, action_location: Any = None
        ) -> Any:
            found = offered(self, request, action_location)
            del found["release_selected"]
            return found

        monkeypatch.setattr(LockRecordAdmin, "get_actions", get_actions)
        lock = take("billing")
        confirm(chief, "billing", lock.locked_by)
        assert state("billing") is LockState.RUNNING
        assert not LockAction.objects.exists()

    def test_viewer_has_no_action(self, viewer: Client) -> None:
        """Neither the list nor the lock's page offers an action to a viewer."""
        take("billing")
        for address in (reverse(LIST), reverse(CHANGE, args=["billing"])):
            page = viewer.get(address).content.decode()
            assert not any(action in page for action in ALL_ACTIONS)
            assert "delete" not in page.replace("cancel-delete", "")

    def test_forged_post_does_nothing(
        self, viewer: Client, told: list[AuditedAction]
    ) -> None:
        """An action that was not offered is not run."""
        locks = some_locks()
        before = LockRecord.objects.order_by("name").values()
        expected = list(before)
        for action in (*ALL_ACTIONS, "delete_selected"):
            ask(viewer, *locks, action=action)
            for name, locked_by in locks.items():
                confirm(viewer, name, locked_by, action=action, follow=False, **FIELDS)
        assert list(before.all()) == expected
        assert (LogEntry.objects.count(), told) == (0, [])
        assert not LockAction.objects.exists()

    def test_each_action_needs_its_own(self, told: list[AuditedAction]) -> None:
        """All other permissions together neither allow an action nor offer it."""
        locks = some_locks()
        before = LockRecord.objects.order_by("name").values()
        expected = list(before)
        for permission, own in OF_PERMISSION.items():
            others = [each for each in OF_PERMISSION if each != permission]
            client = operator("view_lockrecord", *others, name=permission)
            pages = [reverse(LIST), *(reverse(CHANGE, args=[name]) for name in locks)]
            shown = [html_of(client.get(page)) for page in pages]
            for action in own:
                assert not any(action in page for page in shown)
                for name, locked_by in locks.items():
                    confirm(
                        client, name, locked_by, action=action, follow=False, **FIELDS
                    )
        assert list(before.all()) == expected
        assert (LogEntry.objects.count(), told) == (0, [])
        assert not LockAction.objects.exists()

    @pytest.mark.parametrize("action", ["release_selected", "extend_selected"])
    def test_pause_is_ended_by_resume_only(self, action: str) -> None:
        """Whoever may release locks, and not resume jobs, ends no pause."""
        permission = action.replace("selected", "lockrecord")
        client = operator("view_lockrecord", permission)
        lock = pause("billing")
        page = confirm(client, "billing", lock.locked_by, action=action, **FIELDS)
        assert "alice paused it, because: the mail server moves" in (
            page.content.decode()
        )
        assert state("billing") is LockState.PAUSED
        assert remaining("billing") <= 5 * MINUTE

    @pytest.mark.parametrize("permissions", [(), ("release_lockrecord",)])
    def test_list_needs_the_view_permission(self, permissions: tuple[str, ...]) -> None:
        """Who may release locks, but not see them, has no list and releases none."""
        client = operator(*permissions)
        lock = take("billing")
        assert client.get(reverse(LIST)).status_code == 403
        assert confirm(client, "billing", lock.locked_by).status_code == 403
        assert state("billing") is LockState.RUNNING

    def test_get_does_nothing(self, chief: Client, told: list[AuditedAction]) -> None:
        """Following a link never changes a lock, nor runs its job."""
        locks = some_locks()
        for action in ALL_ACTIONS:
            for name, locked_by in locks.items():
                chosen = {"_selected_action": name, "locked_by": locked_by, **FIELDS}
                link = {"action": action, "confirmed": "yes", "reason": "a link"}
                chief.get(reverse(LIST), {**link, **chosen})
        assert told == []
        assert not LockAction.objects.exists()

    def test_other_sites_cannot_post(self) -> None:
        """A form of another site, without Django's token, is refused."""
        client = operator("view_lockrecord", "release_lockrecord")
        strict = Client(enforce_csrf_checks=True)
        strict.cookies = client.cookies
        lock = take("billing")
        assert confirm(strict, "billing", lock.locked_by).status_code == 403
        assert state("billing") is LockState.RUNNING


@pytest.mark.each_store
def test_too_many_locks_at_a_time(
    chief: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More locks than fit on a page are refused before anybody gives a reason."""
    monkeypatch.setattr(actions, "SELECTED_LOCK_LIMIT", 2)
    for name in "abc":
        take(name)
    everything = {
        "action": "release_selected",
        "_selected_action": ["a"],
        "select_across": "1",
    }
    page = chief.post(reverse(LIST), everything, follow=True).content.decode()
    assert "Select fewer locks at a time." in page
    assert "may still be running" in ask(chief, "a", "b").content.decode()


class TestPause:
    """Pausing and resuming jobs."""

    def test_job_is_paused(self, chief: Client, told: list[AuditedAction]) -> None:
        """Log, audit log and signal have who paused a job, and why."""
        lock = take("billing")
        lock.release()
        page = confirm(chief, "billing", lock.locked_by, action="pause_selected")
        assert "is paused until it is resumed." in page.content.decode()
        status = status_of(get_provider(), "billing")
        assert status.pause == Pause("operator", "the pod is gone")
        assert status.is_endless
        assert "is paused until" in LogEntry.objects.get().change_message
        assert LockAction.objects.get().result == ActionResult.DONE
        assert [action.operator for action in told] == ["operator"]

    def test_body_that_went_on_without_its_lock_is_named(self, chief: Client) -> None:
        """A body that lost its lock is named before, in and after a pause."""
        lock = take("billing")
        force_release(get_provider(), "billing")
        get_provider().account_for_loss(lock, has_ended=False)
        told = f"Its last run, as {lock.locked_by}, may still go on."
        assert told in content(ask(chief, "billing", action="pause_selected"))
        page = confirm(chief, "billing", lock.locked_by, action="pause_selected")
        assert told in page.content.decode()
        page = chief.get(reverse(CHANGE, args=["billing"])).content.decode()
        assert "Not known: its last run has not reported its end." in page
        assert "No job runs under this lock." not in page
        assert told in content(ask(chief, "billing", action="resume_selected"))

    def test_pause_has_an_end(self, chief: Client) -> None:
        """A pause ends by itself if the operator says when."""
        lock = take("billing")
        lock.release()
        page = confirm(
            chief, "billing", lock.locked_by, action="pause_selected", lasting="2h"
        )
        assert "is paused for 2h more." in rounded_up(page.content.decode())
        assert 119 * MINUTE < remaining("billing") <= 120 * MINUTE

    def test_end_must_make_sense(self, chief: Client) -> None:
        """A wrong length of a pause is named, and the job is not paused."""
        lock = take("billing")
        lock.release()
        for lasting in ("soon", "0s", "-1h", "400d"):
            page = confirm(
                chief,
                "billing",
                lock.locked_by,
                action="pause_selected",
                lasting=lasting,
            )
            [error] = errors(page)
            assert error.endswith(f"instead of '{lasting}'.")
        assert state("billing") is LockState.FREE

    def test_running_job_is_not_paused(self, chief: Client) -> None:
        """A job that has begun since the page was shown goes on."""
        lock = take("billing")
        page = confirm(chief, "billing", lock.locked_by, action="pause_selected")
        assert "is not paused: its job is running" in page.content.decode()
        assert state("billing") is LockState.RUNNING

    def test_acquisition_since_is_told(self, chief: Client) -> None:
        """A lock whose job has run since the page was shown is not paused."""
        seen = take("billing")
        seen.release()
        take("billing").release()
        page = confirm(chief, "billing", seen.locked_by, action="pause_selected")
        assert "does not hold it; " in page.content.decode()
        assert state("billing") is LockState.FREE

    def test_job_is_resumed(self, chief: Client) -> None:
        """The message says whose pause it was; then the lock is free."""
        lock = pause("billing")
        page = confirm(chief, "billing", lock.locked_by, action="resume_selected")
        assert "is resumed. alice had paused it" in page.content.decode()
        assert state("billing") is LockState.FREE
        assert LogEntry.objects.count() == 1

    def test_pause_with_an_end_says_when(self, chief: Client) -> None:
        """The page that asks says until when the job is paused."""
        pause("short")
        page = content(ask(chief, "short", action="resume_selected"))
        assert "Held untilINSTANT Acquisition" in steady(page)

    def test_other_pause_is_spared(self, chief: Client) -> None:
        """A resume is for the pause that the operator saw."""
        seen = pause("billing")
        force_release(get_provider(), "billing")
        pause("billing")
        page = confirm(chief, "billing", seen.locked_by, action="resume_selected")
        assert "is not resumed" in page.content.decode()
        assert state("billing") is LockState.PAUSED
        assert not LogEntry.objects.exists()

    def test_hostile_texts_are_escaped(self, chief: Client) -> None:
        """The reason of a pause is text, wherever it is shown."""
        lock = take(HOSTILE)
        lock.release()
        pages = [
            confirm(
                chief, HOSTILE, lock.locked_by, action="pause_selected", reason=HOSTILE
            ),
            ask(chief, HOSTILE, action="resume_selected"),
            chief.get(reverse("admin:index")),
        ]
        for page in pages:
            assert HOSTILE not in page.content.decode()


def open_text(client: Client, page: str) -> str:
    """Return the page's locks, without the menu of actions."""
    text = client.get(page).content.decode()
    return re.sub(r"<option.*?</option>", "", text, flags=re.DOTALL)


class TestRun:
    """Asking for a run: nothing runs in the web process."""

    @pytest.fixture(autouse=True)
    def jobs(self) -> Iterator[Jobs]:
        with scheduled_jobs() as made:
            made.report()
            ran.clear()
            note_catch_up(get_provider())
            yield made

    @pytest.fixture
    def locked_by(self) -> str:
        return status_of(get_provider(), "report").locked_by

    def test_page_says_who_runs_it(self, chief: Client) -> None:
        """The page says who will run the job, and when a catch-up was last seen."""
        page = ask(chief, "report", action="run_selected").content.decode()
        assert "The next `python manage.py shedlock catch-up` will run it" in page
        assert re.search(r"A catch-up was last seen \d+s ago\.", page)

    def test_run_is_requested(self, chief: Client, locked_by: str) -> None:
        """The next catch-up runs the job, with the operator's name and reason."""
        page = confirm(chief, "report", locked_by, action="run_selected")
        assert (
            "The next `python manage.py shedlock catch-up` will run"
            in page.content.decode()
        )
        assert ran == []
        row = LockAction.objects.get()
        assert (row.operator, row.reason) == ("operator", "the pod is gone")
        assert "will run the job" in LogEntry.objects.get().change_message
        run("catch-up")
        assert ran == ["report"]

    @pytest.mark.each_store
    def test_open_request_is_shown_and_withdrawn(
        self, chief: Client, locked_by: str
    ) -> None:
        """An open request is shown on the list and the page until it is withdrawn."""
        be_overdue("report")
        pages = [reverse(LIST), reverse(CHANGE, args=["report"])]
        said = ("operator asked for a run", "Withdraw request", "a request is waiting")
        for page in pages:
            assert not any(each in open_text(chief, page) for each in said)
        confirm(chief, "report", locked_by, action="run_selected")
        for page in pages:
            assert [each for each in said if each not in open_text(chief, page)] == []
        page = confirm(chief, "report", locked_by, action="withdraw_selected")
        assert "is withdrawn." in page.content.decode()
        for page in pages:  # the audit log still names the action
            assert not any(each in open_text(chief, page) for each in said[::2])
        run("catch-up")
        assert not LockRun.objects.filter(operator="operator").exists()

    def test_withdrawal_is_for_the_request_that_was_seen(self, chief: Client) -> None:
        """A withdrawal spares a request made after the page was opened."""
        provider = get_provider()
        provider.request_run("report", "alice", "the mail was lost")
        page = ask(chief, "report", action="withdraw_selected").content.decode()
        assert "alice asked for a run" in page
        [fact] = re.findall(r'name="fact-0" value="(request [^"]*)"', page)
        provider.withdraw_request("report", asked_at(status_of(provider, "report")))
        provider.request_run("report", "bob", "again")
        locked_by = status_of(provider, "report").locked_by
        withdraw = {"action": "withdraw_selected", "fact-0": fact}
        page = confirm(chief, "report", locked_by, **withdraw).content.decode()
        assert "No request for lock" in page
        assert "there is another request since you looked" in page
        assert status_of(provider, "report").job.asked_by == "bob"
        now = {**withdraw, "fact-0": fact_of_request(status_of(provider, "report"))}
        confirm(chief, "report", locked_by, **now)
        assert status_of(provider, "report").job.asked_at is None
        assert LockAction.objects.get(kind="withdraw", result="done").facts == ""

    def test_no_run_is_asked_for_beside_one_that_may_still_go_on(
        self, chief: Client
    ) -> None:
        """No button, command or open page starts a job beside a run that may go on."""
        lock = take("report")
        force_release(get_provider(), "report")
        get_provider().account_for_loss(lock, has_ended=False)
        page = reverse(CHANGE, args=["report"])
        for _ in range(2):
            text = open_text(chief, page)
            assert "It may still run: make sure that its process" in text
            assert "run_selected" not in text
            assert "shedlock trigger" not in text
            asked = confirm(chief, "report", lock.locked_by, action="run_selected")
            assert "may still go on in process" in asked.content.decode()
            LockRecord.objects.filter(name="shedlock.catch-up").delete()
        assert not LockAction.objects.filter(result=ActionResult.REQUESTED).exists()
        gone = ("--process-is-gone", "--reason", "the host is gone")
        run("acknowledge", "report", *gone)
        assert "shedlock trigger report" in open_text(chief, page)

    def test_second_request_is_refused(self, chief: Client, locked_by: str) -> None:
        """A second request is refused, and the page says how old the first one is."""
        confirm(chief, "report", locked_by, action="run_selected")
        LockRecord.objects.update(asked_at=DatabaseNow() - 50 * MINUTE)
        page = ask(chief, "report", action="run_selected", follow=True)
        said = "operator asked for a run 50m1s ago, which is still open"
        assert re.search(said.replace("1s", r"\d*s?"), page.content.decode())
        page = confirm(chief, "report", locked_by, action="run_selected")
        assert "which is still open" in page.content.decode()
        assert LockAction.objects.count() == 1

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("remind", "its job needs arguments, so it can’t be started by name"),
            ("paused", "alice paused it"),
        ],
    )
    def test_what_cannot_be_run_is_told(
        self, chief: Client, name: str, why: str
    ) -> None:
        """The list says why, instead of a page that asks; a forged form is refused."""
        lock = pause(name) if name == "paused" else take(name)
        if name == "remind":
            lock.release()
        page = ask(chief, name, action="run_selected", follow=True).content.decode()
        assert "was not started: " in page
        assert why.replace("’", "&#x27;") in page
        confirm(chief, name, lock.locked_by, action="run_selected")
        assert ran == []
        open_requests = LockAction.objects.filter(result=ActionResult.REQUESTED)
        assert open_requests.count() == 0

    def test_run_since_is_told(self, chief: Client, locked_by: str) -> None:
        """A second operator, or a second click, learns that the job has run."""
        run("trigger", "report")
        page = confirm(chief, "report", locked_by, action="run_selected")
        assert "does not hold it; " in page.content.decode()
        assert not LockAction.objects.filter(result=ActionResult.REQUESTED).exists()


def test_selection_of_all_locks_is_not_loaded(
    chief: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of "select all" the database sends as many locks as are refused, and no more."""
    monkeypatch.setattr(actions, "SELECTED_LOCK_LIMIT", 2)
    times = dict.fromkeys(("locked_at", "lock_until"), datetime(1970, 1, 1, tzinfo=UTC))
    LockRecord.objects.bulk_create(
        LockRecord(name=f"job-{n}", locked_by="", **times) for n in range(9)
    )
    everything = {
        "action": "release_selected",
        "_selected_action": ["job-1"],
        "select_across": "1",
    }
    with counted_records(monkeypatch) as loaded:
        answer = chief.post(reverse(LIST), everything)
    assert answer.status_code == 302
    assert len(loaded) <= 3
    assert LockRecord.objects.count() == 9
    page = chief.get(reverse(LIST)).content.decode()
    assert "Select fewer locks at a time." in page
