"""
Draw what ``python -m benchmarks.locks --json result.json`` has measured.

``python -m benchmarks.plot result.json docs/images/performance.svg``
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import crowds, sizes

COLORS = {
    "raw statements, prepared": "#8a8f98",
    "django_shedlock": "#d9622b",
    "django_shedlock, prepared": "#2f86d6",
    "django_shedlock with history": "#3f9b57",
}
"""Seen on white and on black."""
RAW, OURS, PREPARED, HISTORY = COLORS
STYLE = {
    "axes.edgecolor": "#7d828a",
    "axes.labelcolor": "#7d828a",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titleweight": "bold",
    "font.size": 11,
    "grid.alpha": 0.25,
    "grid.color": "#7d828a",
    "lines.linewidth": 2,
    "lines.marker": "o",
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "django_shedlock",
    "text.color": "#7d828a",
    "xtick.color": "#7d828a",
    "ytick.color": "#7d828a",
}


def main() -> None:
    """Read the numbers, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    draw(json.loads(options.numbers.read_text("utf-8")), options.picture)


def draw(results: dict[str, Any], picture: Path) -> None:
    """Draw cost against records, processes and waiting callers."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("No matplotlib: install the group 'benchmarks'.") from None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 8), layout="constrained")
        (records, waiters), (one, many) = figure.subplots(2, 2)
        draw_records(records, results["sizes"]["records"])
        draw_waiters(waiters, results["crowds"]["waiters"])
        draw_processes(one, results["crowds"], 1)
        draw_processes(many, results["crowds"], 16)
        for axes in (records, waiters, one, many):
            axes.grid(visible=True)
            axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
        lines, names = records.get_legend_handles_labels()
        machine = (f"{key} {value}" for key, value in results["machine"].items())
        figure.legend(
            lines,
            names,
            title="Measured with " + ", ".join(machine),
            loc="outside lower center",
            ncols=2,
            frameon=False,
        )
        # Without a date, so that the same numbers give the same file.
        figure.savefig(picture, transparent=True, metadata={"Date": None})


def draw_records(axes: Any, rows: dict[str, dict[str, float]]) -> None:
    """Draw what a pair costs among more and more records."""
    counts = [int(title.split()[0].replace(",", "")) for title in rows]
    ways = {
        RAW: sizes.RAW,
        OURS: sizes.OURS,
        PREPARED: sizes.PREPARED,
        HISTORY: sizes.HISTORY,
    }
    for name, way in ways.items():
        values = [row[way] for row in rows.values()]
        axes.plot(counts, values, label=name, color=COLORS[name])
    axes.set(
        title="One lock among many records",
        xscale="log",
        xlabel="records in the table",
        ylabel="acquire and release, ms",
    )


def draw_processes(axes: Any, found: dict[str, Any], locks: int) -> None:
    """Draw how often processes together acquire and release that many locks."""
    names = zip((RAW, OURS, PREPARED), (crowds.RAW, *crowds.OURS), strict=True)
    for name, way in names:
        values = [
            found["acquisitions"][crowds.title(count, locks, way)]["a second"]
            for count in found["processes"]
        ]
        axes.plot(found["processes"], values, color=COLORS[name])
    axes.set(
        title="Many processes on one lock" if locks == 1 else f"… and on {locks} locks",
        xlabel="processes",
        ylabel="pairs a second, all together",
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(found["processes"], list(map(str, found["processes"])))


def draw_waiters(axes: Any, rows: dict[str, dict[str, float]]) -> None:
    """Draw how long a lock is free before a caller that waits has it."""
    counts = [int(title.split()[0]) for title in rows]
    labels = {"first": ("the first", "-"), "each": ("from one to the next", "--")}
    for name, (label, style) in labels.items():
        values = [row[name] for row in rows.values()]
        axes.plot(counts, values, linestyle=style, label=label, color=COLORS[OURS])
    axes.legend(frameon=False)
    axes.set(
        title="Callers that wait for a held lock",
        xscale="log",
        xlabel="callers that wait",
        ylabel="until the next one has it, ms",
    )
    axes.set_xticks(counts, list(map(str, counts)))
    axes.minorticks_off()


if __name__ == "__main__":
    main()
