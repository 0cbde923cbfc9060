"""What the soak makes of its journal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.concurrency import soak as soaking
from tests.concurrency.soak import Plan
from tests.support.history import stale_writes
from tests.support.soak.journal import Event, Journal, read
from tests.support.soak.verdict import Verdict, judge

MINUTE = "2026-11-23T03:18:00+00:00"


def body(
    name: str = "a",
    *,
    begin: float,
    valid: Iterable[float] = (),
    released: float | None = None,
    **details: Any,
) -> list[Event]:
    """Return the events of one body; it asks for its lock a second before it begins."""
    identity = f"{name} {begin}"
    token = details.pop("token", None)
    beginning = {"asked": begin - 1, "way": "hold", "tick": None, **details}
    return [
        {"what": "begin", "at": begin, "id": identity, "name": name, **beginning},
        {"what": "token", "at": begin, "id": identity, "token": token},
        *({"what": "valid", "at": at, "id": identity} for at in valid),
        *(
            [{"what": "released", "at": released, "id": identity, "succeeded": True}]
            if released
            else []
        ),
    ]


def violations(*bodies: list[Event]) -> list[str]:
    return judge(event for events in bodies for event in events).violations


def test_bodies_whose_holders_both_knew_the_lock_as_theirs_overlap() -> None:
    """The second one began before the first one looked for the last time."""
    [violation] = violations(
        body(begin=1, valid=[2, 4], token=1), body(begin=3, valid=[3.5], token=2)
    )
    assert (
        violation == "hold a 2 of a 3 began 1.000 s before the end of hold a 1 of a 1"
    )


def test_bodies_of_two_locks_do_not_overlap() -> None:
    """Nor does one that knew no more that its lock was valid."""
    first = body(begin=1, valid=[2], token=1)
    assert violations(first, body("b", begin=1.5, valid=[3], token=1)) == []
    assert violations(first, body(begin=3, valid=[4], token=2)) == []


def test_later_body_is_compared_with_the_longest_before_it() -> None:
    """A short one in between hides nothing."""
    found = violations(
        body(begin=1, valid=[9], token=1),
        body(begin=2, valid=[3], token=2),
        body(begin=4, valid=[5], token=3),
    )
    assert len(found) == 2


def test_holder_may_not_know_yet_of_an_operators_release() -> None:
    """From there on it is no overlap; before it is one."""
    force: Event = {"what": "force", "at": 3, "holder": "a 1"}
    first = body(begin=1, valid=[2, 4], token=1)
    assert violations([force], first, body(begin=3.5, valid=[4], token=2)) == []
    assert violations([force], first, body(begin=2.5, valid=[4], token=2))


def test_tokens_have_to_grow() -> None:
    """Who asks after another one has begun gets a higher one, and nobody the same."""
    assert violations(body(begin=1, token=2), body(begin=3, token=1))
    assert violations(body(begin=1, token=2), body(begin=3, token=2))
    assert violations(body(begin=1, token=2), body(begin=1.5, token=1)) == []


def test_token_is_given_once_in_the_whole_journal() -> None:
    """A token that its lock has had long before is found; another lock may have it."""
    between = [body(begin=2 + n, token=10 + n) for n in range(5)]
    first, again = body(begin=1, token=9), body(begin=20, token=12)
    found = violations(first, *between, again)
    assert "hold a 12 of a 20 has the token of hold a 12 of a 4" in found
    assert violations(first, *between, body("b", begin=20, token=12)) == []


def test_tick_is_run_once() -> None:
    """Once by its scheduler and once more to catch up, unless it has succeeded."""
    first = body(begin=1, way="scheduler", tick=MINUTE)
    again = body(begin=3, way="scheduler", tick=MINUTE)
    late = body(begin=5, way="catch-up", tick=MINUTE)
    assert violations(first, late) == []
    assert violations(first, again)
    succeeded = body(begin=1, way="scheduler", tick=MINUTE, released=2)
    assert violations(succeeded, late)


def test_stale_write_is_found() -> None:
    """Whether the next holder has written or has only got the lock."""
    assert [*stale_writes([("a", 1, 1), ("b", 1, 1), ("a", 2, 2), ("a", 2, 2)])] == []
    assert [*stale_writes([("a", 1, 2)])]
    assert [*stale_writes([("a", 2, 2), ("a", 1, 1)])]


def end(*events: Event, at: float, held: Iterable[str] = ("host:7:x",)) -> Verdict:
    """Return what is made of an end in good order, after these events of process 7."""
    locks = [{"name": "a", "id": each} for each in held]
    reaped: Event = {"what": "reaped", "identity": "host:7:", "held": locks, "at": at}
    asked: Event = {"what": "asked", "at": 1, "id": "host:7:x", "lease": 5}
    return judge([asked, *events, reaped])


ACQUIRED: Event = {"what": "acquired", "at": 2, "id": "host:7:x"}
RELEASED: Event = {
    "what": "released",
    "at": 3,
    "id": "host:7:x",
    "was_ours": True,
    "succeeded": True,
}


@pytest.mark.parametrize(
    ("events", "at"),
    [
        ([ACQUIRED], 4),
        ([ACQUIRED], 9),
        ([ACQUIRED, RELEASED], 4),
        ([{"what": "crashed", "at": 2.5}, ACQUIRED, RELEASED], 4),
        ([ACQUIRED, {**RELEASED, "was_ours": False}, {"what": "crashed", "at": 4}], 5),
        ([ACQUIRED, {"what": "unreleased", "identity": "host:7:", "name": "b"}], 4),
        ([ACQUIRED, {"what": "unreleased", "identity": "host:8:", "name": "a"}], 4),
        ([], 4),
    ],
)
def test_process_that_ended_in_good_order_holds_nothing(
    events: list[Event], at: float
) -> None:
    """A lock that it holds is a violation, also one for which it got no answer."""
    violation = "a is held by a process that ended in good order: host:7:x"
    assert end(*events, at=at).violations == [violation]
    assert end(*events, at=at, held=[]).violations == []


@pytest.mark.parametrize(
    ("events", "at", "why"),
    [
        ([], 7, "acquired too late"),
        ([ACQUIRED, {"what": "lost", "at": 6, "id": "host:7:x"}], 7, "lost before"),
        (
            [ACQUIRED, RELEASED, {"what": "crashed", "at": 4}],
            5,
            "release lost in a crash",
        ),
        (
            [ACQUIRED, {"what": "unreleased", "identity": "host:7:", "name": "a"}],
            4,
            "said in the log",
        ),
    ],
)
def test_lock_that_nobody_could_release_is_counted(
    events: list[Event], at: float, why: str
) -> None:
    """It is no violation, and the figures show it."""
    verdict = end(*events, at=at)
    assert verdict.violations == []
    assert verdict.counts[f"held after an end: {why}"] == 1


@pytest.mark.parametrize(
    "event",
    [
        {"what": "hang", "name": "release", "where": ["in release()"]},
        {"what": "untold", "name": "a", "way": "hold"},
        {"what": "died", "worker": "worker-1", "why": "exit status 1"},
        {"what": "endless", "worker": "worker-1"},
    ],
)
def test_what_must_not_happen_is_a_violation(event: Event) -> None:
    """A call or an end that takes for ever, an untold loss, a worker that fails."""
    assert len(violations([{"at": 1, **event}])) == 1


def test_figures() -> None:
    """They count what happened, and tell what took longest."""
    verdict = judge(
        [
            *body(begin=1),
            {"what": "call", "at": 2, "name": "extend", "took": 2.0},
            {"what": "call", "at": 3, "name": "extend", "took": 1.0},
            {"what": "harm", "at": 3, "kind": "workers killed"},
        ]
    )
    assert verdict.counts == {"bodies": 1, "workers killed": 1}
    assert "longest call: extend  2.0 s" in str(verdict)
    assert '"workers killed": 1' in verdict.as_json()


def test_half_a_line_of_a_killed_process_is_left_out(tmp_path: Path) -> None:
    """The others' lines are whole."""
    path = tmp_path / "journal"
    Journal(path).write("begin", at=1.5, name="a")
    with path.open("a") as lines:
        lines.write('{"what": "en')
    assert [*read(path)] == [{"what": "begin", "at": 1.5, "name": "a"}]


@pytest.mark.parametrize(("found", "status"), [([], 0), (["a overlaps b"], 1)])
def test_violation_is_the_exit_status(
    found: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is told below the figures, or in them as JSON."""
    plans: list[Plan] = []

    def run(plan: Plan) -> Verdict:
        plans.append(plan)
        return Verdict(violations=found)

    monkeypatch.setattr(soaking, "soak", run)
    assert soaking.main(soaking.parse(["--for", "1h", "--seed", "7"])) == status
    assert soaking.main(soaking.parse(["--for", "1h", "--json"])) == status
    assert (plans[0].seconds, plans[0].seed) == (3600, 7)
    text, as_json = capsys.readouterr().out.split("{", 1)
    assert text.splitlines() == [f"violations  {status}", *found]
    assert json.loads("{" + as_json)["violations"] == found
