# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests with random hosts, policies, kills and changes by others: a revert restores the
earlier values, and leaves those of others.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.host.change_places import (
    adapter_of,
    file_of,
    is_volatile,
    makes_child,
    makes_profile,
    netdev_of,
    uuid_of,
)
from support.host.effects_host import MemoryJournal, Told, applied, recover, revert
from support.host.ipoib_host import OTHERS
from support.host.ipoib_plans import hosts, policies
from support.host.memory_host import FakeHost, Killed, Points

from ovirt_rdma.host.changes.plan import gate
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor


def _steps(host, policy):
    return gate(decide(host.facts, policy, OTHERS).steps, allow_link_down=True).steps


def _anew(steps):
    """A new port MTU recreates the netdevs: the plan does not have their values."""
    return any(adapter_of(c) for step in steps for c in step.changes)


def _reverted(host, journal, **parts):
    return revert(host, journal, host.facts, Told(), allow_link_down=True, **parts)


@given(hosts(), st.lists(policies(), min_size=1, max_size=4))
def test_a_revert_of_several_runs_leaves_what_was_there(made, wanted):
    host, journal = FakeHost(*made), MemoryJournal()
    before = host.settings()
    for policy in wanted:
        steps = _steps(host, policy)
        assume(not _anew(steps))
        assert applied(host, journal, steps).outcome == "done"
        assert _steps(host, policy) == ()
    result = _reverted(host, journal)
    assert (result.outcome, result.left) == ("done", ())
    assert host.settings() == before
    assert journal.ledger().applied == ()


@given(hosts(), policies())
def test_a_revert_of_a_new_port_mtu_leaves_what_was_there_but_mtus(made, wanted):
    host, journal = FakeHost(*made), MemoryJournal()
    before = _without_mtus(host)
    assert applied(host, journal, _steps(host, wanted)).outcome == "done"
    assert _reverted(host, journal).outcome == "done"
    assert _without_mtus(host) == before


def _without_mtus(host):
    netdevs, *rest = host.settings()
    return {name: values[1:] for name, values in netdevs.items()}, rest


@given(hosts(), st.lists(policies(), min_size=1, max_size=3), st.data())
def test_killed_over_and_over_all_is_as_before_in_the_end(made, wanted, data):
    host, journal = FakeHost(*made), MemoryJournal()
    before = host.settings()
    for policy in wanted:
        steps = _steps(host, policy)
        assume(not _anew(steps))
        start = host.settings()
        if _killed(host, journal, data, lambda s=steps: applied(host, journal, s)):
            _recovered(host, journal, data)
            ended = journal.ledger().runs
            if not ended or ended[-1].outcome != "done":
                assert host.settings() == start
    if _killed(host, journal, data, lambda: _reverted(host, journal)):
        _recovered(host, journal, data)
        _reverted(host, journal)
    assert host.settings() == before
    assert journal.ledger().applied == ()


def _killed(host, journal, data, work):
    last = data.draw(st.integers(1, 60), label="killed at")
    host.points = journal.points = Points(last)
    try:
        work()
    except Killed:
        return True
    finally:
        host.points = journal.points = Points()
    return False


def _recovered(host, journal, data):
    again = data.draw(st.booleans(), label="killed in recovery")
    if again:
        _killed(host, journal, data, lambda: recover(host, journal, 0, Told()))
    recover(host, journal, 0, Told())
    known = journal.data
    assert recover(host, journal, 0, Told()) is None
    assert journal.data == known


# Values that somebody may set meanwhile. They do not affect other values of ours.
FOREIGN = {
    "infiniband.mtu": ["1280", "1400"],
    "ethtool.feature-tso": ["on", "off"],
    "mtu": ["1280", "1400"],
    "tx-tcp-segmentation": ["on", "off"],
}


@given(hosts(), policies(), policies(), st.data())
def test_what_others_changed_is_left_and_all_else_comes_back(made, one, two, data):
    host, journal = FakeHost(*made), MemoryJournal()
    before = _flat(host)
    foreign = {}
    for policy in (one, two):
        steps = _steps(host, policy)
        assume(not _anew(steps))
        applied(host, journal, steps)
        more = _changed_by_others(host, journal, data, lasting=policy is one)
        assume(not more.keys() & foreign.keys())
        foreign.update(more)
    found = {what: place for what, (place, _) in foreign.items()}
    values = dict(foreign.values())
    result = _reverted(host, journal)
    assert result.outcome == "done"
    after = _flat(host)
    # Values in a profile or netdev of ours were removed with it.
    expected = {place: values.get(place, value) for place, value in before.items()}
    expected.update({p: v for p, v in values.items() if p in after})
    assert after == expected
    left = {one.what for one in result.left}
    assert left == {
        what
        for what, place in found.items()
        if place in after and before.get(place) != values[place]
    }


def _changed_by_others(host, journal, data, lasting):
    acts = [
        a
        for a in journal.ledger().applied
        if not (makes_profile(a) or makes_child(a.changes[0]))
    ]
    moved = {netdev_of(a.changes[0]) for a in acts if file_of(a.changes[0]) == "mode"}
    known = {}
    for act in acts:
        change = act.changes[0]
        name = file_of(change) or change.name
        if name not in FOREIGN or host.gone(act):
            continue
        if is_volatile(change) and (lasting or netdev_of(change) in moved):
            continue
        now = host.read(change, act.uuid).value
        others = [v for v in FOREIGN[name] if v != now]
        profile = change.kind == "profile"
        target = uuid_of(change, act.uuid) if profile else change.target
        known[target, change.name] = change, others
    if not known or not data.draw(st.booleans(), label="somebody changes something"):
        return {}
    place = data.draw(st.sampled_from(list(known)))
    change, others = known[place]
    value = data.draw(st.sampled_from(others))
    target, _ = place
    host.put(replace(change, target=target), value)
    name = file_of(change) or change.name
    netdev = netdev_of(change)
    if change.kind == "profile":
        what, where = f"{name} of the profile {change.target}", netdev or target
    else:
        what, where = f"{name} of {netdev}", netdev
    return {what: ((where, name), value)}


def _flat(host):
    """Return all settings of the host, by netdev or profile and name."""
    netdevs, profiles, *_ = host.settings()
    found = {}
    for name, (mtu, mode, offloads) in netdevs.items():
        found.update({(name, "mtu"): str(mtu), (name, "mode"): mode})
        found.update({(name, o): "on" if on else "off" for o, on in offloads.items()})
    for uuid, (name, values) in profiles.items():
        found[uuid, "name"] = name
        found.update({(uuid, one): value for one, value in values.items()})
    return found
