# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the port that owns the storage address, for RoCE as oVirt builds it.

The facts are of real kernels; tests/lab/test_roce_uppers_lab.py writes them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ovirt_rdma.host.facts import model
from ovirt_rdma.storage.readiness import (
    NOT_READY,
    READY,
    Readiness,
    local_steps,
    ports_behind,
)

DATA = Path(__file__).parents[1] / "data" / "facts"
SERVER, SOURCE = "10.98.0.1", "10.98.0.2"


def load(name):
    """Return the facts, and the readiness for SERVER."""
    facts = model.load(DATA / f"roce-{name}.json")
    [route] = [one for one in facts.routes if one.destination == SERVER]
    return facts, Readiness(local_steps(facts, route))


@pytest.mark.parametrize(
    "name, netdev, port",
    [
        ("nic", "eth1", "rxe1/1"),
        ("vlan", "eth1.100", "rxe1/1"),
        ("bridge", "br8", "rxe8/1"),
        ("bridge-vlan", "br8", "rxe8/1"),
        ("bridge-over-vlan", "br8", "rxe1/1"),
        ("bond", "bond7", "rxe7/1"),
        ("bond-vlan", "bond7.100", "rxe7/1"),
        # Two adapters, each with its own RDMA device, below one bond: the
        # address is in the GID table of the active slave's device.
        ("bond-of-two", "bond7", "rxe1/1"),
        ("bond-of-two-failed-over", "bond7", "rxe2/1"),
    ],
)
def test_the_port_that_owns_the_address(name, netdev, port):
    facts, readiness = load(name)
    seen = {step.name: (step.verdict, step.detail) for step in readiness.steps}
    assert seen["route"] == (READY, f"{SERVER} by {netdev} from {SOURCE}")
    assert seen["port"] == (READY, f"{port} is ACTIVE and owns {SOURCE}")
    assert readiness.verdict == READY
    (other,) = ports_behind(facts.rdma_devices, facts.netdevs, "eth0", "10.99.0.2")
    assert other[0].name == "rxe0"


def test_an_address_above_a_nic_without_rdma_device():
    _, readiness = load("bridge-without-rdma")
    assert readiness.verdict == NOT_READY
    assert readiness.reason == f"no RDMA port owns {SOURCE} on br8 (RDMA devices: rxe0)"
    assert readiness.fix == (
        "put the storage address on the RDMA port's netdev, or on one above it"
    )
