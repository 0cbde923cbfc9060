"""The example alerts and the dashboard: they ask for what is really exposed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
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
from tests.support.alerts import FAILED_SCRAPES, FAULTS, played
from tests.support.paths import ROOT
from tests.support.prometheus import needs

pytestmark = pytest.mark.once

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
    """It fires without a gap until the end, and nothing fires in the hour before it."""
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
