"""
Beats on three hosts, whose clocks are wrong, with all kinds of faults.

``python -m benchmarks.soak.beats --store postgres --for 10m`` (or ``mariadb``) starts a
server of its own, and three ``manage.py shedlock beat`` of a small project. It kills
and restarts beats, their jobs and whole hosts, deploys other schedules, and cuts the
network. Then it judges what the jobs have noted, by the rules in ``rules.py``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import tests.support.preload  # noqa: F401
from benchmarks.soak.beats.broken import BREAKS
from benchmarks.soak.beats.run import Plan, soak
from benchmarks.soak.command import make_parser, report, use_store
from benchmarks.soak.journal import leave_out_warnings
from django_shedlock.durations import parse_duration
from tests.support.stores import chosen_store

MODULE = "benchmarks.soak.beats"
STORES = ("postgres", "mariadb")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(MODULE, __doc__, STORES, BREAKS)
    parser.add_argument(
        "--journal", type=Path, help="keep the journal, and the beats' logs beside it"
    )
    options = parser.parse_args(arguments)
    usual = chosen_store() if chosen_store() in STORES else STORES[0]
    options.store = options.store or usual
    return options


def main(options: argparse.Namespace) -> int:
    """Run the soak, and return 1 if a rule was broken."""
    seconds = parse_duration(options.duration).total_seconds()
    plan = Plan(seconds, options.seed, options.pace, options.journal, options.broken)
    print(f"seed {plan.seed}", file=sys.stderr)
    leave_out_warnings()
    return report(soak(plan), as_json=options.json)


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    use_store(MODULE, options.store)
    raise SystemExit(main(options))
