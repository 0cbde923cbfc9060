"""The plain admin, in a project without the console."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings
from django.urls import reverse

from django_shedlock import execute, scheduler_lock
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import is_held
from tests.support.locks import configure, pause, status_of, take

pytestmark = pytest.mark.django_db

BACKEND = "django_shedlock.providers.database.DatabaseLockProvider"
LIST = "admin:django_shedlock_lockrecord_changelist"
RUNS = "admin:django_shedlock_lockrun_changelist"
SURE = {"release": "on", "reason": "its host is gone"}


def page_of(name: str) -> str:
    return reverse("admin:django_shedlock_lockrecord_change", args=[name])


@pytest.fixture
def log_in() -> Callable[..., Client]:
    """Return a function that logs somebody in who has these permissions."""

    def log_in(*permissions: str) -> Client:
        user = User.objects.create_user("ada", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(user)
        return client

    return log_in


@pytest.fixture
def viewer(log_in: Callable[..., Client]) -> Client:
    return log_in("view_lockrecord", "view_lockrun")


@pytest.fixture
def operator(log_in: Callable[..., Client]) -> Client:
    return log_in("view_lockrecord", "release_lockrecord")


def test_list_shows_state_holder_and_last_outcome(viewer: Client) -> None:
    """The list shows who holds a lock, and how the last run of a free one ended."""
    lock = take("running")
    execute(list, "done", lock_at_most_for="1m")
    page = viewer.get(reverse(LIST)).content.decode()
    assert lock.locked_by in page
    assert "running" in page
    assert "succeeded" in page


def test_list_shows_no_end_of_an_endless_pause(viewer: Client) -> None:
    """The list shows that an open-ended pause lasts until it is resumed."""
    pause("paused", lasting=FOREVER)
    page = viewer.get(reverse(LIST)).content.decode()
    assert '<td class="field-remaining">until it is resumed</td>' in page


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("state=running", ["held"]),
        ("state=free", ["done"]),
        ("outcome=succeeded", ["done"]),
        ("q=hel", ["held"]),
        ("", ["done", "held"]),
    ],
)
def test_filters_and_search(viewer: Client, query: str, shown: list[str]) -> None:
    """The list can be limited to a state, an outcome, or a part of a name."""
    take("held")
    execute(list, "done", lock_at_most_for="1m")
    response = viewer.get(f"{reverse(LIST)}?{query}")
    found = [record.name for record in response.context["cl"].result_list]
    assert sorted(found) == shown


def fact_on(page: str, label: str) -> str:
    """Return what the page says after this label of a read-only field."""
    found = re.search(rf'>{label}:<.*?class="readonly">([^<]*)<', page, re.DOTALL)
    assert found is not None
    return found[1].strip()


def shown_of(viewer: Client, name: str = "nightly") -> tuple[str, str]:
    """Return what the page of a lock says of its job, and of its heartbeat."""
    page = viewer.get(page_of(name)).content.decode()
    return fact_on(page, "Job"), fact_on(page, "Last heartbeat")


def begin_earlier(by: timedelta, **columns: Any) -> None:
    """Let the lock have been acquired so much earlier, with these columns."""
    LockRecord.objects.update(locked_at=DatabaseNow() - by, **columns)


def test_page_shows_how_long_a_job_runs_and_whether_it_is_alive(
    viewer: Client,
) -> None:
    """Who releases a lock sees first whether its job is slow or dead."""
    take("nightly")
    begin_earlier(timedelta(hours=2))
    assert shown_of(viewer) == ("runs for 2h", "none: its lease was not extended")
    LockRecord.objects.update(
        usual=95.0, extended_at=DatabaseNow() - timedelta(seconds=6)
    )
    job, heartbeat = shown_of(viewer)
    assert job == "runs for 2h, usually 1m35s"
    assert re.fullmatch("[6-9]s ago", heartbeat)


def test_form_stands_above_what_few_need(operator: Client) -> None:
    """Who releases a lock need not scroll; the other columns are folded below."""
    take("nightly")
    page = operator.get(page_of("nightly")).content.decode()
    labels = [
        "Last heartbeat",
        "Locked by",
        'name="release"',
        "<summary",
        "Fencing token",
    ]
    places = [page.index(label) for label in labels]
    assert places == sorted(places)


def test_page_shows_when_the_job_of_an_expired_lock_began(viewer: Client) -> None:
    """Nobody knows whether it still runs."""
    take("nightly")
    begin_earlier(timedelta(hours=2), lock_until=DatabaseNow())
    assert shown_of(viewer) == ("began 2h ago", "none: its lease was not extended")
    LockRecord.objects.update(usual=95.0)
    assert shown_of(viewer)[0] == "began 2h ago, usually 1m35s"


def test_page_shows_the_run_of_another_service(viewer: Client) -> None:
    """ShedLock for Java may hold the lock after a run that has not reported its end."""
    take("nightly")
    begin_earlier(timedelta(hours=2), locked_by="java")
    assert shown_of(viewer)[0] == "runs for 2h"
    LockRecord.objects.update(lock_until=DatabaseNow())
    assert shown_of(viewer) == ("-", "-")


def test_page_of_a_lock_that_no_job_holds_shows_no_run(viewer: Client) -> None:
    """A free lock and a paused one have neither a running job nor a heartbeat."""
    execute(list, "nightly", lock_at_most_for="1m")
    assert shown_of(viewer) == ("-", "-")
    pause("paused")
    assert shown_of(viewer, "paused") == ("-", "-")


def test_viewer_cannot_release(viewer: Client) -> None:
    """Without the permission there is no form, and a forged one does nothing."""
    lock = take("nightly")
    assert 'name="release"' not in viewer.get(page_of("nightly")).content.decode()
    forged = {**SURE, "held_by": lock.locked_by}
    assert viewer.post(page_of("nightly"), forged).status_code == 403
    assert is_held("nightly")


def test_release_is_confirmed_and_logged(operator: Client) -> None:
    """A confirmed release frees the lock, and is in Django's own log."""
    lock = take("nightly")
    page = operator.get(page_of("nightly"))
    assert f'value="{lock.locked_by}"' in page.content.decode()
    asked = {**SURE, "held_by": lock.locked_by}
    done = operator.post(page_of("nightly"), asked, follow=True)
    assert "is released" in done.content.decode()
    assert not is_held("nightly")
    [entry] = LogEntry.objects.all()
    assert entry.user.get_username() == "ada"
    assert lock.locked_by in entry.change_message
    assert "its host is gone" in entry.change_message
    assert LockRun.objects.get(locked_by=lock.locked_by).outcome == "abandoned"


@pytest.mark.parametrize("missing", ["release", "reason"])
def test_release_needs_a_confirmation_and_a_reason(
    operator: Client, missing: str
) -> None:
    """Without one of them the form comes back, and the lock stays held."""
    lock = take("nightly")
    asked = {**SURE, "held_by": lock.locked_by}
    del asked[missing]
    assert operator.post(page_of("nightly"), asked).context["errors"]
    assert is_held("nightly")
    assert not LogEntry.objects.exists()


def test_reason_is_stored_without_its_secrets(operator: Client) -> None:
    """Django's own log keeps what an operator pasted, but no token."""
    lock = take("nightly")
    asked = {**SURE, "held_by": lock.locked_by, "reason": "token: s3cr3t"}
    operator.post(page_of("nightly"), asked)
    [entry] = LogEntry.objects.all()
    assert "Reason: token: ***" in entry.change_message
    assert "s3cr3t" not in entry.change_message


def test_release_is_bound_to_the_holder_shown(operator: Client) -> None:
    """If somebody else has acquired the lock since, nothing is released."""
    shown = take("nightly").locked_by
    LockRecord.objects.update(
        lock_until=DatabaseNow(), locked_at=DatabaseNow() - timedelta(hours=1)
    )
    newer = take("nightly")
    asked = {**SURE, "held_by": shown}
    told = operator.post(page_of("nightly"), asked, follow=True).content.decode()
    assert f"is not released: &#x27;{shown}&#x27; does not hold it; " in told
    assert newer.locked_by in told
    assert is_held("nightly")
    assert not LogEntry.objects.exists()


def test_lock_that_has_become_free_is_refused_with_a_message(
    operator: Client,
) -> None:
    """A second click, or a job that ends meanwhile, is no error of the operator."""
    lock = take("nightly")
    asked = {**SURE, "held_by": lock.locked_by}
    lock.release()
    told = operator.post(page_of("nightly"), asked, follow=True).content.decode()
    assert "is not released: nobody holds it" in told
    assert not LogEntry.objects.exists()


def test_who_may_only_release_sees_the_result(log_in: Callable[..., Client]) -> None:
    """The permission to release locks includes that to see them."""
    client = log_in("release_lockrecord")
    asked = {**SURE, "held_by": take("nightly").locked_by}
    done = client.post(page_of("nightly"), asked, follow=True)
    assert done.status_code == 200
    assert "is released" in done.content.decode()


def test_store_that_fails_is_told(operator: Client) -> None:
    """The page says what failed, and nothing is written to the log."""
    asked = {**SURE, "held_by": take("nightly").locked_by}
    error = LockProviderError("the store is away")
    with patch.object(DatabaseLockProvider, "replace", side_effect=error):
        told = operator.post(page_of("nightly"), asked, follow=True).content.decode()
    assert "is not released: the store is away." in told
    assert not LogEntry.objects.exists()


@pytest.mark.django_db(databases=["default", "other"])
def test_lists_show_the_database_of_the_provider(viewer: Client) -> None:
    """A provider with another database has its locks and its runs there."""
    other = {"BACKEND": BACKEND, "OPTIONS": {"using": "other"}}
    with override_settings(SHEDLOCK_PROVIDERS={"default": other}):
        execute(list, "elsewhere", lock_at_most_for="1m")
        for address in (LIST, RUNS):
            assert "elsewhere" in viewer.get(reverse(address)).content.decode()


@pytest.fixture
def two_providers() -> Iterator[None]:
    """Let the project have a provider in each of two databases."""
    providers = {
        "second": {"BACKEND": BACKEND, "OPTIONS": {"using": "other"}},
        "broken": {"BACKEND": "no.such.Provider"},
        "default": {"BACKEND": BACKEND},
    }
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        execute(list, "here", lock_at_most_for="1m")
        execute(list, "there", lock_at_most_for="1m", provider="second")
        yield


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.usefixtures("two_providers")
@pytest.mark.parametrize("address", [LIST, RUNS])
@pytest.mark.parametrize(
    ("query", "alias", "name"),
    [
        ("", "default", "here"),
        ("?provider=default", "default", "here"),
        ("?provider=second", "second", "there"),
        ("?provider=unknown", "default", "here"),
    ],
)
def test_provider_can_be_chosen(
    viewer: Client, address: str, query: str, alias: str, name: str
) -> None:
    """The lists show the default provider's rows, and offer those of the others."""
    changelist = viewer.get(f"{reverse(address)}{query}").context["cl"]
    assert [row.name for row in changelist.result_list] == [name]
    choices = list(changelist.filter_specs[0].choices(changelist))
    assert [each["display"] for each in choices] == ["default", "second"]
    assert [each["display"] for each in choices if each["selected"]] == [alias]


@pytest.mark.parametrize("address", [LIST, RUNS])
def test_only_provider_is_not_offered(viewer: Client, address: str) -> None:
    """There is nothing to choose."""
    take("nightly").release()
    changelist = viewer.get(f"{reverse(address)}?provider=default").context["cl"]
    titles = [each.title for each in changelist.filter_specs]
    assert titles[-1] == "outcome"
    assert "provider" not in titles


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
@pytest.mark.usefixtures("two_providers")
@pytest.mark.parametrize(
    "query", ["provider=second", "_changelist_filters=provider%3Dsecond"]
)
def test_lock_of_the_chosen_provider_is_released(operator: Client, query: str) -> None:
    """The page of a lock, and its form, are about the provider of its list."""
    take("nightly")
    there = take(configure("nightly"), get_provider("second"))
    address = f"{page_of('nightly')}?{query}"
    assert there.locked_by in operator.get(address).content.decode()
    asked = {**SURE, "held_by": there.locked_by}
    done = operator.post(address, asked, follow=True).content.decode()
    assert "is released" in done
    assert there.locked_by in done
    assert is_held("nightly")
    assert status_of(get_provider("second"), "nightly").state is LockState.FREE


def test_project_without_a_database_provider_has_empty_lists(viewer: Client) -> None:
    """The filters work there as well."""
    memory = {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}
    with override_settings(SHEDLOCK_PROVIDERS={"default": memory}):
        for query in ("", "?state=free", "?outcome=failed"):
            assert viewer.get(f"{reverse(LIST)}{query}").status_code == 200


def test_free_lock_cannot_be_released(operator: Client) -> None:
    """The page of a free lock has no form."""
    execute(list, "done", lock_at_most_for="1m")
    assert 'name="release"' not in operator.get(page_of("done")).content.decode()


def test_values_are_in_the_language_of_the_reader(viewer: Client) -> None:
    """States, outcomes and what started a run are translated, also in the filters."""
    take("held")

    @scheduler_lock("failing")
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    run: Any = LockRun.objects.get()
    pages = {
        reverse(LIST): ["läuft", "fehlgeschlagen", "noch gehalten", "gelungen"],
        page_of("failing"): ["frei", "fehlgeschlagen"],
        reverse(RUNS): ["fehlgeschlagen", "gelungen"],
        reverse("admin:django_shedlock_lockrun_change", args=[run.pk]): [
            "fehlgeschlagen",
            "Scheduler",
        ],
    }
    english = ("running", "held at least", "failed", "succeeded", "scheduler", "free")
    with override_settings(LANGUAGE_CODE="de"):
        for page, words in pages.items():
            texts = texts_of(viewer.get(page).content.decode())
            assert set(words) <= texts, page
            assert texts & set(english) == set(), page


def test_outcome_of_another_version_is_shown_as_it_is(viewer: Client) -> None:
    """No value is hidden, and none breaks the list."""
    execute(list, "done", lock_at_most_for="1m")
    LockRecord.objects.update(outcome="postponed")
    page = viewer.get(reverse(LIST)).content.decode()
    assert "postponed" in texts_of(page)


def texts_of(page: str) -> set[str]:
    """Return the texts of the page's elements."""
    return {text.strip() for text in re.split(r"<[^>]*>", page)}


def test_runs_are_read_only(viewer: Client) -> None:
    """The list of runs shows each outcome, and nothing can be changed."""

    @scheduler_lock("failing")
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    page = viewer.get(reverse(RUNS)).content.decode()
    assert "failed" in page
    run: Any = LockRun.objects.get()
    address = reverse("admin:django_shedlock_lockrun_change", args=[run.pk])
    assert "ZeroDivisionError" in viewer.get(address).content.decode()
    assert viewer.post(address, {"outcome": "succeeded"}).status_code == 403
    assert viewer.get(f"{reverse(RUNS)}add/").status_code == 403
