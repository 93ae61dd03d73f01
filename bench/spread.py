# SPDX-License-Identifier: GPL-2.0-or-later
"""Measured values with their spread, as people read them. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True)
class Spread:
    """At least one value; all of them stay, none is thrown away as an outlier."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def smallest(self) -> float:
        """The smallest value."""
        return min(self.values)

    @property
    def largest(self) -> float:
        """The largest value."""
        return max(self.values)


@dataclass(frozen=True)
class Timing:
    """What one thing took, in seconds: the values of each round.

    In a round everything is measured once, rivals too, so what the machine does
    meanwhile meets all of them.
    """

    rounds: tuple[tuple[float, ...], ...]

    @property
    def spread(self) -> Spread:
        """The values of all rounds."""
        return Spread(tuple(value for values in self.rounds for value in values))

    def ratio(self, rival: Timing) -> Spread:
        """Return how many times as long as ``rival`` it took, for each round."""
        pairs = zip(self.rounds, rival.rounds, strict=True)
        return Spread(
            tuple(
                statistics.median(ours) / statistics.median(theirs)
                for ours, theirs in pairs
            )
        )


def duration(seconds: float) -> str:
    """Return ``seconds`` with three digits and the unit that suits it."""
    for scale, unit in _UNITS:
        # Half a digit below the unit already rounds up to it.
        if seconds >= scale * 0.9995:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds * 1e9)} ns"


def times(ratio: Spread) -> str:
    """Return a ratio with its spread: ``2.1 (2.0 to 2.3)``."""
    low, middle, high = (
        _three_digits(value) for value in (ratio.smallest, ratio.median, ratio.largest)
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def durations(spread: Spread) -> tuple[str, str, str]:
    """Return median, smallest and largest for a table's cells."""
    return duration(spread.median), duration(spread.smallest), duration(spread.largest)


def megabytes(size: int) -> str:
    """Return ``size`` (bytes) in MB."""
    return f"{size / 1e6:.1f} MB"


def kilobytes(size: int) -> str:
    """Return ``size`` (bytes) in kB."""
    return f"{size / 1e3:.1f} kB"


def _three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"
