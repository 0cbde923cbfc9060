"""Let pyright count the public names that have a known type: nearly all have to."""

from __future__ import annotations

import json
import subprocess
import sys

WANTED = 0.98
COMMAND = ["pyright", "--verifytypes", "django_shedlock", "--ignoreexternal"]


def main() -> None:
    """Exit with an error, and the names that lack one, if these are too many."""
    command = [sys.executable, "-m", *COMMAND, "--outputjson"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        report = json.loads(done.stdout)["typeCompleteness"]
    except ValueError:
        sys.exit(f"pyright printed no report: {done.stdout}")
    score = report["completenessScore"]
    print(f"{score:.1%} of {len(report['symbols'])} names have a known type")
    if score < WANTED:
        for symbol in report["symbols"]:
            if symbol["isExported"] and not symbol["isTypeKnown"]:
                print(f"  {symbol['name']}")
        sys.exit(1)


if __name__ == "__main__":
    main()
