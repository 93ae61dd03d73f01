# SPDX-License-Identifier: GPL-2.0-or-later
"""Break a mount that works under load, and see who says what, and when.

The watcher of the unit runs with a short interval. Emulated guests are some 15 times
slower than hosts, so its looks are counted, not seconds: the one under way at the fault
or the next one names it, or the one after if a mount is slow, because a single late
answer is none. docs/alerts.md says which alerts each fault raises; a Prometheus that
scrapes what the exporter wrote in the guest must agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mount_faults import FAULTS, OVER_RDMA, POLICY, SLOW
from watched_host import Look, WatchedHost, monitoring, told

from lab.topology import Topology
from tools.metrics_reference import TOP

pytestmark = pytest.mark.faults

# Looks after which nobody waits any longer for the right one.
GIVEN_UP = 8
# Questions until a mount is ok again.
RECOVERED = 5


@pytest.fixture(scope="module")
def watched(two_guests: Topology) -> Iterator[WatchedHost]:
    host = WatchedHost(two_guests)
    host.load_policy(POLICY)
    with host.watching():
        yield host


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
    host.mount(OVER_RDMA, fault.version)
    written = len(host.journal())
    if fault.load is not None:
        host.begin_load(fault.load)
    host.wait_until_seen()
    with monitoring(tmp_path) as shown:
        # Two samples are needed for a rate.
        before = host.record(shown, lambda looks: len(looks) >= 2)
        assert [look["state"] for look in before] == ["ok"] * len(before), told(before)
        assert shown.server.firing() == set()
        broken_at = host.clock_s()

        def after(looks: list[Look]) -> list[Look]:
            return [look for look in looks if look["taken_at"] > broken_at]

        def enough(looks: list[Look]) -> bool:
            looks = after(looks)
            first = fault.first_named(looks)
            if first is None:
                return len(looks) >= GIVEN_UP
            if looks[-1]["taken_at"] - looks[first]["taken_at"] < fault.after_s:
                return False
            return SLOW not in fault.alerts or SLOW in shown.server.firing()

        try:
            fault.begin(host)
            looks = after(host.record(shown, enough))
            alerts = shown.server.firing()
        finally:
            fault.end(host)
    first = fault.first_named(looks)
    assert first is not None and first < fault.looks, told(looks)
    print(f"{name}: named after {looks[first]['taken_at'] - broken_at:.1f} s")
    causes = [look["cause"] for look in looks[first:]]
    others = [cause for cause in causes if cause != fault.cause]
    if fault.at_times:
        # A path that loses packets at random may work for some seconds, and one look
        # in eight may see the wrong packets go.
        others = [cause for cause in others if cause is not None]
        others = others[len(causes) // 8 :]
    assert not others, told(looks)
    if fault.cause is not None:
        said = rf"is {looks[first]['state']} \(cause(, probably)?: {fault.cause}\)"
        assert re.search(said, host.journal(written))
    assert alerts - fault.at_times == fault.alerts


def test_a_disk_that_hangs_is_named_although_lookups_are_answered(
    host: WatchedHost,
) -> None:
    # A read that is sent again would hold another NFS thread, until there is none.
    host.mount(f"{OVER_RDMA},timeo=600", "4.2")
    file = "5e2b1f6e-0f7c-4a52-9d0e-3c1d9b8a7f60/dom_md/metadata"
    folder = file.rpartition("/")[0]
    host.shell(f"cd {host.place} && mkdir -p {folder} && seq 2000 > {file}")
    assert host.ask()["state"] == "ok"
    with host.hung_disk(file):
        found = host.ask()
        # The unit looks up only, so the read of another process does not delay it.
        host.wait_until_seen()
        assert host.health()[1]["state"] == "ok"
    assert (found["state"], found["cause"], found["reason"]) == (
        "stalled",
        "server",
        "data-stuck",
    ), found
    for _ in range(RECOVERED):
        again = host.ask()
        if again["state"] == "ok":
            break
    assert again["state"] == "ok", again


def test_the_documentation_names_the_same_alerts() -> None:
    text = (TOP / "docs/alerts.md").read_text()
    rows = re.findall(r"^\| ([a-z][^|]+) \| `?(\w+)`?[^|]* \| ([^|]*) \|$", text, re.M)
    shown = {
        name: [set(re.findall(r"`(\w+)`", part)) for part in alerts.split("at times")]
        for name, _, alerts in rows
    }
    assert {name: shown.get(name) for name in FAULTS} == {
        name: [set(fault.alerts), *([set(fault.at_times)] if fault.at_times else [])]
        for name, fault in FAULTS.items()
    }
