"""What the soak of the beats makes of its journal, and its short form."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest

from tests.concurrency import beat_soak as soaking
from tests.concurrency.beat_soak import Plan, soak
from tests.support.beat_soak.story import Story, longest_look, time_left
from tests.support.beat_soak.verdict import judge
from tests.support.beat_soak.works import (
    GRACE_SECONDS,
    STOP_TIMEOUT_SECONDS,
    WORKS,
    Work,
)
from tests.support.soak.enough import Enough, Found
from tests.support.soak.journal import Event
from tests.support.soak.verdict import Verdict

EVERY_100 = Work("job", (100,), 40, 0, 0)
"""Its ticks are at 0, 100, 200 and so on, by the clock of these histories."""
CHANGING = Work("job", (100, 30), 40, 0, 0)
BEAT, CHILD = 10, 11
"""Processes."""
serial = count(1)


def beat(
    *,
    started: float = 0,
    stops: Iterable[float] = (),
    killed: float | None = None,
    gone: float | None = None,
    pid: int = BEAT,
    version: int = 0,
) -> list[Event]:
    """Return the events of a beat, which looks a second after it has started."""
    who = {"host": "a", "pid": pid}
    events: list[Event] = [
        {"what": "started", "at": started, "version": version, **who},
        {"what": "ready", "at": started + 1, **who},
        *({"what": "stopping", "at": at, **who} for at in stops),
    ]
    if killed is not None:
        events.append({"what": "killing", "at": killed, "pids": [pid], "of": "beat"})
        events[-1] |= who
    if gone is not None:
        events.append({"what": "gone", "at": gone, "is_asked": True, **who})
    return events


def body(
    begin: float,
    last: float | None = None,
    *,
    how: str | None = "ended",
    why: str | None = None,
    is_released: bool = True,
    has_body: bool = True,
    **details: Any,
) -> list[Event]:
    """Return the events of one body, which lives until ``last``."""
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
    token = facts.pop("token", None)
    lease_end = begin + facts["lease"]
    id = facts["id"]
    events: list[Event] = [{"what": "acquired", "at": begin, "at_least": 0, **facts}]
    if has_body:
        events += [
            {"what": "begin", "at": begin, "lease_end": lease_end, **facts},
            {"what": "alive", "at": last, "id": id, "is_held": last < lease_end},
        ]
    if token is not None:
        events.append({"what": "token", "at": begin, "id": id, "token": token})
    if how is not None and has_body:
        events.append({"what": "end", "at": last, "id": id, "how": how})
    if is_released and how is not None:
        released: Event = {"what": "released", "at": last, "id": id, "why": why}
        events.append({**released, "was_ours": True})
    return events


def kill(at: float, *, of: str = "child") -> list[Event]:
    """Return the event of a child that is killed, or of its whole host."""
    pids = [CHILD] if of == "child" else [BEAT, CHILD]
    who = {"host": "a", "pid": BEAT}
    return [{"what": "killing", "at": at, "pids": pids, "of": of, **who}]


def outage(begin: float, end: float) -> list[Event]:
    """Return the events of a time in which the host does not reach its store."""
    return [
        {"what": "away", "at": begin, "hosts": ["a"], "kind": "link hangs"},
        {"what": "back", "at": end, "hosts": ["a"], "since": begin},
    ]


def pause(begin: float, lasting: float) -> list[Event]:
    """Return the event of a pause, which began within a second."""
    told = {"name": "job", "asked": begin, "lasting": lasting, "is_sure": True}
    return [{"what": "pause", "at": begin + 1, **told}]


def request(at: float, *, is_sure: bool = True) -> list[Event]:
    """Return the event of a run that an operator asked for."""
    times = {"at": at + 0.5, "asked": at}
    return [{"what": "request", "name": "job", "is_sure": is_sure, **times}]


def dead_holder(dead: float, *seen: float) -> list[Event]:
    """Return what is seen of a dead process that holds the lock."""
    facts = {"name": "job", "id": f"a:{CHILD}:dead", "host": "a", "pid": CHILD}
    event: Event = {"what": "dead holder", "dead": dead, "locked_at": dead, **facts}
    return [{**event, "at": at} for at in seen]


def told(
    *events: list[Event],
    since: float = 0,
    until: float = 0,
    work: Work = EVERY_100,
) -> Verdict:
    """
    Return the verdict on a history of one job, which is first known at ``since``.

    Ticks have to be begun up to ``until``.
    """
    begin: list[Event] = [
        {"what": "clock", "at": 0, "wall": 0},
        {"what": "deploy", "at": since, "version": 0},
    ]
    end: Event = {"what": "calm", "at": until}
    everything = [event for each in events for event in each]
    return judge([*begin, *everything, end], [work])


def broken(*events: list[Event], **options: Any) -> list[str]:
    """Return the rules that this history breaks."""
    return [v.partition(":")[0] for v in told(*events, **options).violations]


def excused(*events: list[Event], **options: Any) -> list[str]:
    """Return the excuses for this history, which breaks no rule."""
    verdict = told(*events, **options)
    assert verdict.violations == []
    return [name for name in verdict.counts if name.startswith("excused")]


def test_two_live_bodies() -> None:
    """A body that begins while another one lives is a violation."""
    assert broken(body(1, 5), body(4, 8)) == ["one body"]
    assert broken(body(1, 4), body(4.1, 8)) == []


def test_two_live_bodies_after_a_lease() -> None:
    """They are excused if the lease had ended, and was not to be kept alive."""
    late = body(4, 8)
    assert excused(body(1, 5, lease=2), late) == [
        "excused, one body: the lease had ended without keep_alive"
    ]
    assert broken(body(1, 5, lease=2, keep_alive=True), late) == ["one body"]
    assert broken(body(1, 5, lease=3.5), late) == ["one body"]


def test_tokens_have_to_grow() -> None:
    """Two bodies never have one token."""
    assert broken(body(1, token=7), body(3, token=7)) == ["tokens"]
    assert broken(body(1, token=7), body(3, token=8)) == []


def test_tick_is_begun_once() -> None:
    """A second body for a tick is a violation, also by catch-up and with ``rerun``."""
    first = body(100, tick=100, rerun=True)
    late = body(105, tick=100, rerun=True, trigger="catch-up")
    assert broken(first, body(105, tick=100)) == ["once each tick"]
    assert broken(first, late) == ["once each tick"]
    failed = body(100, tick=100, rerun=True, how="raised")
    assert broken(failed, late) == ["once each tick"]
    by_operator = body(105, tick=100, trigger="operator")
    assert broken(first, by_operator) == []


def test_tick_of_a_killed_body_is_begun_once_more() -> None:
    """That needs ``rerun``, and is allowed once."""
    killed = [*body(100, tick=100, how=None, rerun=True), *kill(101)]
    again = [*body(105, tick=100, how=None, rerun=True), *kill(106)]
    verdict = told(killed, again)
    assert verdict.violations == []
    assert verdict.counts["ticks run again"] == 1
    third = body(110, tick=100, rerun=True)
    assert broken(killed, again, third) == ["once each tick"]
    without = [*body(100, tick=100, how=None), *kill(101)]
    assert broken(without, body(105, tick=100)) == ["once each tick"]


def test_tick_of_a_body_that_is_killed_as_it_ends() -> None:
    """Nobody can tell such a body from one that was killed before its end."""
    first = body(100, tick=100, rerun=True, is_released=False)
    again = body(105, tick=100, rerun=True)
    assert excused(first, kill(101.1), again)
    assert broken(first, kill(103), again) == ["once each tick"]


def test_body_before_its_tick() -> None:
    """A host whose clock is ahead begins no tick early."""
    assert broken(body(99, tick=100)) == ["not before the tick"]
    assert broken(body(100, tick=100)) == []


def test_tick_before_its_registration() -> None:
    """A tick that came before any beat knew its schedule is not owed."""
    assert broken(body(160, tick=100), since=150) == ["not owed"]
    assert broken(body(160, tick=100), since=99) == []


def test_tick_before_a_changed_schedule() -> None:
    """Nor is one of a new schedule, unless the former one had it as well."""
    deploy: Event = {"what": "deploy", "at": 150, "version": 1}
    for tick, found in ((120, ["not owed"]), (100, []), (150, [])):
        events = (beat(), [deploy], body(151, tick=tick, version=1))
        assert broken(*events, work=CHANGING) == found


def test_tick_in_a_pause() -> None:
    """A tick that came in a pause is not begun after it."""
    late = body(121, tick=100)
    assert broken(beat(), pause(90, 30), late) == ["not owed"]
    assert broken(beat(), pause(90, 5), late) == []
    resume: Event = {"what": "resume", "at": 99.5, "name": "job", "asked": 99}
    assert broken(beat(), pause(90, 30), [{**resume, "is_sure": True}], late) == []
    assert broken(beat(), pause(80, 30), pause(90, 5), late) == []
    by_operator = body(121, tick=100, trigger="operator")
    assert broken(beat(), pause(90, 30), by_operator) == []


def test_lost_tick() -> None:
    """A tick that nobody begins while a beat lives is a violation."""
    assert broken(beat(), until=150) == ["none lost"]
    assert broken(beat(), body(110, tick=100), until=150) == []
    # The soak was over before anybody had to begin it.
    assert broken(beat(), until=100 + GRACE_SECONDS - 1) == []


def report(text: str, at: float) -> list[Event]:
    return [{"what": "log", "at": at, "level": "WARNING", "text": text}]


@pytest.mark.parametrize(
    "events",
    [
        [beat(), report("The tick of 'job' waits for room.", 110)],
        [beat(), pause(95, 10)],
        [beat(killed=105)],
        [beat(stops=[105], gone=106)],
        [beat(), outage(95, 118)],
        [beat(), body(90, 119)],
        [beat(), body(110, 119, tick=110)],
        [beat(), body(90, how=None, lease=60.0), kill(91)],
        [beat(killed=101), kill(101, of="host"), body(100, has_body=False, tick=100)],
    ],
    ids=(
        *("reported", "paused", "killed", "stopped", "cut off", "held"),
        *("passed over", "held by a dead process", "abandoned"),
    ),
)
def test_tick_that_nobody_could_begin(events: list[list[Event]]) -> None:
    """It is excused, or a later one is begun in its place."""
    assert "none lost" not in broken(*events, until=150)


def test_two_looks_are_enough_for_a_tick() -> None:
    """A tick is also lost if a pause, an outage or a body leaves two looks."""
    assert broken(beat(), outage(95, 100.5), until=150) == ["none lost"]
    assert broken(beat(), body(90, 101), until=150) == ["none lost"]
    assert time_left([], 100, 120) == 20
    assert longest_look() < GRACE_SECONDS - 1


def test_tick_while_two_versions_run() -> None:
    """Either's run covers older ticks of the other, so nobody asks for them."""
    deploy: Event = {"what": "deploy", "at": 115, "version": 1}
    newer = beat(started=300, pid=20, version=1)
    former = beat(stops=[310], gone=311)
    verdict = told(former, [deploy], newer, until=350, work=CHANGING)
    # Only the newer schedule counts from then on.
    [violation] = verdict.violations
    assert "the tick 330 of job" in violation


def test_request_is_carried_out_once() -> None:
    """Two bodies for one request are a violation."""
    first = body(12, request=10.2, trigger="operator")
    again = body(15, request=10.2, trigger="operator")
    assert broken(request(10), first) == []
    assert broken(request(10), first, again) == ["a request once"]


def test_request_that_nobody_carries_out() -> None:
    """It is a violation, whether it is still open or gone."""
    still_open: Event = {"what": "open request", "at": 90, "name": "job"}
    assert broken(request(10)) == ["a request once"]
    assert broken(request(10), [still_open]) == ["a request once"]


def test_request_that_may_not_have_been_stored() -> None:
    """It is a violation only if something shows that it was."""
    unsure = request(10, is_sure=False)
    assert excused(unsure) == [
        "excused, a request once: nobody knows whether it was stored"
    ]
    still_open: Event = {"what": "open request", "at": 90, "name": "job"}
    assert broken(unsure, [still_open]) == ["a request once"]
    without_body = body(12, request=10.2, trigger="operator", has_body=False)
    assert broken(unsure, without_body) == ["a request once"]


def test_request_of_a_host_that_was_killed() -> None:
    """A host that dies before the body has begun abandons the request."""
    left = body(12, request=10.2, trigger="operator", has_body=False, how=None)
    killed = [*beat(killed=13), *kill(13, of="host")]
    assert excused(request(10), left, killed) == [
        "excused, a request once: abandoned before its body began"
    ]
    assert broken(request(10), left, beat()) == ["a request once"]


def test_body_that_is_cut_as_it_begins() -> None:
    """It has told its beat that it begins, so nothing is given back."""
    facts = {"tick": 100, "request": 99.2, "trigger": "operator", "has_body": False}
    child = body(100, 100.1, why="SystemExit", **facts)
    ending = [*beat(stops=[100], gone=130), *beat(pid=20)]
    assert excused(ending, request(99), child, until=150) == [
        "excused, none lost: its body was cut as it began",
        "excused, a request once: its body was cut as it began",
    ]
    late = body(100, 107, why="SystemExit", **facts)
    for events in ((beat(), child), (ending, late)):
        found = broken(*events, request(99), until=150)
        assert found == ["none lost", "a request once"]


def test_lock_of_a_dead_child() -> None:
    """A living beat that reaches its store has to release it."""
    assert broken(beat(), dead_holder(50, 51, 70)) == ["no dead holder"]
    assert broken(beat(), dead_holder(50, 51, 60)) == []


def test_lock_of_a_dead_child_whose_beat_could_do_nothing() -> None:
    """That is no violation while the store is away, nor if the beat is dead as well."""
    dead = dead_holder(50, 51, 70)
    assert broken(beat(), outage(49, 65), dead) == []
    assert excused(beat(killed=45), dead) == [
        "excused, no dead holder: its beat was gone"
    ]
    # Its own beat was killed, not the one that runs now.
    of_former = body(49, how=None, id=f"a:{CHILD}:dead", parent=9, has_body=False)
    assert broken(beat(pid=9, killed=48), beat(started=48), of_former, dead) == []


def test_body_that_is_cut() -> None:
    """A body may finish within the stop timeout of its beat."""
    stopped = beat(stops=[50])
    early, late = 50 + STOP_TIMEOUT_SECONDS - 2, 50 + STOP_TIMEOUT_SECONDS
    assert broken(stopped, body(49, early, how="interrupted")) == ["none cut"]
    assert broken(stopped, body(49, late, how="interrupted")) == []
    assert broken(stopped, body(49, early, how=None)) == ["none cut"]
    assert broken(beat(), body(49, 52, how="interrupted")) == ["none cut"]


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([beat(stops=[50, 51]), body(49, 52, how="interrupted")], "a second SIGTERM"),
        ([beat(), body(49, 52, how=None), kill(52)], "killed by the soak"),
        (
            [beat(), outage(45, 60), body(40, 52, how=None, keep_alive=True)],
            "its lease could not be extended",
        ),
    ],
)
def test_body_that_may_be_cut(events: list[list[Event]], reason: str) -> None:
    """The figures have the reason."""
    verdict = told(*events)
    assert verdict.violations == []
    assert verdict.counts[f"bodies cut: {reason}"] == 1


def test_child_of_a_killed_beat_goes_on() -> None:
    """The death of its beat is no reason to end, nor to forget a tick."""
    assert broken(beat(killed=50), body(49, 51, how=None)) == ["none cut"]
    without_body = body(100, has_body=False, tick=100)
    another = beat(started=60, pid=20)
    events = (beat(killed=101), another, without_body)
    assert broken(*events, until=150) == ["none lost"]


def test_interrupted_body_that_is_killed_as_well() -> None:
    """SIGKILL interrupts no body, so something else did."""
    events = (beat(), body(10, 12, how="interrupted"), kill(13))
    assert broken(*events) == ["none cut"]


def test_beat_that_ends_by_itself() -> None:
    """That is a violation without a rule of its own."""
    gone: Event = {"what": "gone", "at": 30, "host": "a", "pid": BEAT, "status": 1}
    found = told(beat(), [{**gone, "is_asked": False, "words": "Traceback"}])
    assert len(found.violations) == 1


def test_beat_that_never_ends() -> None:
    """So is this one."""
    assert (
        len(told(beat(), [{"what": "endless", "at": 30, "host": "a"}]).violations) == 1
    )


def test_violation_has_a_timeline() -> None:
    """It shows what happened to the lock, and the faults at that time."""
    [violation] = told(
        beat(), body(1, 5), body(4, 8), outage(3, 4), body(4, name="other")
    ).violations
    first, *lines = violation.splitlines()
    assert first.startswith("one body: the body of job in ")
    whats = Counter(line.split()[1] for line in lines)
    assert whats["begin"] == 2
    assert whats["away"] == whats["back"] == whats["started"] == 1
    assert "other" not in violation


def test_jobs_of_the_soak_have_enough_ticks() -> None:
    """In ten minutes there are more than 2,000."""
    assert sum(600 / work.interval(0) for work in WORKS) > 2000


@pytest.mark.parametrize(("found", "status"), [([], 0), (["one body: both"], 1)])
def test_violation_is_the_exit_status(
    found: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The seed is printed first, and the violations below the figures or as JSON."""
    plans: list[Plan] = []

    def run(plan: Plan) -> Verdict:
        plans.append(plan)
        return Verdict(violations=found)

    monkeypatch.setattr(soaking, "soak", run)
    assert soaking.main(soaking.parse(["--for", "10m", "--seed", "7"])) == status
    assert soaking.main(soaking.parse(["--for", "10m", "--json"])) == status
    assert (plans[0].seconds, plans[0].seed) == (600, 7)
    printed = capsys.readouterr()
    assert printed.err.startswith("seed 7\n")
    text, as_json = printed.out.split("{", 1)
    assert text.splitlines() == [f"violations  {status}", *found]
    assert json.loads("{" + as_json)["violations"] == found


@pytest.mark.slow
@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True)
def test_faults_of_beats_hosts_and_store() -> None:
    """No rule is broken by beats that are killed, restarted and cut off."""
    enough = Enough({"ticks begun": 30}, "hosts: ", "store: ")
    verdict = soak(Plan(20, seed=2, pace=0.5, is_enough=enough))
    assert verdict.violations == []


@pytest.mark.slow
@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("broken", "found"), [("lease", "one body: "), ("tick", "once each tick: ")]
)
def test_what_is_broken_is_found(broken: str, found: str) -> None:
    """Each part that is taken out of the library breaks a rule of its own."""
    is_found = Found(found)
    verdict = soak(Plan(0, seed=2, pace=0.5, broken=broken, is_enough=is_found))
    assert is_found(verdict)


@pytest.mark.slow
@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True)
def test_jobs_that_are_not_let_finish_are_found() -> None:
    """Each soak ends with a SIGTERM to the beats; in one of three, bodies live then."""
    enough = Enough({"bodies": 20})
    plans = (
        Plan(0, seed=seed, pace=0.5, broken="stop", is_enough=enough)
        for seed in (2, 3, 4)
    )
    is_found = Found("was interrupted without a reason")
    assert any(is_found(soak(plan)) for plan in plans)


def test_story_counts_ticks_from_the_epoch() -> None:
    """The instants of the journal are those of another clock."""
    story = Story([{"what": "clock", "at": 0, "wall": 1_000_003}], [EVERY_100])
    assert [*story.ticks(100, 0, 200)] == [97, 197]
    assert story.is_tick_of(100, 97)
    assert not story.is_tick_of(100, 100)
