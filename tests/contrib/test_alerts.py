"""The example alerts and the dashboard: they ask for what is really exposed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client, override_settings
from django.urls import path
from prometheus_client.parser import text_string_to_metric_families

from django_shedlock import execute, hold
from django_shedlock.contrib.prometheus.views import MetricsView
from django_shedlock.durations import parse_duration
from django_shedlock.testing import force_release, held_elsewhere
from tests.support.paths import ROOT
from tests.support.prometheus import needs

pytestmark = pytest.mark.once

QUIET_MINUTES = 60
"""The fault begins then."""
PLAYED_MINUTES = 240
REPORT_MINUTES = 25
"""At the latest so long after its beginning the fault is reported."""

Values = Callable[[int], float | None]
"""Get the minutes since the fault began, negative before; ``None``: no such series."""


def always(value: float) -> Values:
    """Return a value that the fault does not change."""
    return lambda since: value


def becomes(value: float, before: float | None = 0) -> Values:
    """Return a value that the fault changes."""
    return lambda since: before if since < 0 else value


def grows(beginning: float, before: float | None = 0) -> Values:
    """Return seconds that count on once the fault has begun."""
    return lambda since: before if since < 0 else beginning + 60 * since


def ends(values: Values) -> Values:
    """Return these values, which nobody can read once the fault has begun."""
    return lambda since: values(since) if since < 0 else None


def of(lock: str, **metrics: Values) -> dict[str, Values]:
    """Return the series of a lock, by metrics without ``shedlock_``."""
    labels = f'provider="default", lock="{lock}", instance="web-1"'
    return {f"shedlock_{name}{{{labels}}}": values for name, values in metrics.items()}


def of_provider(**metrics: Values) -> dict[str, Values]:
    """Return the series of a provider, by metrics without ``shedlock_``."""
    labels = 'provider="default", instance="web-1"'
    return {f"shedlock_{name}{{{labels}}}": values for name, values in metrics.items()}


QUIET = {
    **of_provider(
        store_up=always(1),
        history_up=always(1),
        clock_difference_seconds=always(-0.4),
        locks_left_out=always(0),
        unreadable=always(0),
    ),
    **of(
        "fine",
        held=always(0),
        running_seconds=lambda since: since % 3 * 20,
        usual_duration_seconds=always(30),
        last_duration_seconds=always(40),
        paused_seconds=always(0),
        expired=lambda since: float(since % 20 == 0),  # the next run ends it
        since_success_seconds=always(60),
        last_run_timestamp_seconds=always(0),
        consecutive_failures=lambda since: since % 3,
        requested=always(0),
        requested_seconds=lambda since: since % 10 * 60,
        unrecorded=always(0),
        overdue_seconds=always(0),
    ),
}
"""What there is besides the fault, and before it."""


@dataclass(frozen=True)
class Fault:
    """What is wrong, the series that show it, and the alerts, each with its lock."""

    text: str
    alerts: set[tuple[str, str]]
    series: Mapping[str, Values] = field(default_factory=dict)


JOB = "job"
FAULTS = [
    Fault(
        "a dead cron",
        {("ShedLockManyOverdue", "")},
        {
            name: values
            for number in range(13)
            for name, values in of(
                f"job {number}",
                overdue_seconds=grows(300 + number),
                last_run_timestamp_seconds=always(0),
            ).items()
        },
    ),
    Fault(
        "a job that nobody starts any more",
        {("ShedLockOverdue", JOB)},
        of(JOB, overdue_seconds=grows(300)),
    ),
    Fault(
        "a job that hangs in its first run",
        {("ShedLockRunsTooLong", JOB)},
        of(JOB, running_seconds=grows(7200)),
    ),
    Fault(
        "a job that failed three times",
        {("ShedLockJobFailing", JOB)},
        of(JOB, consecutive_failures=becomes(3, before=2), overdue_seconds=grows(9e3)),
    ),
    Fault(
        "a worker that was killed with its lock held",
        {("ShedLockExpired", JOB)},
        of(JOB, expired=becomes(1), overdue_seconds=grows(300)),
    ),
    Fault(
        "a lock that was lost under SIGSTOP, whose body went on",
        {("ShedLockLost", JOB)},
        # A loss is reported for an hour, so it is stopped again and again.
        of(
            JOB,
            since_loss_seconds=lambda since: since % 50 * 60 if since >= 0 else None,
        ),
    ),
    Fault(
        "a run that takes three times as long as usual",
        {("ShedLockRunsTooLong", JOB)},
        of(
            JOB,
            running_seconds=grows(1900),
            usual_duration_seconds=always(600),
            last_duration_seconds=always(610),
        ),
    ),
    Fault(
        "a pause without an end",
        {("ShedLockPaused", JOB)},
        of(JOB, paused_seconds=grows(24 * 3600)),
    ),
    Fault(
        "a request to run that nobody carries out",
        {("ShedLockRequestWaits", JOB)},
        of(JOB, requested_seconds=grows(0)),
    ),
    Fault(
        "a history that can't be written",
        {("ShedLockUnrecorded", "")},
        of(JOB, unrecorded=becomes(1)) | of("other", unrecorded=becomes(1)),
    ),
    Fault(
        "a history whose table is gone",
        {("ShedLockHistoryDown", "")},
        of(JOB, unrecorded=becomes(1)) | of_provider(history_up=becomes(0, before=1)),
    ),
    Fault(
        "a host whose clock is two minutes off the store's",
        {("ShedLockClockOff", "")},
        of_provider(clock_difference_seconds=becomes(-120)),
    ),
    Fault(
        "locks without metrics of their own",
        {("ShedLockLocksLeftOut", "")},
        of_provider(locks_left_out=becomes(1)),
    ),
    Fault(
        "a record that can't be read",
        {("ShedLockUnreadable", "")},
        of_provider(unreadable=becomes(1)),
    ),
    Fault(
        "a store that is down",
        {("ShedLockStoreDown", "")},
        {name: ends(values) for name, values in QUIET.items()}
        | of_provider(store_up=becomes(0, before=1)),
    ),
    Fault(
        "a page that nobody scrapes",
        {("ShedLockNotScraped", "")},
        {name: ends(values) for name, values in QUIET.items()},
    ),
]

FAILED_SCRAPES: dict[str, Callable[[int], bool]] = {
    "none": lambda minute: False,
    "every second": lambda minute: minute % 2 == 1,
    "every third": lambda minute: minute % 3 == 1,
    "two of three": lambda minute: minute % 3 != 0,
    "three in a row, at times": lambda minute: minute % 7 > 3,
}
"""Whether the scrape of a minute fails."""


def played(fault: Fault, fails: Callable[[int], bool]) -> dict[str, Any]:
    """Return a test for ``promtool`` that plays the fault after a quiet hour."""
    told = [
        {"labels": f"{{{_labels(alert, lock)}}}", "value": 1}
        for alert, lock in sorted(fault.alerts)
    ]
    going_on = PLAYED_MINUTES - QUIET_MINUTES - REPORT_MINUTES
    in_the_quiet_hour = {
        "expr": firing_for(QUIET_MINUTES - 2, 1),
        "eval_time": f"{QUIET_MINUTES - 1}m",
    }
    ever = {
        "expr": firing_for(PLAYED_MINUTES, 1),
        "eval_time": f"{PLAYED_MINUTES}m",
        "exp_samples": told,
    }
    without_a_gap = {**ever, "expr": firing_for(going_on, going_on)}
    return {
        "name": fault.text,
        "interval": "1m",
        "input_series": [
            {"series": name, "values": " ".join(samples(values, fails))}
            for name, values in (QUIET | dict(fault.series)).items()
        ],
        "promql_expr_test": [in_the_quiet_hour, ever, without_a_gap],
    }


def _labels(alert: str, lock: str) -> str:
    return f'alertname="{alert}"' + (f', lock="{lock}"' if lock else "")


def firing_for(minutes: int, least: int) -> str:
    """Return the query for what fired in at least so many of the last minutes."""
    fired = f'count_over_time(ALERTS{{alertstate="firing"}}[{minutes}m])'
    return f"count by (alertname, lock) ({fired} >= {least})"


def samples(values: Values, fails: Callable[[int], bool]) -> list[str]:
    """Return what Prometheus keeps: a series ends when a scrape fails, or lacks it."""
    kept = []
    for minute in range(PLAYED_MINUTES + 1):
        value = None if fails(minute) else values(minute - QUIET_MINUTES)
        kept.append("stale" if value is None else str(value))
    return kept


FOLDER = ROOT / "docs" / "howto" / "files"
PLAYED = "alerts_test.yml"
METRIC = re.compile(r"\bshedlock_\w+")
LABELS = re.compile(r"(?:by|on) \(([\w, ]+)\)|label_values\(.*, (\w+)\)")
AGGREGATED = re.compile(r"by \(([\w, ]+)\)\s+\((?:\w+\()*(shedlock_\w+)")
"""What is aggregated by which labels, perhaps within functions."""
SELECTOR = re.compile(r"\b(shedlock_\w+)\{([^}]*)\}")
IN_TEXT = re.compile(r"\{\{ ?\$labels\.(\w+)")

urlpatterns = [path("metrics", MetricsView.as_view(public=True))]


def all_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in groups["groups"] for rule in group["rules"]]


def rules() -> list[dict[str, Any]]:
    """Return the rules that raise an alert; the others record a series for them."""
    return [rule for rule in all_rules() if "alert" in rule]


def dashboard() -> dict[str, Any]:
    text = (FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def queries() -> list[str]:
    """Return what the dashboard asks Prometheus for."""
    found = dashboard()
    variables = [
        each for each in found["templating"]["list"] if each["type"] == "query"
    ]
    targets = [target for panel in found["panels"] for target in panel["targets"]]
    return [
        *(target["expr"] for target in targets),
        *(variable["query"]["query"] for variable in variables),
    ]


def expressions() -> list[str]:
    return [*(rule["expr"] for rule in all_rules()), *queries()]


@pytest.fixture
def exposed(db: None) -> dict[str, set[str]]:
    """The labels of each metric, made once for all tests."""
    return labels_of_metrics()


@cache
def labels_of_metrics() -> dict[str, set[str]]:
    """Return the labels on a page, after a tick, a run, a skip and a loss."""
    execute(lambda: None, "job", schedule="@daily")
    with held_elsewhere("job"):
        execute(lambda: None, "job")
    with hold("job"):
        force_release("job")
    with override_settings(ROOT_URLCONF=__name__):
        page = Client().get("/metrics").content.decode()
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@pytest.mark.parametrize("expression", expressions())
def test_expression_asks_for_what_there_is(
    expression: str, exposed: dict[str, set[str]]
) -> None:
    """Each metric is exposed under that very name, and has the labels asked for."""
    metrics = METRIC.findall(expression)
    assert metrics
    assert exposed.keys() >= set(metrics)
    assert grouped_by(expression) <= set().union(*map(exposed.get, metrics))
    for grouped, metric in AGGREGATED.findall(expression):
        assert set(grouped.split(", ")) <= exposed[metric]
    for metric, matched in SELECTOR.findall(expression):
        assert set(re.findall(r"(\w+) ?=", matched)) <= exposed[metric]


def labels_in(expression: str) -> set[str]:
    matched = re.findall(r"(\w+) ?=~?\"", expression)
    return grouped_by(expression) | set(matched)


def grouped_by(expression: str) -> set[str]:
    found = [grouped or asked for grouped, asked in LABELS.findall(expression)]
    return {label for labels in found for label in labels.split(", ")}


@pytest.mark.parametrize("expression", expressions())
def test_brackets_are_balanced(expression: str) -> None:
    """No expression lacks a bracket or a quotation mark."""
    bare = re.sub(r'"[^"]*"', "", expression)
    assert '"' not in bare
    for opening, closing in ("()", "{}", "[]"):
        assert bare.count(opening) == bare.count(closing)


def test_every_metric_is_used(exposed: dict[str, set[str]]) -> None:
    """The dashboard shows each metric of ours, or the alerts look at it."""
    ours = {
        re.sub(r"_(bucket|count|sum)$", "", name)
        for name in exposed
        if name.startswith("shedlock_") and not name.endswith("_created")
    }
    used = {metric for text in expressions() for metric in METRIC.findall(text)}
    assert ours == {re.sub("_bucket$", "", metric) for metric in used}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_rule_is_complete(rule: dict[str, Any]) -> None:
    """Each rule says how severe it is, and in words what is wrong with which lock."""
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    if "for" in rule:
        assert parse_duration(rule["for"])
    told = set(IN_TEXT.findall(str(rule["annotations"])))
    assert told <= labels_in(rule["expr"])


def test_alerts_have_names_of_their_own() -> None:
    """No two rules are called alike, and the three cases that matter are there."""
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for case in ("TooLong", "Failing", "Overdue"):
        assert any(case in name for name in names)


def test_each_rule_survives_a_failed_scrape() -> None:
    """Each metric is read over several scrapes, except by the rules on other rules."""
    for rule in all_rules():
        bare = re.sub(r"provider_lock:\w+:max", "", rule["expr"])
        for metric in METRIC.findall(bare):
            assert re.search(rf"_over_time\({metric}(\{{.*?\}})?\[4m\]\)", bare)
            assert not re.search(rf"(?<!_over_time\(){metric}\b", bare)
        if "for" in rule:
            assert parse_duration(rule["for"]) > parse_duration("4m")


def test_panels_draw_few_locks() -> None:
    """A panel with a line or a bar for each lock has a bound."""
    targets = [target for panel in dashboard()["panels"] for target in panel["targets"]]
    of_locks = [each["expr"] for each in targets if "{{lock}}" in each["legendFormat"]]
    assert len(of_locks) > 10
    for expression in of_locks:
        assert re.search(r"\b(top|bottom)k\(20, ", expression), expression


def test_panels_do_not_overlap() -> None:
    """Each panel has its own place in Grafana's grid of 24 columns, and its own id."""
    panels = dashboard()["panels"]
    places: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        own = {
            (column, row)
            for column in range(place["x"], place["x"] + place["w"])
            for row in range(place["y"], place["y"] + place["h"])
        }
        assert not own & places
        places |= own
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_variables_are_known() -> None:
    """The dashboard's expressions name no variable that it does not have."""
    known = {variable["name"] for variable in dashboard()["templating"]["list"]}
    asked = set(re.findall(r"\$\{?([a-z]\w+)", json.dumps(dashboard())))
    assert asked == known


def test_documentation_lists_the_alerts() -> None:
    """The page on monitoring says of each alert when it fires."""
    page = (ROOT / "docs" / "howto" / "prometheus.rst").read_text(encoding="utf-8")
    listed = re.findall(r"``(ShedLock[A-Z]\w+)``", page)
    assert listed == [*(rule["alert"] for rule in rules()), *examples()]


def examples() -> list[str]:
    """Return the alerts that stand behind # signs, with a lock's name to be set."""
    text = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    return re.findall(r"^  # .*alert: (\w+)$", text, re.MULTILINE)


def test_no_rule_names_a_lock() -> None:
    """A rule for a lock that nobody has would fire in each project for ever."""
    assert not any("lock=" in rule["expr"] for rule in rules())
    assert len(examples()) == 2


def test_examples_are_rules(exposed: dict[str, set[str]]) -> None:
    """What stands behind # signs asks for what there is, once they are removed."""
    text = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    marked = text[text.index("  # - name:") :]
    [group] = yaml.safe_load(re.sub(r"^  # ?", "", marked, flags=re.MULTILINE))
    for rule in group["rules"]:
        test_rule_is_complete(rule)
        test_expression_asks_for_what_there_is(rule["expr"], exposed)


@needs("promtool")
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """Prometheus' own tool plays incidents minute by minute: see alerts_test.yml."""
    for file in (FOLDER / "alerts.yml", Path(__file__).with_name("alerts_test.yml")):
        shutil.copy(file, tmp_path)
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", PLAYED]):
        done = subprocess.run(
            ["promtool", *command], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    played = (tmp_path / PLAYED).read_text(encoding="utf-8")
    for rule in rules():
        assert f"alertname: {rule['alert']}\n" in played


@needs("promtool")
def test_dashboard_asks_in_promql(tmp_path: Path) -> None:
    """Each query of a panel can be parsed."""
    targets = [target for panel in dashboard()["panels"] for target in panel["targets"]]
    recorded = [
        {"record": f"panel:{number}", "expr": target["expr"]}
        for number, target in enumerate(targets)
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": recorded}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", file], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs("promtool")
@pytest.mark.parametrize("failed", FAILED_SCRAPES)
def test_each_fault_raises_its_alert_alone(failed: str, tmp_path: Path) -> None:
    """Each fault fires only its alerts, without a gap, and none in the hour before."""
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    tests = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "1m",
        "tests": [played(fault, FAILED_SCRAPES[failed]) for fault in FAULTS],
    }
    (tmp_path / PLAYED).write_text(yaml.safe_dump(tests), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", PLAYED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_fault() -> None:
    """No rule is left out of those that are played with failed scrapes."""
    raised = {alert for fault in FAULTS for alert, _ in fault.alerts}
    assert raised == {rule["alert"] for rule in rules()}
