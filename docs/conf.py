"""How Sphinx builds the documentation."""

import os
import tomllib
from pathlib import Path

import django
from django.conf import settings

# autodoc imports the models, which need a project.
settings.configure(INSTALLED_APPS=["django_shedlock", "django_shedlock.console"])
django.setup()

project = "django-shedlock"
author = "django_shedlock contributors"
copyright = author
_root = Path(__file__).parents[1]
_metadata = tomllib.loads((_root / "pyproject.toml").read_text(encoding="utf-8"))
release = version = _metadata["project"]["version"]
language = "en"

extensions = ["sphinx.ext.autodoc", "sphinx.ext.graphviz", "sphinx.ext.viewcode"]
# The checks have no network: those of other hosts are looked at once a week, elsewhere.
linkcheck_ignore = [] if os.environ.get("SHEDLOCK_LINKS") else [r"https?://.*"]
graphviz_output_format = "svg"
nitpicky = True
nitpick_ignore_regex = [
    # Not ours, and without an inventory that could be read offline.
    (r"py:.*", r"(django|asgiref|collections|contextlib|datetime|enum|abc)\..*"),
    (r"py:.*", r".*\b(P|T|CommandT)$"),
    (r"py:.*", r"(Any|Self|Callable|Sequence|Iterator|timedelta|datetime)"),
    (
        r"py:.*",
        r"django_shedlock\.(durations\.Duration|registry\.decorators\.LockDecorator)",
    ),
]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

html_theme = "furo"
html_title = f"{project} {release}"
exclude_patterns = ["_build"]
