"""What the soaks make of their journals: each claim and each rule can be broken."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from benchmarks.soak import verdict as workers
from benchmarks.soak.beats import broken as beat_faults
from benchmarks.soak.beats import verdict as beats
from benchmarks.soak.beats.rules import Rule
from benchmarks.soak.beats.works import GRACE_SECONDS, STOP_TIMEOUT_SECONDS, Work
from benchmarks.soak.journal import Event, Journal, read
from benchmarks.soak.verdict import Verdict
from tests.support.history import stale_writes

pytestmark = pytest.mark.once

MINUTE = "2026-11-23T03:18:00+00:00"
PID = "host:7:"
ID = f"{PID}x"


# --- Workers -------------------------------------------------------------------------


def run(
    begin: float, last: float | None, token: int | None = 1, **details: Any
) -> list[Event]:
    """Return the events of a body that knew its lock as valid until ``last``."""
    id = f"a {begin}"
    facts = {"asked": begin - 1, "way": "hold", "tick": None, **details}
    return [
        {"what": "begin", "at": begin, "id": id, "name": "a", **facts},
        {"what": "token", "at": begin, "id": id, "token": token},
        *([{"what": "valid", "at": last, "id": id}] if last else []),
    ]


def ended(*events: Event, at: float = 4, age: float | None = None) -> list[Event]:
    """Return the events of an end in good order that leaves a lock held."""
    held = {"name": "a", "id": ID, "age": age, "left": 9}
    asked: Event = {"what": "asked", "at": 1, "id": ID, "lease_end": 6}
    reaped: Event = {"what": "reaped", "at": at, "identity": PID, "held": [held]}
    return [asked, *events, reaped]


ACQUIRED: Event = {"what": "acquired", "at": 2, "id": ID}
LOST: Event = {"what": "lost", "at": 3, "id": ID}
RELEASED: Event = {"what": "release", "at": 3, "id": ID, "answer": True}
NOT_RELEASED = {**RELEASED, "answer": False}
CRASHED: Event = {"what": "crashed", "at": 3.5}
LOGGED: Event = {"what": "unreleased", "at": 3, "identity": PID, "name": "a"}
LEFT = "a is held by a process that ended in good order"
SCHEDULED: dict[str, Any] = {"way": "scheduler", "tick": MINUTE}
CAUGHT_UP: dict[str, Any] = {"way": "catch-up", "tick": MINUTE}
SUCCESS: Event = {"what": "released", "at": 2, "id": "a 1", "succeeded": True}
FORCED: Event = {"what": "force", "at": 3, "holder": "a 1"}
"""An operator releases the lock of the body that began at 1."""


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([*run(1, 4), *run(3, 5, 2)], "began 1.000 s before the end of"),
        ([FORCED, *run(1, 4), *run(2.5, 4, 2)], "began 0.500 s before the end of"),
        ([*run(1, None, 2), *run(4, None)], "has no higher token"),
        ([*run(1, 2), *run(3, 4)], "has the token of"),
        ([*run(1, 2, None)], "nobody knows with which token"),
        ([*run(1, 2, **SCHEDULED), *run(3, 4, 2, **SCHEDULED)], "by scheduler"),
        (
            [*run(1, 2, **SCHEDULED), SUCCESS, *run(4, 5, 2, **CAUGHT_UP)],
            "again after its success",
        ),
        (ended(), LEFT),
        (ended(ACQUIRED, at=9), LEFT),
        (ended(ACQUIRED, RELEASED), LEFT),
        (ended(ACQUIRED, RELEASED, age=2), LEFT),
        (ended({**CRASHED, "at": 2}, ACQUIRED, RELEASED), LEFT),
        (ended(ACQUIRED, NOT_RELEASED, CRASHED), LEFT),
        (ended(ACQUIRED, {**LOGGED, "name": "b"}), LEFT),
        (ended(ACQUIRED, {**LOGGED, "identity": "host:8:"}), LEFT),
        ([{"what": "hang", "name": "release", "where": ["f()"]}], "did not return"),
        ([{"what": "untold", "name": "a", "way": "hold"}], "was not told"),
        ([{"what": "died", "worker": "w", "why": "status 1"}], "ended by itself"),
        ([{"what": "endless", "worker": "w"}], "did not end after SIGTERM"),
    ],
)
def test_broken_claim(events: list[Event], words: str) -> None:
    """A journal that breaks one claim about workers has that one violation."""
    [violation] = workers.judge({"at": 1, **event} for event in events).violations
    assert words in violation


@pytest.mark.parametrize(
    "events",
    [
        [*run(1, 2), *run(3, 4, 2)],
        [*run(1, 4), *run(3, 5, name="b")],
        [FORCED, *run(1, 4), *run(3.5, 4, 2)],
        [*run(1, None, 2), *run(1.5, None)],
        [*run(1, 2, **SCHEDULED), *run(4, 5, 2, **CAUGHT_UP)],
        [ACQUIRED, {"what": "reaped", "at": 4, "identity": PID, "held": []}],
    ],
)
def test_kept_claims(events: list[Event]) -> None:
    """A journal that has only what may happen to workers has no violation."""
    assert workers.judge(events).violations == []


def test_later_body_is_compared_with_the_longest_before_it() -> None:
    """A short body hides no overlap with a longer one before it."""
    events = [*run(1, 9), *run(2, 3, 2), *run(4, 5, 3)]
    by_second, by_third = workers.judge(events).violations
    assert "began 7.000 s before the end of" in by_second
    assert "began 5.000 s before the end of" in by_third


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (ended(at=7), "acquired too late"),
        (ended(ACQUIRED, LOST), "lost before"),
        (ended(ACQUIRED, LOGGED), "said in the log"),
        (ended(ACQUIRED, RELEASED, CRASHED), "release lost in a crash"),
        (ended(ACQUIRED, RELEASED, age=0.5), "acquired again after its release"),
    ],
)
def test_lock_that_nobody_could_release(events: list[Event], why: str) -> None:
    """A lock that nobody could release is counted, but is no violation."""
    verdict = workers.judge(events)
    assert verdict.violations == []
    assert verdict.counts == {
        f"held after an end: {why}": 1,
        "workers that ended in good order": 1,
    }


def test_figures() -> None:
    """The figures count what happened, and have the longest of each duration."""
    calls = [
        {"what": "call", "at": at, "name": "extend", "took": took}
        for at, took in ((2, 2.0), (3, 1.0))
    ]
    harm: Event = {"what": "harm", "at": 3, "kind": "workers killed"}
    verdict = workers.judge([*run(1, None), *calls, harm])
    assert verdict.counts == {"bodies": 1, "workers killed": 1}
    assert "longest call: extend  2.0 s" in str(verdict)
    assert '"workers killed": 1' in verdict.as_json()


def test_lock_that_is_left_has_its_story() -> None:
    """The violation says what is known of the try, and which faults there were."""
    fault: Event = {"what": "fault", "at": 2.5, "kind": "network: delay"}
    way: Event = {"what": "ended", "at": 3.9, "identity": PID, "way": "interrupted"}
    events = ended(ACQUIRED, fault, NOT_RELEASED, way, age=2.1)
    [violation] = workers.judge(events).violations
    assert violation == (
        f"{LEFT}: {ID}: asked 3.000 s before, acquired by the server's clock 2.100 s "
        "before, confirmed 2.000 s before, network: delay 1.500 s before, release "
        "answered False 1.000 s before, held for 9.000 s more, lease over in 2.000 s "
        "by its own clock, end: interrupted"
    )


def test_stale_write() -> None:
    """A write is stale if a later holder has written, or has got the lock."""
    assert [*stale_writes([("a", 1, 1), ("b", 1, 1), ("a", 2, 2), ("a", 2, 2)])] == []
    assert [*stale_writes([("a", 1, 2)])]
    assert [*stale_writes([("a", 2, 2), ("a", 1, 1)])]


# --- Beats ---------------------------------------------------------------------------

EVERY_100 = Work("job", (100,), 40, 0, 0)
"""Its ticks are at 0, 100, 200 and so on, by the clock of these histories."""
BEAT, CHILD = 10, 11
"""Processes."""
serial = count(1)


def beat(
    started: float = 0,
    *,
    stops: Iterable[float] = (),
    killed: float | None = None,
    pid: int = BEAT,
) -> list[Event]:
    """Return the events of a beat, which looks a second after it has started."""
    who = {"host": "a", "pid": pid}
    events: list[Event] = [
        {"what": "started", "at": started, "version": 0, **who},
        {"what": "ready", "at": started + 1, **who},
        *({"what": "stopping", "at": at, **who} for at in stops),
    ]
    if killed is not None:
        kill = {"what": "killing", "at": killed, "pids": [pid], "of": "beat"}
        events.append({**kill, **who})
    return events


def body(
    begin: float,
    last: float | None = None,
    *,
    how: str | None = "ended",
    has_body: bool = True,
    **details: Any,
) -> list[Event]:
    """Return the events of one body of the beat's child, which lives until ``last``."""
    last = begin + 1 if last is None else last
    facts = {
        "id": f"a:{CHILD}:{next(serial)}",
        "name": "job",
        "host": "a",
        "pid": CHILD,
        "parent": BEAT,
        "version": 0,
        "tick": None,
        "trigger": "scheduler",
        "request": None,
        "lease": 40.0,
        "keep_alive": False,
        "rerun": False,
        **details,
    }
    id, lease_end = facts["id"], begin + facts["lease"]
    events: list[Event] = [{"what": "acquired", "at": begin, "at_least": 0, **facts}]
    if has_body:
        events += [
            {"what": "begin", "at": begin, "lease_end": lease_end, **facts},
            {"what": "alive", "at": last, "id": id, "is_held": last < lease_end},
        ]
    if "token" in facts:
        events.append({"what": "token", "at": begin, "id": id, "token": 1})
    if how is not None and has_body:
        events.append({"what": "end", "at": last, "id": id, "how": how})
    if how is not None:
        events.append({"what": "released", "at": last, "id": id, "why": None})
    return events


def request(at: float, *, is_sure: bool = True) -> list[Event]:
    """Return the event of a run that an operator asked for."""
    times = {"at": at + 0.5, "asked": at}
    return [{"what": "request", "name": "job", "is_sure": is_sure, **times}]


def outage(begin: float, end: float) -> list[Event]:
    """Return the events of a time in which the host does not reach its store."""
    return [
        {"what": "away", "at": begin, "hosts": ["a"], "kind": "link hangs"},
        {"what": "back", "at": end, "hosts": ["a"], "since": begin},
    ]


def kill(at: float) -> list[Event]:
    """Return the event of a child that is killed."""
    who = {"host": "a", "pid": BEAT, "pids": [CHILD], "of": "child"}
    return [{"what": "killing", "at": at, **who}]


def dead_holder(*seen: float) -> list[Event]:
    """Return what is seen of a dead process that holds the lock."""
    facts = {"name": "job", "id": f"a:{CHILD}:dead", "host": "a", "pid": CHILD}
    event: Event = {"what": "dead holder", "dead": 50, "locked_at": 50, **facts}
    return [{**event, "at": at} for at in seen]


def judged(*events: list[Event], since: float = 0, wall: float = 0) -> Verdict:
    """
    Return the verdict on a job that is known from then on, and calm from 150 on.

    At the beginning, the store's clock shows ``wall``.
    """
    begin: list[Event] = [
        {"what": "clock", "at": 0, "wall": wall},
        {"what": "deploy", "at": since, "version": 0},
    ]
    everything = [event for each in events for event in each]
    calm: Event = {"what": "calm", "at": 150}
    return beats.judge([*begin, *everything, calm], [EVERY_100])


OPERATOR: dict[str, Any] = {"request": 10.2, "trigger": "operator"}
PAUSE: Event = {"what": "pause", "at": 91, "name": "job", "asked": 90, "lasting": 30}
OPEN: Event = {"what": "open request", "at": 90, "name": "job"}
EXIT = {"status": 1, "is_asked": False, "words": "Traceback"}
GONE: Event = {"what": "gone", "at": 30, "host": "a", "pid": BEAT, **EXIT}
CUT = 50 + STOP_TIMEOUT_SECONDS - 2
BEGUN = body(100, tick=100)


@pytest.mark.parametrize(
    ("rule", "events"),
    [
        ("one body", [body(1, 5), body(4, 8)]),
        ("one body", [body(1, 5, lease=2, keep_alive=True), body(4, 8)]),
        ("one body", [body(1, 5, lease=3.5), body(4, 8)]),
        ("tokens", [body(1, token=1), body(3, token=1)]),
        ("once each tick", [BEGUN, body(105, tick=100)]),
        (
            "once each tick",
            [
                body(100, tick=100, rerun=True, how="raised"),
                body(105, tick=100, rerun=True, trigger="catch-up"),
            ],
        ),
        (
            "once each tick",
            [body(100, tick=100, how=None), kill(101), body(105, tick=100)],
        ),
        ("not before the tick", [body(99, tick=100)]),
        ("not owed", [[{**PAUSE, "is_sure": True}], beat(), body(121, tick=100)]),
        ("none lost", [beat()]),
        ("none lost", [beat(), outage(95, 100.5)]),
        ("none lost", [beat(), body(90, 101)]),
        ("a request once", [request(10), body(12, **OPERATOR), body(15, **OPERATOR)]),
        ("a request once", [request(10)]),
        ("a request once", [request(10, is_sure=False), [OPEN]]),
        ("no dead holder", [beat(), BEGUN, dead_holder(51, 70)]),
        ("none cut", [beat(stops=[50]), body(49, CUT, how="interrupted")]),
        ("none cut", [beat(stops=[50]), body(49, CUT, how=None)]),
        ("none cut", [beat(killed=50), body(49, 51, how=None)]),
        ("none cut", [beat(), BEGUN, body(10, 12, how="interrupted"), kill(13)]),
        ("the beat of a ended by itself", [beat(), [GONE]]),
        ("the beat of a did not end", [[{"what": "endless", "at": 30, "host": "a"}]]),
    ],
)
def test_broken_rule(rule: str, events: list[list[Event]]) -> None:
    """A journal that breaks one rule for beats has that one violation."""
    [violation] = judged(*events).violations
    assert violation.startswith(rule)


def test_ticks_are_counted_from_the_epoch() -> None:
    """With a store's clock 3 seconds ahead of the journal's, a tick is at 97."""
    assert judged(beat(), body(97, tick=100), wall=3).violations == []
    [violation] = judged(beat(), wall=3).violations
    assert violation.startswith("none lost: the tick 100 of job")


def test_violation_has_a_timeline() -> None:
    """The timeline shows what happened to the lock, and the faults at that time."""
    events = (body(1, 5), body(4, 8), outage(3, 4), body(4, name="other"))
    [violation] = judged(beat(), BEGUN, *events).violations
    first, *lines = violation.splitlines()
    assert first.startswith("one body: the body of job in ")
    shown = Counter(line.split()[1] for line in lines)
    assert shown["begin"] == shown["end"] == 2
    assert shown["started"] == shown["away"] == shown["back"] == 1
    assert "other" not in violation


@pytest.mark.parametrize("broken", beat_faults.BREAKS)
def test_parts_that_are_taken_out_of_beats_exist(broken: str) -> None:
    """Each part of the library that a soak takes out exists, and so does its rule."""
    take_out, rule = beat_faults.BREAKS[broken]
    try:
        take_out()
    finally:
        patch.stopall()
    assert rule in {each.title for each in Rule.__subclasses__()}


def test_tick_before_its_registration() -> None:
    """A tick that came before any beat knew its schedule is not owed."""
    [violation] = judged(body(160, tick=100), since=150).violations
    assert violation.startswith("not owed")


@pytest.mark.parametrize(
    "events",
    [
        [beat(), BEGUN],
        [body(1, 5, lease=2), body(4.1, 8)],
        [
            body(100, tick=100, how=None, rerun=True),
            kill(101),
            body(105, tick=100, rerun=True),
        ],
        [beat(), outage(99, 100 + GRACE_SECONDS)],
        [beat(killed=105)],
        [request(10), body(12, **OPERATOR)],
        [beat(), BEGUN, dead_holder(51, 60)],
        [beat(stops=[50]), body(49, CUT + 2, how="interrupted")],
        [beat(stops=[50, 51]), body(49, 52, how="interrupted")],
    ],
)
def test_kept_rules(events: list[list[Event]]) -> None:
    """A journal that has only what may happen has no violation."""
    assert judged(*events).violations == []


# --- Both ----------------------------------------------------------------------------


def test_half_a_line_of_a_killed_process_is_left_out(tmp_path: Path) -> None:
    """The journal's other lines are whole."""
    path = tmp_path / "journal"
    Journal(path).write("begin", at=1.5, name="a")
    with path.open("a") as lines:
        lines.write('{"what": "en')
    assert [*read(path)] == [{"what": "begin", "at": 1.5, "name": "a"}]


@pytest.mark.parametrize("program", ["benchmarks.soak", "benchmarks.soak.beats"])
@pytest.mark.parametrize(("found", "status"), [([], 0), (["a overlaps b"], 1)])
def test_violation_is_the_exit_status(
    program: str,
    found: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The violations are printed below the figures, or in them as JSON."""
    command: Any = import_module(f"{program}.__main__")
    plans: list[Any] = []

    def soak(plan: Any) -> Verdict:
        plans.append(plan)
        return Verdict(violations=found)

    monkeypatch.setattr(command, "soak", soak)
    assert command.main(command.parse(["--for", "1h", "--seed", "7"])) == status
    assert command.main(command.parse(["--for", "1h", "--json"])) == status
    assert (plans[0].seconds, plans[0].seed) == (3600, 7)
    text, as_json = capsys.readouterr().out.split("{", 1)
    assert text.splitlines() == [f"violations  {status}", *found]
    assert json.loads("{" + as_json)["violations"] == found
