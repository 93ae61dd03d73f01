# SPDX-License-Identifier: GPL-2.0-or-later
"""Format measured values with their spread for people. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True)
class Spread:
    """At least one value; all values count, none is removed as an outlier."""

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
    """The durations of one benchmark in seconds: the values of each round.

    A round measures everything once, rivals too, so other load affects all of them.
    """

    rounds: tuple[tuple[float, ...], ...]

    @property
    def spread(self) -> Spread:
        """The values of all rounds."""
        return Spread(tuple(value for values in self.rounds for value in values))

    def ratio(self, rival: Timing) -> Spread:
        """Return the ratio of this to ``rival``, for each round."""
        pairs = zip(self.rounds, rival.rounds, strict=True)
        return Spread(
            tuple(
                statistics.median(ours) / statistics.median(theirs)
                for ours, theirs in pairs
            )
        )


def duration(seconds: float) -> str:
    """Return ``seconds`` with three digits and a suitable unit."""
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
