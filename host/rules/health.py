# SPDX-License-Identifier: GPL-2.0-or-later
"""HEALTH-01: the unit that watches the NFS mounts. Pure.

It is off until the policy has ``health_interval``, and apply has enabled it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.paths import HEALTH_UNIT
from ovirt_rdma.host.rules.base import Outcome, Rule
from ovirt_rdma.host.rules.own_unit import OwnUnit, decide_unit
from ovirt_rdma.host.rules.view import View

HEALTH_ID = "HEALTH-01"
HEALTH_SOURCE = "nfs(5), soft and timeo; Linux fs/nfs/iostat.h"


def decide_health(view: View) -> Iterator[Outcome]:
    """Yield one finding for the host, and a step if the unit must be enabled."""
    interval = view.policy.nfs.health_interval
    unit = OwnUnit(
        HEALTH_ID,
        HEALTH_UNIT,
        key="health_interval",
        running=f"looks at the mounts every {interval} s",
        failed="so nobody watches the mounts",
        kept="it runs and asks nobody",
        reason="the kernel tells nobody that a mount has stopped to answer",
        source=HEALTH_SOURCE,
    )
    wanted = f"the mounts should be looked at every {interval} s" if interval else ""
    yield from decide_unit(view, unit, wanted)


RULES = (Rule(HEALTH_ID, decide_health),)
