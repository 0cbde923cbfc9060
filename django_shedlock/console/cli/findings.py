"""Findings as the console's subcommands print them."""

from django.core.management.color import Style

from django_shedlock.cli.terminal import printable, styled
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Severity


def finding_line(style: Style, found: Finding, *, in_detail: bool = False) -> str:
    """Return the finding as a line that begins with its severity."""
    severity = found.kind.severity
    role = "ERROR" if severity is Severity.CRITICAL else "WARNING"
    text = found.in_detail() if in_detail else str(found)
    return f"{styled(style, role, severity.upper())} {printable(text)}"
