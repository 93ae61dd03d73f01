# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure making a storage connection: our class and VDSM's own NFSConnection."""

from __future__ import annotations

import os
from pathlib import Path

from bench.report import Section, Table, Verdict
from bench.rounds import PROGRAM_PATH, measure
from bench.spread import Timing, duration, durations, times
from bench.thousand_rules import FIRST, LAST, MANY, NONE

PROGRAM = "bench.constructor_program"

STOCK = "stock NFSConnection"
CHOICE = "and: choosing transport and options"
TITLE = "Making a connection: our class against stock VDSM's"
# Name, number of rules in the policy (None: not loaded), export.
CASES = (
    ("ours, no policy loaded", None, FIRST),
    ("ours, one rule that names the export", 1, FIRST),
    ("ours, one rule that does not", 1, NONE),
    (f"ours, {MANY} rules, the first names it", MANY, FIRST),
    (f"ours, {MANY} rules, the last names it", MANY, LAST),
    (f"ours, {MANY} rules, none names it", MANY, NONE),
)
# Our own limit: with it 20 exports cost 0.2 s of the engine's 180.
LIMIT_S = 0.010


def section(rounds: int) -> Section:
    """Measure and return the results; without VDSM_SOURCE return what is missing."""
    text = f"""
        What VDSM does for each export that the engine sends, before it mounts
        anything. The rival is NFSConnection of the VDSM that VDSM_SOURCE names (NFS
        4.2, no extra options). Ours runs stock's constructor, looks whether
        policy.json changed and finds the rule; the last row comes on top when an
        export that a rule names gets mounted. Of the {MANY} rules a quarter each are
        addresses, networks, names and globs."""
    source = os.environ.get("VDSM_SOURCE")
    if not source:
        reason = (
            "all of it. Without VDSM_SOURCE the rival would be this project's own "
            "double of VDSM; `VDSM_SOURCE=../vdsm make bench` measures against the "
            "real one."
        )
        return Section(TITLE, text, left_out=reason)
    environment = {
        "PYTHONPATH": PROGRAM_PATH,
        "VDSM_SOURCE": str(Path(source).absolute()),
    }
    return _judged(text, measure(PROGRAM, rounds, environment))


def _judged(text: str, timings: dict[str, Timing]) -> Section:
    stock = timings[STOCK]
    rows = tuple(
        (name, *durations(timing.spread), times(timing.ratio(stock)))
        for name, timing in timings.items()
    )
    table = Table(("constructor", "median", "min", "max", "times stock"), rows)
    slowest = max((timings[name] for name, _, _ in CASES), key=_median)
    seen = _median(slowest)
    sentence = (
        f"the slowest constructor takes {duration(seen)}, stock's "
        f"{duration(_median(stock))}; our own limit is {duration(LIMIT_S)} per export."
    )
    return Section(TITLE, text, (table,), (Verdict(seen <= LIMIT_S, sentence),))


def _median(timing: Timing) -> float:
    return timing.spread.median
