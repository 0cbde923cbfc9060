"""What the command lines of both soaks share: options, the store, and the report."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from collections.abc import Iterable

from benchmarks.soak.verdict import Verdict
from tests.support.stores import STORE_VARIABLE, URL_VARIABLES, chosen_store


def make_parser(
    module: str, about: str | None, stores: Iterable[str], parts: Iterable[str]
) -> argparse.ArgumentParser:
    """Return the parser of a soak; ``parts`` of the library can be taken out."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--store", choices=[*stores])
    parser.add_argument("--for", dest="duration", default="1m", help="such as 1h")
    parser.add_argument(
        "--seed",
        type=int,
        default=random.randrange(10**6),
        help="the same seed gives the same choice of faults",
    )
    parser.add_argument("--pace", type=float, default=1, help="below 1: more faults")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument(
        "--broken", choices=[*parts], help="take a part out, to see that it is found"
    )
    return parser


def use_store(module: str, store: str) -> None:
    """Start this program again, with the database of that store, if it has another."""
    database = store if store in URL_VARIABLES else "sqlite"
    # Its caller ends it by SIGTERM, and what it has started has to end as well.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if database == chosen_store():
        return
    environment = {**os.environ, STORE_VARIABLE: database}
    if store in URL_VARIABLES:  # nobody else's: the soak has a server of its own
        environment[URL_VARIABLES[store]] = f"{store}://nobody@127.0.0.1:1/none"
    again = [sys.executable, "-m", module, *sys.argv[1:]]
    os.execve(sys.executable, again, environment)


def report(verdict: Verdict, *, as_json: bool) -> int:
    """Print the figures and the violations; return 1 if there is one."""
    if as_json:
        print(verdict.as_json())
    else:
        print(verdict, *verdict.violations, sep="\n")
    return int(bool(verdict.violations))
