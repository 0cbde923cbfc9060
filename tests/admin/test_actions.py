"""Releasing and extending: the page that asks, and what is done after it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from django_shedlock import LockProviderError, signals
from django_shedlock.admin import LockRecordAdmin, actions
from django_shedlock.locks.states import LockState
from django_shedlock.models import LockRecord
from django_shedlock.operators import OperatorAction
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from tests.support.locks import expire, state, take
from tests.support.operators import CHANGE, HOSTILE, LIST, ask, confirm, operator

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
ACTIONS = ["release_selected", "extend_selected"]


@pytest.fixture
def told() -> Iterator[list[OperatorAction]]:
    """Each action that the signals told of."""
    heard: list[OperatorAction] = []

    def hear(*, action: OperatorAction, **kwargs: Any) -> None:
        heard.append(action)

    signals.lock_force_released.connect(hear)
    signals.lock_force_extended.connect(hear)
    yield heard
    signals.lock_force_released.disconnect(hear)
    signals.lock_force_extended.disconnect(hear)


def remaining(name: str) -> timedelta:
    return get_provider().statuses(name)[0].remaining


@pytest.mark.parametrize("action", ACTIONS)
def test_action_asks_first(chief: Client, action: str) -> None:
    """The page says what may still run, on which host, and changes nothing yet."""
    lock = take("billing")
    host, pid, _ = lock.locked_by.split(":")
    page = ask(chief, "billing", action=action).content.decode()
    assert "may still be running" in page
    for known in (lock.locked_by, f"<bdi>{host}</bdi>", f"<dd>{pid}</dd>"):
        assert known in page
    assert state("billing") is LockState.RUNNING
    assert remaining("billing") <= 9 * MINUTE


def test_confirmed_release_frees_the_lock(
    chief: Client, told: list[OperatorAction]
) -> None:
    """The lock is free; log and signal have who did it, whose lock it was, and why."""
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
    chief: Client, told: list[OperatorAction]
) -> None:
    """The lease counts from now, and log and signal tell of it."""
    lock = take("billing")
    page = confirm(
        chief,
        "billing",
        lock.locked_by,
        action="extend_selected",
        lock_at_most_for="2h",
    ).content.decode()
    assert "is extended to 2h from now" in page
    assert 119 * MINUTE < remaining("billing") <= 120 * MINUTE
    assert "extended to 2h" in LogEntry.objects.get().change_message
    assert [i.reason for i in told] == ["the pod is gone"]


def test_release_frees_a_lock_that_is_only_kept(chief: Client) -> None:
    """A lock kept by lock_at_least_for is in nobody's way any more."""
    lock = take("billing", lock_at_least_for=MINUTE)
    lock.release()
    assert "only lock_at_least_for keeps" in ask(chief, "billing").content.decode()
    confirm(chief, "billing", lock.locked_by)
    assert state("billing") is LockState.FREE


def test_several_locks_at_once(chief: Client) -> None:
    """Each lock of a selection is released as it was seen."""
    locks = [take(name) for name in ("a", "b")]
    chief.post(
        reverse(LIST),
        {
            "action": "release_selected",
            "confirmed": "yes",
            "_selected_action": [lock.name for lock in locks],
            "locked_by": [lock.locked_by for lock in locks],
            "reason": "all pods are gone",
        },
    )
    assert {state("a"), state("b")} == {LockState.FREE}
    assert LogEntry.objects.count() == 2


@pytest.mark.parametrize("action", ACTIONS)
def test_holder_that_came_in_between_is_spared(
    chief: Client, told: list[OperatorAction], action: str
) -> None:
    """The confirmation is for the acquisition that the operator saw."""
    seen = take("billing")
    seen.release()
    take("billing")
    page = confirm(
        chief, "billing", seen.locked_by, action=action, lock_at_most_for="2h"
    ).content.decode()
    assert "does not hold it any more" in page
    assert state("billing") is LockState.RUNNING
    assert remaining("billing") <= 9 * MINUTE
    assert (LogEntry.objects.count(), told) == (0, [])


def test_expired_lock_is_released(chief: Client) -> None:
    """Whose job may still run, which is asked; then it is free, and no finding."""
    lock = take("billing")
    expire("billing")
    page = ask(chief, "billing").content.decode()
    assert "may still be running" in page
    assert "is released" in confirm(chief, "billing", lock.locked_by).content.decode()
    assert state("billing") is LockState.FREE
    assert LogEntry.objects.count() == 1


def test_expired_lock_is_not_extended(chief: Client) -> None:
    """A lock whose lease ended since is not revived, and it is said."""
    lock = take("billing")
    expire("billing")
    page = confirm(
        chief,
        "billing",
        lock.locked_by,
        action="extend_selected",
        lock_at_most_for="2h",
    ).content.decode()
    assert "does not hold it any more" in page
    assert state("billing") is LockState.EXPIRED
    assert not LogEntry.objects.exists()


def test_filter_does_not_hide_what_was_confirmed(chief: Client) -> None:
    """A lock that has left the filtered list since is still dealt with, or told of."""
    lock = take("billing", lock_at_least_for=MINUTE)
    lock.release()
    page = confirm(chief, "billing", lock.locked_by, query="?state=running")
    assert "is released" in page.content.decode()
    assert state("billing") is LockState.FREE


def test_deleted_lock_is_told_of(chief: Client) -> None:
    """A lock whose record is gone since is no error."""
    lock = take("billing")
    LockRecord.objects.all().delete()
    page = confirm(chief, "billing", lock.locked_by).content.decode()
    assert "does not hold it any more" in page


@pytest.mark.parametrize("reason", ["", "   ", "x" * 501])
def test_reason_is_required(chief: Client, reason: str) -> None:
    """Without a reason, or with an endless one, the page asks again."""
    lock = take("billing")
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
    assert f"{seen.locked_by} does not hold it any more" in page
    assert now.locked_by not in page
    assert f'name="locked_by" value="{kept.locked_by}"' in page


def test_nothing_is_left_to_ask_again_about(chief: Client) -> None:
    """If another holder has the only lock, a mistake in the form leads to the list."""
    seen = take("billing")
    seen.release()
    take("billing")
    page = confirm(chief, "billing", seen.locked_by, reason="").content.decode()
    assert "does not hold it any more" in page
    assert 'name="reason"' not in page


@pytest.mark.parametrize("lease", ["", "soon", "0s", "-5m", "400d", "9" * 30, "1e9d"])
def test_lease_must_make_sense(chief: Client, lease: str) -> None:
    """A lease that is none, or of more than a year, is asked for again."""
    lock = take("billing")
    page = confirm(
        chief,
        "billing",
        lock.locked_by,
        action="extend_selected",
        lock_at_most_for=lease,
    )
    assert page.status_code == 200
    assert "errorlist" in page.content.decode()
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
    assert "Nobody holds these" in page
    assert page.count('name="locked_by"') == 1
    lone = ask(chief, "free")
    assert lone.status_code == 302
    assert "None of these locks is held." in chief.get(lone.url).content.decode()


def test_store_that_fails_is_told(
    chief: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator gets the store's error as a message, and no log entry."""
    lock = take("billing")

    def fail(*args: object, **options: object) -> bool:
        raise LockProviderError("the store is away")

    monkeypatch.setattr(DatabaseLockProvider, "force_release", fail)
    page = confirm(chief, "billing", lock.locked_by).content.decode()
    assert "The store is away" in page
    assert not LogEntry.objects.exists()


def test_page_of_a_held_lock_offers_the_actions(chief: Client) -> None:
    """From the lock's own page an operator comes to the same confirmation."""
    take("billing")
    page = chief.get(reverse(CHANGE, args=["billing"])).content.decode()
    for action in ACTIONS:
        assert f'name="action" value="{action}"' in page
    get_provider().force_release("billing", running=True)
    page = chief.get(reverse(CHANGE, args=["billing"])).content.decode()
    assert 'name="action"' not in page


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


class TestPermissions:
    """What somebody without a permission can do: nothing."""

    def test_locks_beyond_the_queryset_are_spared(
        self, chief: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where a project shows somebody some locks only, no others can be named."""
        everything = LockRecordAdmin.get_queryset
        monkeypatch.setattr(
            LockRecordAdmin,
            "get_queryset",
            lambda *args: everything(*args).exclude(name="payroll"),
        )
        lock = take("payroll")
        page = confirm(chief, "payroll", lock.locked_by).content.decode()
        assert "is not released" in page
        assert state("payroll") is LockState.RUNNING

    def test_viewer_has_no_action(self, viewer: Client) -> None:
        """Neither the list nor the lock's page offers anything."""
        take("billing")
        for address in (reverse(LIST), reverse(CHANGE, args=["billing"])):
            page = viewer.get(address).content.decode()
            assert not any(action in page for action in ACTIONS)
            assert "delete" not in page.replace("cancel-delete", "")

    @pytest.mark.parametrize("action", [*ACTIONS, "delete_selected"])
    def test_forged_post_does_nothing(
        self, viewer: Client, told: list[OperatorAction], action: str
    ) -> None:
        """An action that was not offered is not run."""
        lock = take("billing")
        free = take("free")
        free.release()
        before = LockRecord.objects.order_by("name").values()
        expected = list(before)
        ask(viewer, "billing", "free", action=action)
        for seen in (lock, free):
            confirm(
                viewer,
                seen.name,
                seen.locked_by,
                action=action,
                lock_at_most_for="2h",
                post="yes",
            )
        assert list(before.all()) == expected
        assert (LogEntry.objects.count(), told) == (0, [])

    @pytest.mark.parametrize(
        ("permission", "other"),
        [
            ("release_lockrecord", "extend_selected"),
            ("extend_lockrecord", "release_selected"),
        ],
    )
    def test_each_action_has_its_own(self, permission: str, other: str) -> None:
        """Who may release may not extend, and the other way round."""
        client = operator("view_lockrecord", permission)
        lock = take("billing")
        assert other not in client.get(reverse(LIST)).content.decode()
        confirm(client, "billing", lock.locked_by, action=other, lock_at_most_for="2h")
        assert state("billing") is LockState.RUNNING
        assert remaining("billing") <= 9 * MINUTE

    @pytest.mark.parametrize("permissions", [(), ("release_lockrecord",)])
    def test_list_needs_the_view_permission(self, permissions: tuple[str, ...]) -> None:
        """Without it even a releaser has no list, and no action."""
        client = operator(*permissions)
        lock = take("billing")
        assert client.get(reverse(LIST)).status_code == 403
        confirm(client, "billing", lock.locked_by)
        assert state("billing") is LockState.RUNNING

    @pytest.mark.parametrize("action", ACTIONS)
    def test_get_does_nothing(self, chief: Client, action: str) -> None:
        """Following a link never releases or extends a lock."""
        lock = take("billing")
        chief.get(
            reverse(LIST),
            {
                "action": action,
                "confirmed": "yes",
                "_selected_action": "billing",
                "locked_by": lock.locked_by,
                "reason": "a link",
                "lock_at_most_for": "2h",
            },
        )
        assert state("billing") is LockState.RUNNING
        assert remaining("billing") <= 9 * MINUTE

    def test_other_sites_cannot_post(self) -> None:
        """A form of another site, without Django's token, is refused."""
        client = operator("view_lockrecord", "release_lockrecord")
        strict = Client(enforce_csrf_checks=True)
        strict.cookies = client.cookies
        lock = take("billing")
        assert confirm(strict, "billing", lock.locked_by).status_code == 403
        assert state("billing") is LockState.RUNNING


def test_too_many_locks_at_a_time(
    chief: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More locks than fit on a page are refused before anybody gives a reason."""
    monkeypatch.setattr(actions, "MOST_LOCKS", 2)
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
