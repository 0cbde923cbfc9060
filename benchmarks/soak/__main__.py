"""
Workers, a server and a network that fail at random.

``python -m benchmarks.soak --store postgres --for 1h`` (or ``mariadb``, ``redis``,
``etcd``, ``zookeeper``) starts a server of its own, and a proxy before it. It kills and
stops workers, crashes and freezes the server, and cuts the network. Then it judges what
the workers have noted.
"""

from __future__ import annotations

import argparse
import sys

import tests.support.preload  # noqa: F401
from benchmarks.soak.broken import BREAKS
from benchmarks.soak.command import make_parser, report, use_store
from benchmarks.soak.journal import leave_out_warnings
from benchmarks.soak.pairs import PAIRS
from benchmarks.soak.run import Plan, soak
from benchmarks.soak.servers import STORES
from benchmarks.soak.worker import WORKLOADS
from django_shedlock.durations import parse_duration
from tests.support.stores import chosen_store

MODULE = "benchmarks.soak"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(MODULE, __doc__, STORES, BREAKS)
    parser.add_argument(
        "--workload",
        choices=WORKLOADS,
        default="all",
        help="what is run under the locks; lock-set: reads, pauses and writes of a set",
    )
    parser.add_argument("--workers", type=int, default=7)
    parser.add_argument(
        "--longest-swallow",
        type=float,
        metavar="SECONDS",
        default=20.0,
        help="cut a connection that swallows after so long, as the driver's own limits "
        "do in a project; 20 by default",
    )
    parser.add_argument(
        "--replica",
        action="store_true",
        help="let the server have a replica, and promote it now and then; for "
        + " and ".join(PAIRS),
    )
    options = parser.parse_args(arguments)
    options.store = options.store or chosen_store()
    if options.replica and options.store not in PAIRS:
        parser.error("--replica needs --store " + " or ".join(PAIRS))
    return options


def main(options: argparse.Namespace) -> int:
    """Run the soak, and return 1 if a claim was broken."""
    plan = Plan(
        parse_duration(options.duration).total_seconds(),
        options.seed,
        options.workers,
        options.pace,
        options.longest_swallow,
        options.broken,
        options.workload,
        options.store,
        options.replica,
    )
    print(f"seed {plan.seed}", file=sys.stderr)
    leave_out_warnings()
    return report(soak(plan), as_json=options.json)


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    use_store(MODULE, options.store)
    raise SystemExit(main(options))
