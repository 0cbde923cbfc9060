"""The app that traces runs with OpenTelemetry, and its receivers. Not stable yet."""

from contextlib import AbstractContextManager, nullcontext
from weakref import WeakKeyDictionary

from django.apps import AppConfig
from opentelemetry import trace

from django_shedlock import signals
from django_shedlock.execution.shutdown import process_ends
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.unlocked import UnlockedProvider

tracer: trace.Tracer = trace.get_tracer("django_shedlock")
_spans: WeakKeyDictionary[Lock, trace.Span] = WeakKeyDictionary()
"""The open span of each run."""
EXPORT_TIMEOUT_MILLISECONDS = 5000


class OpenTelemetryConfig(AppConfig):
    """``INSTALLED_APPS`` names it ``"django_shedlock.contrib.opentelemetry"``."""

    name = "django_shedlock.contrib.opentelemetry"
    label = "django_shedlock_opentelemetry"

    def ready(self) -> None:
        signals.around_body.append(span_around)
        signals.lock_not_acquired.connect(note_skip)
        signals.lock_lost.connect(note_loss)
        signals.lock_released.connect(end_span)
        process_ends.connect(send_spans)


def span_around(lock: Lock) -> AbstractContextManager[object]:
    """Begin the span of a run; return what makes it the parent of its body's spans."""
    # A body that re-enters its lock has its span. An unlocked body sends no signals.
    if lock in _spans or isinstance(lock.provider, UnlockedProvider):
        return nullcontext()
    tick = {} if lock.tick is None else {"shedlock.tick": lock.tick.isoformat()}
    attributes = {
        **_attributes(lock.configuration, lock.provider),
        "shedlock.trigger": lock.configuration.start.trigger.value,
        "shedlock.locked_by": lock.locked_by,
        **tick,
    }
    # If a project's sampler or processor raises, the job runs without a span.
    _spans[lock] = span = tracer.start_span("shedlock.run", attributes=attributes)
    # The release ends the span, with the outcome and the exception without secrets.
    return trace.use_span(span, record_exception=False, set_status_on_exception=False)


def send_spans(**kwargs: object) -> None:
    """Wait until the spans are exported: the process ends, perhaps without atexit."""
    provider = trace.get_tracer_provider()
    if hasattr(provider, "force_flush"):  # without an SDK there is nothing to export
        provider.force_flush(EXPORT_TIMEOUT_MILLISECONDS)


def note_skip(
    *, configuration: LockConfiguration, provider: LockProvider, **kwargs: object
) -> None:
    """Note a skip as an event of the current span; without one, as a span."""
    attributes = _attributes(configuration, provider)
    current = trace.get_current_span()
    if current.is_recording():
        current.add_event("shedlock.skip", attributes)
    else:
        tracer.start_span("shedlock.skip", attributes=attributes).end()


def note_loss(*, lock: Lock, **kwargs: object) -> None:
    """Note the loss of the lock as an event of its run's span."""
    if (span := _spans.get(lock)) is not None:
        span.add_event("shedlock.lost")


def end_span(
    *, lock: Lock, released: bool, exception: BaseException | None, **kwargs: object
) -> None:
    """End the span with the outcome that the history has."""
    if (span := _spans.pop(lock, None)) is None:
        return
    # This module loads the models, so no app can import it while apps are loading.
    from django_shedlock.history.recording import exception_columns

    outcome = RunOutcome.of(exception, released=released)
    span.set_attribute("shedlock.outcome", outcome.value)
    if outcome.is_bad:
        span.set_status(trace.StatusCode.ERROR)
        columns = exception_columns(exception)  # without secrets
        event = {
            "exception.type": columns["exception_type"],
            "exception.message": columns["exception_message"],
            "exception.stacktrace": columns["exception_traceback"],
        }
        if exception is not None:
            span.add_event("exception", event)
    span.end()


def _attributes(lock: LockConfiguration, provider: LockProvider) -> dict[str, str]:
    return {"shedlock.lock": lock.name, "shedlock.provider": provider.alias}
