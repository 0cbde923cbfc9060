"""Random numbers that a test chooses."""

from __future__ import annotations


class Drawn:
    """Stands for a source of random numbers, of which each is the same."""

    def __init__(self, number: float):
        self.number = number

    def random(self) -> float:
        return self.number
