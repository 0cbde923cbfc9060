#!/usr/bin/env python
"""The example project's command line."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # Last, so that an installed django_shedlock goes before that of the repository.
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    # Not by setdefault(): the shell may name the settings of the reader's own project.
    os.environ["DJANGO_SETTINGS_MODULE"] = "example.settings"
    if os.environ.get("NO_COLOR"):
        os.environ["DJANGO_COLORS"] = "nocolor"

    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
