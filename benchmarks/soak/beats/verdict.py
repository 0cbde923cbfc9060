"""What the journal of a soak of the beats says, when it is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.soak.beats.rules import RULES, Violation
from benchmarks.soak.beats.story import Story
from benchmarks.soak.beats.works import GRACE_SECONDS, WORKS, Work
from benchmarks.soak.journal import Event
from benchmarks.soak.verdict import Verdict

TIMELINE_LENGTH = 60
"""The most lines of a timeline; those in the middle are left out."""
BEFORE_SECONDS = 5.0
"""So long before a violation its timeline begins."""
EVERYWHERE = {
    *("started", "ready", "stopping", "gone", "killing", "away", "back", "deploy"),
    *("stall", "catch-up", "endless"),
}
"""Events that are of no lock, and may explain what happened to one."""


def judge(events: Iterable[Event], works: Iterable[Work] = WORKS) -> Verdict:
    """Return the figures, and which rules the journal shows to be broken."""
    story = Story(events, works)
    verdict = Verdict()
    for event in story.events:
        _count(event, verdict)
    for make in RULES:
        rule = make(story, verdict.counts)
        for violation in rule.violations():
            verdict.counts[f"violations: {violation.rule}"] += 1
            verdict.complain([text_of(violation, story)])
    _measure(story, verdict)
    return verdict


def _count(event: Event, verdict: Verdict) -> None:
    match event["what"]:
        case "harm":
            verdict.counts[event["kind"]] += 1
        case "begin":
            verdict.counts["bodies"] += 1
            verdict.counts[f"bodies by {event['trigger']}"] += 1
        case "end":
            verdict.counts[f"bodies that {event['how']}"] += 1
        case "lost":
            verdict.counts["locks lost"] += 1
        case "log":
            verdict.counts[f"reports: {event['level']}"] += 1
        case "stall":
            verdict.measure("stall of the machine", event["took"])
        case "gone" if not event["is_asked"]:
            text = f"the beat of {event['host']} ended by itself with status "
            verdict.complain([f"{text}{event['status']}:\n{event['words']}"])
        case "endless":
            verdict.complain([f"the beat of {event['host']} did not end in time"])


def _measure(story: Story, verdict: Verdict) -> None:
    late = sorted(
        body.begun - body.tick
        for body in story.bodies.values()
        if body.tick is not None and body.trigger == "scheduler"
    )
    late = [each for each in late if each < GRACE_SECONDS]
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        if late:
            seconds = late[int((len(late) - 1) * share)]
            verdict.measure(f"way from tick to body, {name}", seconds)


def text_of(violation: Violation, story: Story) -> str:
    """Return the violation as a sentence, and below it what happened at that time."""
    begin, end = violation.begin - BEFORE_SECONDS, violation.end + BEFORE_SECONDS
    lines = [*_timeline(story, violation.name, begin, end)]
    if len(lines) > TIMELINE_LENGTH:
        half = TIMELINE_LENGTH // 2
        left_out = f"  … {len(lines) - 2 * half} more"
        lines = [*lines[:half], left_out, *lines[-half:]]
    return "\n".join([f"{violation.rule}: {violation.text}", *lines])


def _timeline(story: Story, name: str, begin: float, end: float) -> Iterator[str]:
    ids = {id for id, hold in story.holds.items() if hold.name == name}
    ids |= {id for id, body in story.bodies.items() if body.name == name}
    last_alive = {id: body.last for id, body in story.bodies.items()}
    for event in sorted(story.events, key=lambda each: float(each["at"])):
        what, at = event["what"], event["at"]
        if not begin <= at <= end:
            continue
        is_of_lock = event.get("name") == name or event.get("id") in ids
        is_report = what == "log" and repr(name) in event["text"]
        if what == "alive" and at != last_alive.get(event["id"]):
            continue
        if is_of_lock or is_report or what in EVERYWHERE:
            yield f"  {at - story.begin:9.3f}  {_line(event, story)}"


def _line(event: Event, story: Story) -> str:
    left_out = {"what", "at", "words", "keep_alive", "lease_end", "seconds"}
    details = {key: each for key, each in event.items() if key not in left_out}
    for instant in ("tick", "request", "locked_at"):
        if details.get(instant) is not None:
            at = float(details[instant]) - story.wall - story.begin
            details[instant] = f"{at:.3f}"
    for instant in ("asked", "since", "dead"):
        if details.get(instant) is not None:
            details[instant] = f"{float(details[instant]) - story.begin:.3f}"
    told = " ".join(
        f"{key}={each}" for key, each in details.items() if each is not None
    )
    return f"{event['what']:10} {told}"
