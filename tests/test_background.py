"""The package's own threads."""

from __future__ import annotations

import asyncio
import dis
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import Queue
from types import FrameType
from typing import Any, NoReturn

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.utils.asyncio import async_unsafe

from django_shedlock import background as threads
from django_shedlock.background import (
    Background,
    Timetable,
    outside_event_loop,
    run_in_background,
)
from django_shedlock.clocks import uptime
from django_shedlock.forking import renewed_in_child
from django_shedlock.mutexes import Mutex
from tests.support.forks import forked, thread_inside
from tests.support.paths import ROOT
from tests.support.processes import Parent, worker
from tests.support.runs import first_line
from tests.support.threads import (
    NewThreads,
    counted_starts,
    is_idle,
    noted_wait,
    running_threads,
    threads_named,
)
from tests.support.waiting import NEVER_SECONDS, PATIENCE, wait_for

SOON = 0.01


class Interrupted(BaseException):
    """What a signal's handler raises."""


class Often:
    """Work that is due all the time, until it is told to end."""

    def __init__(self, work: Callable[[], object] = list):
        self.calls = 0
        self.is_over = False
        self._work = work

    def __call__(self) -> float | None:
        self.calls += 1
        self._work()
        return None if self.is_over else uptime() + SOON

    def goes_on(self) -> bool:
        """Wait for another call; fail if it does not come."""
        before = self.calls
        return bool(wait_for(lambda: self.calls > before))


@pytest.fixture
def timetable(request: pytest.FixtureRequest) -> Iterator[Timetable]:
    made = Timetable(request.node.name)  # the threads of others may wait for more work
    yield made
    for key in list(made.entries):
        made.remove(key)
    wait_for(lambda: is_idle(made))


def threads_of(timetable: Timetable) -> set[threading.Thread]:
    return threads_named(timetable.name)


def test_entries_are_called_until_they_end(
    timetable: Timetable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread calls all entries of a timetable, and ends after the last one."""
    monkeypatch.setattr(Timetable, "idle_seconds", SOON)
    first, second = Often(), Often()
    timetable.add("first", first)
    timetable.add("second", second)
    assert first.goes_on()
    assert second.goes_on()
    assert len(threads_of(timetable)) == 1
    first.is_over = True
    wait_for(lambda: "first" not in timetable.entries)
    timetable.remove("second")
    wait_for(lambda: not threads_of(timetable))


class Inheriting(threading.Thread):
    """As each thread is in a free-threaded Python: it begins with a copied context."""

    def start(self) -> None:
        self.inherited = copy_context()
        super().start()

    def run(self) -> None:
        self.inherited.run(super().run)


@pytest.mark.parametrize("call", [run_in_background, Background("of a test").call])
def test_thread_keeps_nothing_of_its_first_caller(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Callable[[], object]], object]
) -> None:
    """A background thread doesn't inherit the context of its first caller."""
    of_the_caller, seen = ContextVar[str]("of the caller"), Queue[str]()
    monkeypatch.setattr(threading, "Thread", Inheriting)
    token = of_the_caller.set("request")
    call(lambda: seen.put(of_the_caller.get("nothing")))
    of_the_caller.reset(token)
    assert seen.get(timeout=PATIENCE) == "nothing"


def test_thread_waits_for_more_work(timetable: Timetable) -> None:
    """A start costs more than many locks, and nothing is held meanwhile."""
    with counted_starts() as started:
        for _ in range(100):
            timetable.add("key", lambda: None)
            timetable.wait_until_done("key", PATIENCE)
            wait_for(lambda: is_idle(timetable), pause=0.001)
    assert len(started) < 10  # one, but for a machine that stands still
    assert all(thread.daemon for thread in threads_of(timetable))


def test_thread_ends_after_work_that_was_removed(
    timetable: Timetable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells it, so it looks."""
    monkeypatch.setattr(Timetable, "idle_seconds", SOON)
    monkeypatch.setattr(Timetable, "watch_interval_seconds", SOON)
    timetable.add("later", Often(), uptime() + 3600)
    timetable.remove("later")
    wait_for(lambda: not threads_of(timetable))


def test_thread_that_was_needed_meanwhile_goes_on(
    timetable: Timetable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timetable's thread goes on if work was added since its last look."""
    waits: list[float] = []

    def wait(pause: float) -> None:
        waits.append(pause)
        if len(waits) < 4:
            timetable.add("later", Often(), uptime() + 3600)
            timetable.remove("later")

    timetable._thread = threading.current_thread()
    monkeypatch.setattr(timetable._changed, "wait", wait)
    assert timetable._next() is None
    assert waits == [Timetable.idle_seconds] * 4
    assert timetable._is_over
    timetable._thread = None


def test_later_entry_takes_the_place_of_one_with_its_key(timetable: Timetable) -> None:
    """A later entry replaces an earlier entry with the same key."""
    busy, go_on = threading.Event(), threading.Event()

    def hold_up() -> None:
        busy.set()
        wait_for(go_on.is_set)

    earlier, later = Often(), Often()
    timetable.add("slow", Often(hold_up))
    wait_for(busy.is_set)
    timetable.add("key", earlier)
    timetable.add("key", later)
    go_on.set()
    assert later.goes_on()
    assert earlier.calls == 0


@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_work_that_raises_costs_no_other(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Work that raises is logged, and the other work goes on."""
    timetable = Timetable("of a test", retries=False)

    def fail() -> NoReturn:
        raise error("no more")

    other = Often()
    timetable.add("other", other)
    timetable.add("bad", Often(fail))
    wait_for(lambda: "bad" not in timetable.entries)
    assert other.goes_on()
    timetable.remove("other")
    assert "Work of the timetable 'of a test' failed" in caplog.text


def test_work_that_raises_is_called_again(timetable: Timetable) -> None:
    """What went wrong once, as memory that was short, costs no lock its lease."""
    calls: list[BaseException] = []

    def fail_twice() -> None:
        if len(calls) < 2:
            calls.append(MemoryError())
            raise calls[-1]

    often = Often(fail_twice)
    timetable.add("bad", often)
    wait_for(lambda: often.calls > 2)


@pytest.mark.parametrize("error", [SystemExit, MemoryError])
def test_thread_with_work_is_ended_by_nothing(
    timetable: Timetable, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Not by what the package's own code raises either, nor by the log of that."""
    often, real = Often(), Timetable._next
    fails = [error(), error()]

    def fail_first(self: Timetable) -> Any:
        if fails:
            raise fails.pop()
        return real(self)

    def fail(*args: object, **options: object) -> NoReturn:
        raise error

    timetable.add("job", often, uptime() + 3600)
    monkeypatch.setattr(Timetable, "_next", fail_first)
    monkeypatch.setattr(threads.logger, "exception", fail)
    timetable.add("first", Often())
    timetable.add("job", often)
    wait_for(lambda: not fails)
    assert often.goes_on()


def test_thread_that_can_not_be_started_adds_nothing(
    timetable: Timetable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks is told, and the next one tries again."""
    refused, last = Often(), Often()

    def refuse(thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            timetable.add("refused", refused)
    timetable.add("last", last)
    assert last.goes_on()
    assert refused.calls == 0


class Due(float):
    """An instant that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        Due.compared += 1
        return float(self) < float(other)

    def __eq__(self, other: object) -> bool:
        Due.compared += 1
        return isinstance(other, float) and float(self) == float(other)

    __hash__ = float.__hash__


@pytest.fixture
def full(timetable: Timetable, monkeypatch: pytest.MonkeyPatch) -> Iterator[Timetable]:
    """A timetable with thousands of entries, none of which is due, nor looked for."""
    monkeypatch.setattr(Timetable, "watch_interval_seconds", NEVER_SECONDS)
    soon = uptime() + 3600
    for number in range(2000):
        timetable.add(number, Often(), Due(soon + number))
    wait_for(lambda: is_idle(timetable))
    yield timetable
    monkeypatch.undo()
    for key in list(timetable.entries):
        timetable.remove(key)
    timetable.add("now", lambda: None)  # it looks, and forgets the others


def test_thousands_of_entries_are_not_looked_through(full: Timetable) -> None:
    """A timetable with thousands of entries needs few comparisons for one more."""
    Due.compared = 0
    for _ in range(20):
        full.add("one more", lambda: None, Due(0))
        full.wait_until_done("one more", PATIENCE)
        assert "one more" not in full.entries
    assert 0 < Due.compared < 20 * 100


def test_entry_that_is_not_the_first_wakes_up_nobody(
    full: Timetable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread would only find that nothing is due."""
    woken: list[str] = []
    with monkeypatch.context() as watched:
        watched.setattr(full._changed, "notify_all", lambda: woken.append("up"))
        full.add("one more", Often(), Due(uptime() + 7200))
        full.remove("one more")
    assert woken == []


def test_thread_that_looks_in_time_is_not_woken_up(
    timetable: Timetable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread is not woken up for work that is due after its next look."""
    monkeypatch.setattr(Timetable, "idle_seconds", NEVER_SECONDS)
    monkeypatch.setattr(Timetable, "watch_interval_seconds", NEVER_SECONDS)
    timetable.add("first", lambda: None)
    wait_for(lambda: is_idle(timetable) and not timetable.entries)
    woken: list[str] = []
    with monkeypatch.context() as watched:
        watched.setattr(timetable._changed, "notify_all", lambda: woken.append("up"))
        timetable.add("late", Often(), uptime() + 2 * NEVER_SECONDS)
        assert woken == []
        timetable.add("soon", Often(), uptime() + NEVER_SECONDS / 2)
        assert woken == ["up"]
    monkeypatch.undo()
    timetable.add("now", lambda: None)  # it looks, and then as often as it should


def test_thread_is_woken_up_after_a_suspension(
    timetable: Timetable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A thread that is late for its next look is woken up for new work.

    Waits stand still while the host is suspended.
    """
    timetable.add("first", lambda: None)
    wait_for(lambda: is_idle(timetable) and not timetable.entries)
    woken: list[str] = []
    with monkeypatch.context() as watched:
        watched.setattr(timetable._changed, "notify_all", lambda: woken.append("up"))
        watched.setattr(timetable, "_looks_at", uptime() - SOON)
        timetable.add("soon", Often(), uptime() + SOON)
    assert woken == ["up"]


def test_removed_entries_do_not_pile_up(timetable: Timetable) -> None:
    """Each lock adds an entry, and removes it long before it is due."""
    later = uptime() + 3600
    for number in range(10):
        timetable.add(number, Often(), later)
    for number in range(10, 1000):
        timetable.add(number, Often(), later + number)
        timetable.remove(number)
    assert len(timetable._heap) <= 2 * len(timetable.entries)


def test_connections_of_work_are_closed_after_it(
    timetable: Timetable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that waits keeps no place at the server; nobody waits meanwhile."""
    closing, closed = threading.Event(), threading.Event()

    def close_slowly() -> None:
        closing.set()
        wait_for(closed.is_set)

    monkeypatch.setattr(threads.connections, "close_all", close_slowly)
    timetable.add("first", lambda: None)
    wait_for(closing.is_set)
    with running_threads(1, lambda: timetable.add("other", Often())):
        wait_for(lambda: "other" in timetable.entries)
        closed.set()


def test_connection_that_can_not_be_closed_ends_nothing(
    timetable: Timetable,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A connection that can't be closed is logged, and the work is called again."""

    def fail() -> NoReturn:
        raise RuntimeError("stuck")

    often = Often()
    with monkeypatch.context() as broken:
        broken.setattr(threads.connections, "close_all", fail)
        timetable.add("often", often)
        wait_for(lambda: "RuntimeError: stuck" in caplog.text)
    assert often.goes_on()


def test_work_in_the_background_runs_in_another_thread() -> None:
    """The caller does not wait for it."""
    names: list[str] = []
    go_on = threading.Event()

    def work() -> None:
        wait_for(go_on.is_set)
        names.append(threading.current_thread().name)

    run_in_background(work)
    go_on.set()
    wait_for(lambda: names)
    assert names == ["django_shedlock background"]


def test_error_in_the_background_is_for_who_asks() -> None:
    """The thread has nothing else to do, and ends."""
    failed = run_in_background(lambda: 1 / 0)
    assert isinstance(failed.exception(PATIENCE), ZeroDivisionError)


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Iterator[Background]:
    monkeypatch.setattr(Background, "hanging_after_seconds", NEVER_SECONDS)
    made = Background("of a test")
    yield made
    wait_for(lambda: is_idle(made))


@contextmanager
def hanging_in(background: Background) -> Iterator[None]:
    """Let as much work as is called at once go on until the body has ended."""
    go_on, begun = threading.Event(), []

    def hang() -> None:
        begun.append("here")
        go_on.wait()

    for _ in range(Background.thread_limit):
        background.call(hang)
    wait_for(lambda: len(begun) == Background.thread_limit)
    try:
        yield
    finally:
        go_on.set()


def test_background_has_few_threads_at_once(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too much waits, and is called as soon as there is room."""
    at_once, called = NewThreads("background"), []
    full = noted_wait(monkeypatch)
    with hanging_in(background):
        for number in range(200):
            background.call(partial(called.append, number))
        wait_for(full.is_set)
        assert len(at_once) == Background.thread_limit
        assert called == []
    wait_for(lambda: sorted(called) == list(range(200)))


def test_what_hangs_holds_up_the_others_for_a_while(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it counts no more, and there is one thread more."""
    monkeypatch.setattr(Background, "hanging_after_seconds", SOON)
    called = threading.Event()
    with hanging_in(background):
        background.call(called.set)
        wait_for(called.is_set)


def test_background_without_room_for_a_thread(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Background work is tried again soon if no thread can be started."""
    monkeypatch.setattr(Timetable, "retry_seconds", SOON)
    refused, called = [], threading.Event()
    background.add("begin", lambda: None)
    background.wait_until_done("begin", PATIENCE)
    start = threading.Thread.start

    def refuse_first(thread: threading.Thread) -> None:
        if "background" in thread.name and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_first)
    background.call(called.set)
    wait_for(called.is_set)
    assert refused


def test_forked_child_waits_for_no_thread_of_its_parent(
    background: Background,
) -> None:
    """A forked child doesn't wait for the threads of its parent."""
    called = threading.Event()
    with hanging_in(background):
        background.forget()
        background.call(called.set)
        wait_for(called.is_set)


@async_unsafe("not in an event loop")
def ask() -> str:
    return threading.current_thread().name


def test_what_an_event_loop_forbids_is_done_in_another_thread() -> None:
    """Django's database works in no event loop; elsewhere no thread is needed."""

    async def main() -> Any:
        with pytest.raises(SynchronousOnlyOperation):
            ask()
        return outside_event_loop(ask)

    assert asyncio.run(main()) != threading.current_thread().name
    assert outside_event_loop(ask) == threading.current_thread().name


class Renewed:
    """Counts how often it was renewed, and may fail at it."""

    def __init__(self, error: Exception | None = None):
        self.count = 0
        self._error = error

    def forget(self) -> None:
        self.count += 1
        if self._error is not None:
            raise self._error


def test_each_thing_is_renewed_in_a_forked_child_only() -> None:
    """A forked child renews each thing, even if another thing can't be renewed."""
    things = [
        renewed_in_child(Renewed(error)) for error in (None, ValueError("stuck"), None)
    ]
    assert forked(lambda: [thing.count for thing in things] == [1, 1, 1])
    assert [thing.count for thing in things] == [0, 0, 0]


def test_thing_that_is_gone_is_not_kept() -> None:
    """Providers of tests and of changed settings come and go."""
    thing = weakref.ref(renewed_in_child(Renewed()))
    gc.collect()
    assert thing() is None


def test_mutex_of_another_thread_is_free_in_a_forked_child() -> None:
    """The thread that has it does not go on there."""
    renewed = renewed_in_child(Mutex())

    def work(stay: Callable[[], None]) -> None:
        with renewed:
            stay()

    with thread_inside(work):
        assert forked(lambda: renewed.acquire(blocking=False))


AFTER = {"RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}
"""The instructions after which Python calls a signal's handler."""
STUCK = 20
"""Seconds after which a timetable calls nothing more."""


def interrupt(work: Callable[[], object], step: int) -> bool:
    """Return whether ``work`` had that many steps; raise at the last, as a handler."""
    left, before = step, dict[FrameType, str]()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes, last = True, before.get(frame)
        before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        if event == "opcode" and last in AFTER:
            left -= 1
            if not left:
                sys.settrace(None)
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        work()
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False


def interrupt_timetable(parent: Parent) -> int:
    """Interrupt each step of what a caller does; return how many there are."""
    timetable = Timetable("interrupted")

    def add_and_remove() -> None:
        timetable.add("later", lambda: None, uptime() + NEVER_SECONDS)
        timetable.remove("later")

    # So its thread is there.
    timetable.add("first", lambda: None, uptime() + NEVER_SECONDS)
    steps = 0
    while interrupt(add_and_remove, steps + 1):
        steps += 1
        called = threading.Event()
        timetable.add("now", called.set)
        assert called.wait(STUCK), f"stuck after step {steps}"
    return steps


def test_interrupt_stops_no_timetable() -> None:
    """Wherever a signal's handler raises, the mutex is not left to nobody."""
    with worker(interrupt_timetable) as interrupted:
        assert interrupted.result() > 10


class InterruptedMutex(Mutex):
    """One of which a signal's handler interrupts an acquisition, if it is told when."""

    moment = ""

    def acquire(self, *args: Any) -> bool:
        if self.moment != "before":
            super().acquire(*args)
        if self.moment:
            raise Interrupted
        return True


@pytest.mark.parametrize("moment", ["before", "after"])
def test_interrupted_acquisition_leaves_the_mutex_free(moment: str) -> None:
    """Whether the handler raised when the mutex was acquired, or while it waited."""
    mutex = InterruptedMutex()
    mutex.moment = moment
    with pytest.raises(Interrupted), mutex:
        pytest.fail("it was interrupted")
    assert not mutex._is_owned()


def test_interrupted_acquisition_takes_the_mutex_from_nobody() -> None:
    """An interrupted acquisition leaves the mutex to the body that holds it."""
    mutex = InterruptedMutex()
    with mutex:
        mutex.moment = "after"
        with pytest.raises(Interrupted), mutex:
            pytest.fail("it was interrupted")
        assert mutex._is_owned()
    assert not mutex._is_owned()


def be_interrupted(parent: Parent, alarms: int) -> int:
    """Return how often an alarm left the mutex locked."""
    sys.settrace(None)  # a tracer in Python may swallow it
    mutex, left_locked = Mutex(), 0

    def interrupt(*args: object) -> NoReturn:
        raise Interrupted

    signal.signal(signal.SIGALRM, interrupt)
    for _ in range(alarms):
        with suppress(Interrupted):
            signal.setitimer(signal.ITIMER_REAL, 0.0003)
            while True:
                with mutex:
                    pass
        left_locked += mutex._is_owned()
        while mutex._is_owned():
            mutex.release()
    return left_locked


def test_no_alarm_leaves_a_mutex_locked() -> None:
    """
    No alarm leaves a mutex locked.

    On Python 3.14, about half of these alarms leave Python's own mutex locked.
    """
    with worker(be_interrupted, 300) as working:
        assert working.result() == 0


FINALIZATION = """
import sys
import threading
from types import ModuleType
from django_shedlock.mutexes import Mutex

mutex, owned = Mutex(), threading.Event()

def own():
    with mutex:
        owned.set()
        threading.Event().wait()

class Late:
    def __del__(self, mutex=mutex):
        try:
            with mutex:
                print("entered")
        except RuntimeError as error:
            print(error)

threading.Thread(target=own, daemon=True).start()
owned.wait()
# The stopped thread's frames keep the globals of this module.
sys.modules["other"] = other = ModuleType("other")
other.late = Late()
del other
print("ends", flush=True)
"""


def test_mutex_of_a_stopped_thread_is_refused() -> None:
    """Code that runs while the interpreter ends never waits for a stopped thread."""
    # coverage has code of its own that runs then.
    measuring = "COVERAGE_PROCESS_"
    process = subprocess.Popen(
        [sys.executable, "-c", FINALIZATION],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith(measuring)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert first_line(process) == "ends"
        wait_for(lambda: process.poll() is not None)
    finally:
        process.kill()
    printed, _ = process.communicate()
    assert printed == "A thread was stopped while it owned the mutex.\n"
