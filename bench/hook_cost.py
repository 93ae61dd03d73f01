# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure our hooks and a Python hook that does nothing, as VDSM calls both."""

from __future__ import annotations

import os
from pathlib import Path

from bench.report import Section, Table, Verdict
from bench.rounds import PROGRAM_PATH, measure
from bench.spread import Timing, durations, times

PROGRAM = "bench.hook_cost_program"
TITLE = "VDSM's hooks: against a Python hook that does nothing"

EMPTY_CAPS = "after_get_caps: empty hook"
CAPS = "after_get_caps: ours, NFS_RDMA is added"
CAPS_OFF = "after_get_caps: ours, not enabled"
EMPTY_NETWORK = "before_network_setup: empty hook"
ETHERNET = "before_network_setup: ours, no InfiniBand"
INFINIBAND = "before_network_setup: ours, InfiniBand, not refused"
NETWORK_OFF = "before_network_setup: ours, not enabled"
EMPTY_BARE = "before_network_setup: empty hook without VDSM's PYTHONPATH"
# The benchmark with which each is compared.
RIVALS = {
    CAPS: EMPTY_CAPS,
    CAPS_OFF: EMPTY_CAPS,
    ETHERNET: EMPTY_NETWORK,
    INFINIBAND: EMPTY_NETWORK,
    NETWORK_OFF: EMPTY_NETWORK,
    EMPTY_BARE: EMPTY_NETWORK,
}
OURS = (CAPS, CAPS_OFF, ETHERNET, INFINIBAND, NETWORK_OFF)
# Issue 5: our hooks may take this many times as long as an empty one.
LIMIT = 1.3


def section(rounds: int) -> Section:
    """Measure and return the results; without VDSM_SOURCE return what is missing."""
    text = """
        A hook point from call to answer, as vdsmd and supervdsmd do it: data file,
        environment, taskset, a new process, data read again; by the common/hooks.py
        of the VDSM that VDSM_SOURCE names. The rival is `#!/usr/bin/python3` and
        nothing else. It gets VDSM's PYTHONPATH, as every hook does, and so imports
        VDSM's sitecustomize and with it VDSM's configuration; ours begin with
        `python3 -IS`, which keeps that out. The last row is the rival without that
        PYTHONPATH, which no real hook is. The capabilities are 43 kB long."""
    source = os.environ.get("VDSM_SOURCE")
    if not source:
        reason = (
            "all of it, as VDSM's own code calls the hooks: "
            "`VDSM_SOURCE=../vdsm make bench` measures it."
        )
        return Section(TITLE, text, left_out=reason)
    environment = {
        "PYTHONPATH": PROGRAM_PATH,
        "VDSM_SOURCE": str(Path(source).absolute()),
    }
    return _judged(text, measure(PROGRAM, rounds, environment))


def _judged(text: str, timings: dict[str, Timing]) -> Section:
    rows = tuple(
        (
            name,
            *durations(timing.spread),
            times(timing.ratio(timings[RIVALS.get(name, name)])),
        )
        for name, timing in timings.items()
    )
    table = Table(("hook", "median", "min", "max", "times empty hook"), rows)
    ratios = {name: timings[name].ratio(timings[RIVALS[name]]) for name in OURS}
    name, worst = max(ratios.items(), key=lambda ratio: ratio[1].median)
    sentence = (
        f"the slowest of ours ({name}) takes {worst.median:.2f} times as long as an "
        f"empty hook; promised: at most {LIMIT} times."
    )
    return Section(TITLE, text, (table,), (Verdict(worst.median <= LIMIT, sentence),))
