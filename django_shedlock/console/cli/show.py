"""``manage.py shedlock show`` with findings and the audit log."""

from argparse import ArgumentParser
from typing import Any

from django.utils.translation import override

from django_shedlock.cli import base, terminal
from django_shedlock.cli.show import Show
from django_shedlock.console.cli.findings import finding_line
from django_shedlock.console.models import LockAction
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.search import Search, default_grace
from django_shedlock.console.operators import remark_on
from django_shedlock.sql.connections import read_rows


class ShowWithFindings(Show):
    """Shows all that is known of a lock, its findings, and what operators did."""

    help = "show all that is known of a lock, and what to do next"
    action_limit = 5
    search: Search

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        for option in ("--held-for", "--grace"):
            base.add_duration(parser, option, "find what `check` finds with it")

    def handle(self, alias: str | None, **options: Any) -> None:
        grace, held_for = options.pop("grace"), options.pop("held_for")
        grace = default_grace() if grace is None else grace
        self.search = Search(grace, held_for, acknowledged=True)
        super().handle(alias, **options)

    def read_past(self, using: str | None) -> None:
        """Read the findings and, from the history's database, runs and actions."""
        name = self.status.name
        found = self.search.of_locks(self.provider, [name])
        self.findings: list[Finding] = found.get(name, [])
        self.actions: list[LockAction] = []
        super().read_past(using)

    def read_history(self, using: str) -> None:
        """Read the last runs and the last actions of operators."""
        super().read_history(using)
        actions = LockAction.objects.using(using).of_lock(
            self.status.name, self.provider.alias
        )
        newest = actions.order_by("-pk")[: self.action_limit]
        self.actions = read_rows(newest, using)

    def as_dict(self) -> dict[str, object]:
        shown = super().as_dict()
        runs = shown.pop("runs")
        columns = ("operator", "kind", "reason", "began", "ended", "result", "detail")
        return {
            **shown,
            "findings": [found.as_dict() for found in self.findings],
            "runs": runs,
            "actions": [
                {column: getattr(action, column) for column in columns}
                for action in self.actions
            ],
        }

    def first_lines(self) -> list[str]:
        return [
            finding_line(self.style, found, in_detail=True) for found in self.findings
        ]

    def last_lines(self) -> list[str]:
        if not self.actions:
            return []
        rows = [
            {
                "WHEN": terminal.instant(action.began, wide=self.wide),
                "OPERATOR": action.operator,
                "ACTION": _action(action),
                "RESULT": action.result,
                "REASON": action.reason,
            }
            for action in self.actions
        ]
        return ["", terminal.table(self.style, rows)]


def _action(action: LockAction) -> str:
    with override("en"):
        remark = remark_on(action)
    return f"{action.kind}, {remark}" if remark else action.kind
