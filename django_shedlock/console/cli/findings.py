"""Findings as the console's subcommands print them."""

from django.core.management.color import Style

from django_shedlock.cli.terminal import printable, styled
from django_shedlock.console.monitoring.findings import Finding, Severity


def finding_line(style: Style, found: Finding) -> str:
    """Return the finding as a line that begins with its severity."""
    severity = found.kind.severity
    role = "ERROR" if severity is Severity.CRITICAL else "WARNING"
    return f"{styled(style, role, severity.upper())} {printable(str(found))}"
