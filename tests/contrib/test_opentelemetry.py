"""The app for OpenTelemetry, by the spans that the SDK exports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.apps import apps as django_apps
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from django_shedlock import Lock, LockLost, execute, hold, scheduler_lock, signals
from django_shedlock.contrib.opentelemetry import apps
from django_shedlock.locks.time_limits import TimeLimitExceeded
from django_shedlock.schedules.cron import Schedule
from django_shedlock.testing import force_release, held_elsewhere, locked_in_memory
from tests.support.forks import run_in_fork
from tests.support.installed import installed
from tests.support.locks import Broken
from tests.support.threads import meeting_of, run_threads


class Traces:
    """What was exported, in the order in which the spans ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def tree(self) -> dict[str, str | None]:
        """Return the parent of each span, both by the lock's name or their own."""
        names = {each.get_span_context().span_id: called(each) for each in self.spans}
        return {
            called(each): names[each.parent.span_id] if each.parent else None
            for each in self.spans
        }


def called(span: ReadableSpan) -> str:
    return str((span.attributes or {}).get("shedlock.lock", span.name))


@pytest.fixture(autouse=True)
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    made = Traces()
    monkeypatch.setattr(apps, "tracer", made.provider.get_tracer("django_shedlock"))
    with locked_in_memory(), installed("django_shedlock.contrib.opentelemetry"):
        yield made
    assert not trace.get_current_span().get_span_context().is_valid
    made.provider.shutdown()


def test_run_is_a_span(traces: Traces) -> None:
    """With all that is known of it, and its outcome."""
    schedule = Schedule("30 2 1 1 *", "UTC")
    with hold("nightly", schedule=schedule) as lock:
        assert traces.spans == ()
    [span] = traces.spans
    assert span.name == "shedlock.run"
    assert lock.tick is not None
    assert span.attributes == {
        "shedlock.lock": "nightly",
        "shedlock.provider": "default",
        "shedlock.tick": lock.tick.isoformat(),
        "shedlock.trigger": "scheduler",
        "shedlock.locked_by": lock.locked_by,
        "shedlock.outcome": "succeeded",
    }
    assert span.status.status_code is trace.StatusCode.UNSET
    assert span.events == ()


def test_spans_of_the_body_belong_to_the_run(traces: Traces) -> None:
    """
    Spans that a body starts are children of its run's span.

    So are the spans of inner locks. A re-entered lock has no second span.
    """
    with traces.tracer.start_as_current_span("request"):
        with hold("outer"), hold("outer"):
            with traces.tracer.start_as_current_span("query"):
                pass
            with hold("inner"):
                pass
        with traces.tracer.start_as_current_span("after"):
            pass
    assert traces.tree() == {
        "query": "outer",
        "inner": "outer",
        "outer": "request",
        "after": "request",
        "request": None,
    }


def test_spans_of_an_async_body(traces: Traces) -> None:
    """
    Spans that an async body starts are children of its run's span.

    This holds in threads, and if another job runs at the same time.
    """

    def query() -> None:
        with traces.tracer.start_as_current_span("query"):
            pass

    @scheduler_lock("inner")
    async def inner() -> None:
        await sync_to_async(query)()

    @scheduler_lock("outer")
    async def outer() -> None:
        await inner()

    @scheduler_lock("beside")
    async def beside() -> None:
        await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(outer(), beside())
        assert not trace.get_current_span().is_recording()

    asyncio.run(both())
    assert traces.tree() == {
        "query": "inner",
        "inner": "outer",
        "outer": None,
        "beside": None,
    }


def test_runs_in_threads(traces: Traces) -> None:
    """Each is a root of its own."""
    names = iter([f"job-{number}" for number in range(8)])
    meeting = meeting_of(8)
    run_threads(8, lambda: execute(meeting.wait, next(names)), meeting)
    assert traces.tree() == dict.fromkeys(f"job-{number}" for number in range(8))


def test_failed_run(traces: Traces) -> None:
    """The span has the exception, as the history has it: without passwords."""
    with pytest.raises(Broken), hold("nightly"):
        raise Broken("no answer from https://ada:sesame@db.example.com")
    [span] = traces.spans
    assert span.attributes is not None
    assert span.attributes["shedlock.outcome"] == "failed"
    assert span.status.status_code is trace.StatusCode.ERROR
    [event] = span.events
    assert event.attributes is not None
    assert event.name == "exception"
    assert event.attributes["exception.type"] == "tests.support.locks.Broken"
    assert str(event.attributes["exception.message"]).startswith("no answer from")
    assert "test_opentelemetry.py" in str(event.attributes["exception.stacktrace"])
    assert "sesame" not in span.to_json()


def test_run_that_takes_too_long(traces: Traces) -> None:
    """The span of a run that exceeds its time limit is an error and has timed out."""
    with pytest.raises(SystemExit), hold("nightly"):
        raise TimeLimitExceeded(timedelta(minutes=30))
    [span] = traces.spans
    assert span.attributes is not None
    assert span.attributes["shedlock.outcome"] == "timed out"
    assert span.status.status_code is trace.StatusCode.ERROR


def test_exit_with_status_0_is_a_success(traces: Traces) -> None:
    """The span of a body that exits with status 0 is no error."""
    with pytest.raises(SystemExit), hold("nightly"):
        raise SystemExit(0)
    [span] = traces.spans
    assert span.status.status_code is trace.StatusCode.UNSET
    assert span.events == ()


def test_lost_lock(traces: Traces) -> None:
    """An event says when, and the outcome is that of the history."""
    with hold("nightly") as lock:
        force_release("nightly")
        with pytest.raises(LockLost):
            lock.extend()
    [span] = traces.spans
    assert span.attributes is not None
    assert span.attributes["shedlock.outcome"] == "lost"
    assert span.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in span.events] == ["shedlock.lost"]


def test_skip_is_an_event_of_the_current_span(traces: Traces) -> None:
    """A skip is recorded as an event of the current span."""
    with held_elsewhere("nightly"):
        with traces.tracer.start_as_current_span("request"):
            execute(lambda: None, "nightly")
    [span] = traces.spans
    [event] = span.events
    assert (span.name, event.name) == ("request", "shedlock.skip")
    assert event.attributes == {
        "shedlock.lock": "nightly",
        "shedlock.provider": "default",
    }


def test_skip_is_a_short_span_without_another(traces: Traces) -> None:
    """A skip without a current span gets a short span, for sync and async jobs."""

    async def job() -> None: ...

    with held_elsewhere("nightly"):
        execute(lambda: None, "nightly")
        asyncio.run(scheduler_lock("nightly")(job)())
    assert [(span.name, called(span)) for span in traces.spans] == [
        ("shedlock.skip", "nightly")
    ] * 2


class Raising(SpanProcessor):
    """Fails when a span begins."""

    def on_start(self, *args: Any, **kwargs: Any) -> None:
        raise Broken("no collector")


def test_processor_that_raises_breaks_no_job(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    """The run has no span, and the log says why."""
    traces.provider.add_span_processor(Raising())
    with caplog.at_level(logging.ERROR, "django_shedlock"):
        assert execute(lambda: 7, "nightly").value == 7
    assert "Lock 'nightly': the integration" in caplog.text
    assert "span_around" in caplog.text
    assert "no collector" in caplog.text
    assert traces.spans == ()


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_run_is_a_span_beside_another_integration(
    traces: Traces, *, is_first: bool
) -> None:
    """Whichever of two integrations comes first, neither replaces the other."""
    entered: list[str] = []

    @contextmanager
    def around(lock: Lock) -> Iterator[None]:
        entered.append(lock.name)
        yield

    signals.around_body[:] = [around] if is_first else []
    django_apps.get_app_config("django_shedlock_opentelemetry").ready()
    if not is_first:
        signals.around_body.append(around)
    with hold("nightly"), traces.tracer.start_as_current_span("query"):
        pass
    assert entered == ["nightly"]
    assert traces.tree() == {"query": "nightly", "nightly": None}


def test_integration_that_raises_takes_no_span_away(traces: Traces) -> None:
    """The run has its span although another integration fails around the body."""
    signals.around_body.insert(0, lambda lock: 1 / 0)  # type: ignore[arg-type]
    with hold("nightly"):
        pass
    assert [called(span) for span in traces.spans] == ["nightly"]


class Written(SpanExporter):
    """Writes the names of spans into a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._file.open("a") as names:
            names.writelines(f"{called(span)}\n" for span in spans)
        return SpanExportResult.SUCCESS


@pytest.mark.django_db(transaction=True)
def test_job_of_a_beat_exports_its_span(tmp_path: Path) -> None:
    """The SDK exports many at a time, and its process is forked and ends."""

    def body() -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(Written(tmp_path / "names")))
        trace.set_tracer_provider(provider)
        apps.tracer = provider.get_tracer("django_shedlock")
        execute(lambda: None, "nightly")

    run_in_fork(body)
    assert (tmp_path / "names").read_text().split() == ["nightly"]


def test_jobs_without_locks_have_no_spans(traces: Traces, settings: Any) -> None:
    """With SHEDLOCK_ENABLED = False a job has no span."""
    settings.SHEDLOCK_ENABLED = False
    with hold("nightly"):
        assert not trace.get_current_span().is_recording()
    assert traces.spans == ()
