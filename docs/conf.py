"""How Sphinx builds the documentation."""

import django
from django.conf import settings

# autodoc imports the models, which need a project.
settings.configure(INSTALLED_APPS=["django_shedlock"])
django.setup()

project = "django-shedlock"
author = "django_shedlock contributors"
copyright = author
release = version = "0.1.0"
language = "en"

extensions = ["sphinx.ext.autodoc", "sphinx.ext.graphviz", "sphinx.ext.viewcode"]
graphviz_output_format = "svg"
nitpicky = True
nitpick_ignore_regex = [
    # Not ours, and without an inventory that could be read offline.
    (r"py:.*", r"(django|asgiref|collections|contextlib|datetime|enum|abc)\..*"),
    (r"py:.*", r".*\b(P|T|CommandT)$"),
    (r"py:.*", r"(Any|Self|Callable|Sequence|Iterator|timedelta|datetime)"),
    (r"py:.*", r"django_shedlock\.(durations\.Duration|decorators\.LockDecorator)"),
]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

html_theme = "furo"
html_title = f"{project} {release}"
exclude_patterns = ["_build"]
