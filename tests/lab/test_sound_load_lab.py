# SPDX-License-Identifier: GPL-2.0-or-later
"""A sound mount under mixed load raises no alert, and its health is ok all the time.

OVIRT_RDMA_SOUND_LOAD_MINUTES: how long (6 by default; docs/lab.md).
"""

from __future__ import annotations

import os
import time
from itertools import cycle
from pathlib import Path

import pytest
from mount_faults import OVER_RDMA, POLICY
from watched_host import SCRAPE_S, Load, Look, WatchedHost, monitoring, told

from lab.topology import Topology

pytestmark = pytest.mark.faults

MINUTES = float(os.environ.get("OVIRT_RDMA_SOUND_LOAD_MINUTES", "6"))
PHASE_S = 60.0
# A look of guests that had no processor for more of the time than this is not judged.
STARVED = 0.5
# As of virtual machines that boot, copy, write logs, or sleep. None: no load.
PHASES = (
    Load(readers=4, writers=1, block=4 << 10),
    Load(readers=1, writers=1, block=1 << 20),
    Load(readers=0, writers=4, block=4 << 10, pause_s=0.1),
    None,
    Load(readers=8, writers=8, block=64 << 10, pause_s=0.5),
)


def test_a_sound_mount_under_load_raises_nothing(
    two_guests: Topology, tmp_path: Path
) -> None:
    host = WatchedHost(two_guests)
    host.load_policy(POLICY)
    with host.watching():
        host.mount(OVER_RDMA, "4.2")
        host.wait_until_seen()
        looks: list[Look] = []
        begun, end = time.time(), time.monotonic() + 60 * MINUTES
        with monitoring(tmp_path) as shown:
            for phase in cycle(PHASES):
                if time.monotonic() >= end:
                    break
                if phase is not None:
                    host.begin_load(phase)
                until = time.monotonic() + PHASE_S
                looks += host.record(
                    shown, lambda _, until=until: time.monotonic() >= until
                )
                host.end_load()
            alerts = shown.server.fired(begun, SCRAPE_S)
        host.end()

    print(told(looks))
    judged = [look for look in looks if look["starved"] < STARVED]
    wrong = [look for look in judged if look["state"] != "ok"]
    assert not wrong, told(wrong)
    if len(judged) < 2 * MINUTES:
        pytest.skip(f"the machine left processors for {len(judged)} looks only")
    if len(judged) == len(looks):
        assert alerts == set()
