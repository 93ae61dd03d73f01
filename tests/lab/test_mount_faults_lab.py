# SPDX-License-Identifier: GPL-2.0-or-later
"""Break a mount that works under load, and see who says what, and when.

The watcher of the unit runs with a short interval. Emulated guests are some 15 times
slower than hosts, so its looks are counted, not seconds: the first look that begins
after a fault names it, or the second one if it is only slow. docs/metrics.md says which
alerts each fault raises; promtool tests it with what the exporter wrote in the guest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mount_faults import FAULTS, POLICY, MountFault
from watched_host import Load, Recorded, WatchedHost, firing

from lab.topology import Topology
from tools.metrics_reference import TOP

pytestmark = pytest.mark.faults

# Two samples are needed for a rate.
BEFORE_S = 16.0


@pytest.fixture(scope="module")
def watched(two_guests: Topology) -> WatchedHost:
    host = WatchedHost(two_guests)
    host.load_policy(POLICY)
    host.watch()
    return host


@pytest.fixture
def host(watched: WatchedHost) -> Iterator[WatchedHost]:
    yield watched
    watched.end()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_raises_its_alerts(
    host: WatchedHost, tmp_path: Path, name: str
) -> None:
    fault = FAULTS[name]
    fault.before(host)
    host.mount(fault.options, fault.version)
    told = len(host.journal())
    if fault.load is not None:
        host.begin_load(fault.load)
    host.wait_until_seen()
    recorded = Recorded()
    before = host.record(recorded, BEFORE_S)
    assert [look["state"] for look in before] == ["ok"] * len(before), before
    sound_at = recorded.samples[-1][0]
    broken_at = host.clock_s()
    try:
        fault.begin(host)
        looks = host.record(recorded, fault.after_s)
    finally:
        fault.end(host)
    after = [look for look in looks if look["taken_at"] > broken_at]
    named(fault, after, host.journal(told))
    at = recorded.samples[-1][0]
    firing(recorded, {sound_at: set(), at: set(fault.alerts)}, tmp_path)


def named(fault: MountFault, looks: list[dict], journal: str) -> None:
    """Assert that the fault is named in time, by the state and in the journal."""
    if fault.cause is None:
        remarks = [[one["id"] for one in look["remarks"]] for look in looks]
        assert fault.remark in remarks[1], looks
        assert {look["state"] for look in looks} == {"ok"}
        return
    right = [
        number
        for number, look in enumerate(looks, 1)
        if (look["state"], look["cause"], look["reason"]) in fault.verdicts()
    ]
    # The look that was under way, and the one or two that count.
    longest = 3 if "slow" in fault.states else 2
    assert right and right[0] <= longest, looks
    assert {look["cause"] for look in looks[right[0] - 1 :]} == {fault.cause}, looks
    state, cause, _ = fault.verdicts()[0]
    assert re.search(rf"is {state} \(cause(, probably)?: {cause}\)", journal), journal


def test_a_sound_mixed_load_raises_nothing(host: WatchedHost, tmp_path: Path) -> None:
    """In short; 30 minutes of it were run by hand (docs/metrics.md)."""
    host.mount("rdma,port=20049", "4.2")
    host.wait_until_seen()
    host.begin_load(Load(readers=4, writers=4, pause_s=0.01))
    recorded = Recorded()
    looks = host.record(recorded, 120.0)
    assert {look["state"] for look in looks} == {"ok"}
    times = [at for at, _ in recorded.samples]
    firing(recorded, {at: set() for at in times}, tmp_path)


def test_the_documentation_names_the_same_alerts() -> None:
    text = (TOP / "docs/metrics.md").read_text()
    rows = re.findall(r"^\| ([a-z][^|]+) \| `?(\w+)`?[^|]* \| ([^|]*) \|$", text, re.M)
    shown = {name: set(re.findall(r"`(\w+)`", alerts)) for name, _, alerts in rows}
    assert {name: shown.get(name) for name in FAULTS} == {
        name: set(fault.alerts) for name, fault in FAULTS.items()
    }
