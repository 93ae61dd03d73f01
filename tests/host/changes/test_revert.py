# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of revert: which values it restores, which it leaves, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.effects_host import MemoryJournal, Told, applied, recover, revert
from support.host.ipoib_host import OTHERS, host, netdev, network, policy, port, profile
from support.host.memory_host import FakeHost, Killed, Points
from support.problems import problem

from ovirt_rdma.host.changes.journal import Ledger
from ovirt_rdma.host.changes.plan import gate
from ovirt_rdma.host.facts.devices import NetdevUse
from ovirt_rdma.host.rules.base import LINK_DOWN, LIVE, Change, Step
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor

MODE, MTU = "/sys/class/net/ib0/mode", "/sys/class/net/ib0/mtu"
TO_CONNECTED = Change("sysfs", MODE, None, "connected")
CONF = "/etc/modprobe.d/ovirt-rdma.conf"
NFS = NetdevUse("ib0", "nfs", "10.0.0.1:/export at /mnt")


def mtu(after, clamped=False):
    return Change("sysfs", MTU, None, after, clamped=clamped)


def step(*changes, rule="IPOIB-MTU-01", subject="ib0", effect=LIVE):
    words = ("sentence", "before", "after", effect, "reason", "undo")
    return Step(rule, subject, *words, changes)


MODE_STEP = step(TO_CONNECTED, mtu("9000"), rule="IPOIB-MODE-01", effect=LINK_DOWN)


@pytest.fixture
def there():
    return FakeHost(host(netdev("ib0", 2044, tso="on")))


@pytest.fixture
def journal():
    return MemoryJournal()


def _revert(there, journal, told=None, **parts):
    return revert(there, journal, there.facts, told or Told(), **parts)


def cut(act):
    raise Killed


def value(there, change):
    return there.read(change).value


def test_nothing_held_is_nothing_to_do(there, journal):
    result = _revert(there, journal)
    assert (result.run, result.outcome) == (None, "done")
    assert result.sentence == "there are no changes to revert"
    assert journal.data == Ledger()


def test_the_steps_come_back_the_newest_first(there, journal):
    before = there.settings()
    applied(there, journal, [step(mtu("1500"))])
    applied(there, journal, [MODE_STEP])
    result = _revert(there, journal)
    assert result.done == ("IPOIB-MODE-01/ib0", "IPOIB-MTU-01/ib0")
    assert (result.run, result.sentence) == (3, "all is as before")
    assert there.settings() == before
    run = journal.ledger().runs[-1]
    assert (run.verb, run.outcome) == ("revert", "done")


# One step.


def test_one_step_comes_back_and_the_others_stay(there, journal):
    tso = Change("offload", "ib0", None, "off", "tx-tcp-segmentation")
    applied(there, journal, [step(mtu("1500")), step(tso, rule="IPOIB-TSO-02")])
    result = _revert(there, journal, only="IPOIB-MTU-01/ib0")
    assert result.done == ("IPOIB-MTU-01/ib0",)
    assert (value(there, mtu("")), value(there, tso)) == ("2044", "off")
    assert [held.step for held in journal.ledger().applied] == ["IPOIB-TSO-02/ib0"]


def test_a_step_of_several_runs_comes_back_in_all(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    applied(there, journal, [step(mtu("1280"))])
    _revert(there, journal, only="IPOIB-MTU-01/ib0")
    assert value(there, mtu("")) == "2044"
    assert journal.ledger().applied == ()


def test_a_step_that_another_rests_on_is_refused(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    applied(there, journal, [MODE_STEP])
    data = journal.data
    with problem("step-needed-by-others", "IPOIB-MTU-01/ib0", "IPOIB-MODE-01/ib0"):
        _revert(there, journal, only="IPOIB-MTU-01/ib0")
    assert journal.data == data
    # That step can be reverted alone; the value of the first run stays.
    _revert(there, journal, only="IPOIB-MODE-01/ib0")
    assert value(there, mtu("")) == "1500"


def test_an_unknown_step_is_refused_with_those_that_are_held(there, journal):
    with problem("step-not-applied", "X/ib0"):
        _revert(there, journal, only="X/ib0")
    applied(there, journal, [step(mtu("1500"))])
    with problem("step-not-applied", "X/ib0") as caught:
        _revert(there, journal, only="X/ib0")
    assert caught.value.fix.endswith(": IPOIB-MTU-01/ib0")


# Changes by others since.


def test_what_others_changed_since_is_left_and_said(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    there.put(mtu(""), "1280")
    result = _revert(there, journal)
    assert result.outcome == "done"
    (left,) = result.left
    assert (left.step, left.what, left.failed) == (
        "IPOIB-MTU-01/ib0",
        "mtu of ib0",
        False,
    )
    assert left.why.id == "value-changed-by-others"
    assert "(now 1280, ours 1500)" in left.why
    assert "except mtu of ib0" in result.sentence
    assert value(there, mtu("")) == "1280"
    assert journal.ledger().applied == ()


def test_what_others_change_while_the_host_is_read_is_left_too(there, journal):
    applied(there, journal, [step(mtu("1500"))])

    def facts():
        there.put(mtu(""), "1280")
        return there.facts

    (left,) = revert(there, journal, facts, Told()).left
    assert left.why.id == "value-changed-by-others"
    assert value(there, mtu("")) == "1280"


def test_nor_is_it_taken_back_with_an_interrupted_run(there, journal):
    tso = Change("offload", "ib0", None, "off", "tx-tcp-segmentation")
    there.on_undo = cut
    applied(there, journal, [step(mtu("1500")), step(tso, rule="IPOIB-TSO-02")])
    with pytest.raises(Killed):
        _revert(there, journal)
    there.on_undo = lambda act: None

    def facts():
        there.put(mtu(""), "1280")
        return there.facts

    recover(there, journal, there.now(), Told(), facts)
    assert value(there, mtu("")) == "1280"


def test_what_others_changed_stays_while_the_rest_of_its_step_goes_back(journal):
    """Restoring connected mode sets an MTU by itself."""
    there = FakeHost(host(netdev("ib0", 9000, "connected")))
    to_datagram = Change("sysfs", MODE, None, "datagram")
    applied(there, journal, [step(mtu("2044", clamped=True), to_datagram)])
    there.put(mtu(""), "1280")
    assert len(_revert(there, journal).left) == 1
    assert value(there, TO_CONNECTED) == "connected"
    assert value(there, mtu("")) == "1280"


@pytest.mark.parametrize("foreign", [None, "1280"])
def test_killed_in_the_middle_of_a_step_it_goes_on_to_the_same_values(foreign):
    """When connected mode is restored, the kernel sets an MTU that nobody wanted."""
    to_datagram = Change("sysfs", MODE, None, "datagram")
    points, killed = 0, True
    while killed:
        points += 1
        there, journal = (
            FakeHost(host(netdev("ib0", 9000, "connected"))),
            MemoryJournal(),
        )
        applied(there, journal, [step(mtu("2044", clamped=True), to_datagram)])
        if foreign:
            there.put(mtu(""), foreign)
        there.points = journal.points = Points(points)
        try:
            result = _revert(there, journal)
            killed = False
        except Killed:
            there.points = journal.points = Points()
            result = recover(there, journal, 0, Told()) or _revert(there, journal)
        assert result.outcome == "done"
        assert value(there, TO_CONNECTED) == "connected"
        assert value(there, mtu("")) == (foreign or "9000")
        whys = [act.why for act in journal.ledger().runs[0].acts]
        assert any("by someone else" in why for why in whys) is bool(foreign)
        assert journal.ledger().applied == ()
    assert points > 10


def test_what_is_back_already_is_not_written_again(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    there.put(mtu(""), "2044")
    effects = there.effects
    assert _revert(there, journal).done == ("IPOIB-MTU-01/ib0",)
    assert there.effects == effects
    file_too = Change("file", CONF, None, "x")
    applied(there, journal, [step(mtu("1500"), file_too)])
    there.put(mtu(""), "2044")
    effects = there.effects
    _revert(there, journal)
    assert there.effects == effects + 1


def test_what_others_set_between_two_runs_is_what_comes_back(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    there.put(mtu(""), "1280")
    applied(there, journal, [step(mtu("1400"))])
    result = _revert(there, journal)
    assert value(there, mtu("")) == "1280"
    (left,) = result.left
    assert left.why.id == "value-changed-by-others"
    assert "mtu of ib0 was 1280 before run 2" in left.why


def test_a_value_that_is_back_already_is_nobodys_change(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    applied(there, journal, [step(mtu("1400"))])
    there.put(mtu(""), "2044")
    effects = there.effects
    assert _revert(there, journal).left == ()
    assert (value(there, mtu("")), journal.ledger().applied) == ("2044", ())
    assert there.effects == effects + 2  # each change was undone, in its turn


def _thrice(there, journal, between=None):
    for number, value in enumerate(("1500", "1400", "1300")):
        if number == 2 and between:
            there.put(mtu(""), between)
        applied(there, journal, [step(mtu(value))])


@pytest.mark.parametrize("now", ["1500", "1400"])
def test_a_value_that_an_earlier_run_had_set_may_be_somebodys_change(
    there, journal, now
):
    _thrice(there, journal)
    there.put(mtu(""), now)
    (left,) = _revert(there, journal).left
    assert left.why.id == "value-changed-by-others"
    assert f"(now {now}, ours 1300)" in left.why
    assert (value(there, mtu("")), journal.ledger().applied) == (now, ())


def test_so_it_may_between_two_runs(there, journal):
    _thrice(there, journal, between="1500")
    (left,) = _revert(there, journal).left
    assert left.why.id == "value-changed-by-others"
    assert "mtu of ib0 was 1500 before run 3" in left.why
    assert value(there, mtu("")) == "1500"


def test_what_was_there_before_somebodys_change_may_be_set_again(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    there.put(mtu(""), "1280")
    applied(there, journal, [step(mtu("1400"))])
    there.put(mtu(""), "2044")
    assert len(_revert(there, journal).left) == 1
    assert value(there, mtu("")) == "2044"


@pytest.mark.parametrize("foreign", [None, "1500", "1400", "1280"])
def test_killed_at_any_point_a_revert_of_several_runs_ends_the_same(foreign):
    points, killed = 0, True
    while killed:
        points += 1
        there = FakeHost(host(netdev("ib0", 2044)))
        journal = MemoryJournal()
        _thrice(there, journal)
        if foreign:
            there.put(mtu(""), foreign)
        there.points = journal.points = Points(points)
        try:
            _revert(there, journal)
            killed = False
        except Killed:
            there.points = journal.points = Points()
            recover(there, journal, 0, Told())
            _revert(there, journal)
        assert value(there, mtu("")) == (foreign or "2044")
        assert journal.ledger().applied == ()
    assert points > 10


@pytest.mark.parametrize(("now", "foreign"), [("2044", False), ("1280", True)])
def test_what_the_group_makes_of_an_mtu_is_nobodys_change(journal, now, foreign):
    there = FakeHost(host(netdev("ib0", 1500)))
    applied(there, journal, [step(mtu("4092", clamped=True))])
    there.put(mtu(""), now)
    assert bool(_revert(there, journal).left) is foreign
    assert value(there, mtu("")) == ("1280" if foreign else "1500")


def test_a_group_that_has_become_smaller_keeps_an_mtu_from_coming_back(there, journal):
    there.put(mtu(""), "4092")
    applied(there, journal, [step(mtu("1500"))])
    there.group_mtu = 2044
    assert _revert(there, journal).outcome == "done"
    assert value(there, mtu("")) == "2044"


# Files, modules, units.


def test_a_file_goes_or_gets_its_earlier_text(there, journal):
    old, new = "# old\n", "# new\n"
    there.files["/etc/modules-load.d/ovirt-rdma.conf"] = old
    files = [
        step(Change("file", CONF, None, new), rule="MODOPT-02"),
        step(
            Change("file", "/etc/modules-load.d/ovirt-rdma.conf", old, new),
            rule="MODULE-02",
        ),
    ]
    applied(there, journal, files)
    _revert(there, journal)
    assert there.files == {"/etc/modules-load.d/ovirt-rdma.conf": old}


def test_a_file_that_was_edited_is_left(there, journal):
    applied(there, journal, [step(Change("file", CONF, None, "ours\n"))])
    there.files[CONF] = "theirs\n"
    (left,) = _revert(there, journal).left
    assert (left.why.id, CONF in left.why) == ("value-changed-by-others", True)
    assert there.files[CONF] == "theirs\n"


def test_a_file_that_was_removed_is_nothing_to_undo(there, journal):
    applied(there, journal, [step(Change("file", CONF, None, "ours\n"))])
    del there.files[CONF]
    assert _revert(there, journal).left == ()


def test_a_module_stays_loaded_and_a_unit_is_disabled(there, journal):
    opensm = "ovirt-rdma-opensm@0x0002c90300fb1231.service"
    unit = Change("unit", opensm, "disabled", "enabled")
    module = Change("module", "rpcrdma", None, "loaded")
    applied(there, journal, [step(replace(unit, name="enabled"), module)])
    assert _revert(there, journal).outcome == "done"
    assert value(there, unit) == "disabled"
    assert value(there, module) == "loaded"
    (one,) = [a for a in journal.ledger().runs[0].acts if a.why]
    assert one.why == "a module stays loaded"


# Profiles and children that we made.

CHILDREN = policy(transport_mode="connected", mtu=9000, pkey_children=("0x8001",))


def _with_child(profiles, journal, wanted=CHILDREN):
    ports = (port(pkeys=("0xffff", "0x8001")),)
    there = FakeHost(host(netdev("ib0", 2044), ports=ports, profiles=profiles))
    before = there.settings()
    _apply(there, journal, wanted)
    return there, before


def _apply(there, journal, wanted):
    steps = decide(there.facts, wanted, OTHERS).steps
    assert applied(there, journal, gate(steps, allow_link_down=True).steps).run


@pytest.mark.parametrize("profiles", [(), None])
def test_a_child_goes_and_what_was_changed_in_it_later_goes_with_it(profiles, journal):
    there, before = _with_child(profiles, journal)
    later = policy(transport_mode="connected", mtu=5000, pkey_children=("0x8001",))
    _apply(there, journal, later)
    steps = {held.step for held in journal.ledger().applied}
    result = _revert(there, journal)
    assert (result.outcome, result.left) == ("done", ())
    assert set(result.done) == steps
    assert there.settings() == before
    assert journal.ledger().applied == ()


@pytest.mark.parametrize("profiles", [(), None])
def test_a_child_alone_can_be_taken_back_with_all_that_is_set_in_it(profiles, journal):
    there, _ = _with_child(profiles, journal)
    _revert(there, journal, only="IPOIB-PKEY-01/ib0.8001")
    assert [n.name for n in there.facts.netdevs if n.ipoib] == ["ib0"]
    assert not any("ib0.8001" in held.step for held in journal.ledger().applied)
    assert journal.ledger().applied


@pytest.mark.parametrize("name", ["ib0.8001", "storage"])
def test_what_was_set_in_a_child_of_ours_does_not_go_back_alone(journal, name):
    """It had no value before the child was made, whatever it is called now."""
    there, _ = _with_child(None, journal)
    if name != "ib0.8001":
        there.rename("ib0.8001", name)
    found = there.settings()
    with problem("step-set-what-we-made", "IPOIB-PKEY-01/ib0.8001 made") as caught:
        _revert(there, journal, only="IPOIB-MODE-01/ib0.8001")
    assert caught.value.fix.startswith("revert IPOIB-PKEY-01/ib0.8001, ")
    assert there.settings() == found


def test_a_profile_that_somebody_deleted_is_nothing_to_undo(journal):
    there, before = _with_child((), journal)
    for held in journal.ledger().applied:
        if held.step == "IPOIB-PKEY-01/ib0.8001":
            there.undo(held)
    result = _revert(there, journal)
    assert (result.outcome, result.left) == ("done", ())
    assert there.settings() == before


def test_a_netdev_that_is_gone_is_nothing_to_undo(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    there.facts = replace(there.facts, netdevs=())
    assert _revert(there, journal).outcome == "done"
    (one,) = journal.ledger().runs[0].acts
    assert one.why == "mtu of ib0 no longer exists"


def test_a_profile_of_ours_goes_and_an_existing_child_stays(journal):
    """NetworkManager removes a child only if it has made it."""
    wanted = policy(transport_mode="datagram", mtu=1500)
    ports = (port(pkeys=("0xffff", "0x8001")),)
    facts = host(netdev("ib0", 2044), ports=ports, profiles=())
    child = replace(
        facts.netdevs[0],
        name="ib0.8001",
        ipoib=replace(facts.netdevs[0].ipoib, parent="ib0", pkey="0x8001"),
    )
    manager = facts.network_manager
    manager = replace(manager, managed=(*manager.managed, "ib0.8001"))
    facts = replace(facts, netdevs=(*facts.netdevs, child), network_manager=manager)
    there = FakeHost(facts)
    before = there.settings()
    _apply(there, journal, wanted)
    assert len(there.facts.network_manager.profiles) == 2
    _revert(there, journal)
    assert there.settings() == before


# Renamed, booted.


def test_a_renamed_netdev_is_found_by_its_place(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    applied(there, journal, [MODE_STEP])
    there.rename("ib0", "ibp4s0")
    facts = there.facts
    assert _revert(there, journal).left == ()
    (one,) = there.facts.netdevs
    assert (one.name, one.mtu, one.ipoib.mode) == ("ibp4s0", 2044, "datagram")
    assert facts != there.facts


def test_after_a_rename_both_names_are_one_property(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    there.rename("ib0", "ibp4s0")
    change = replace(mtu("1400"), target="/sys/class/net/ibp4s0/mtu")
    applied(there, journal, [step(change, subject="ibp4s0")])
    assert _revert(there, journal).left == ()
    assert there.facts.netdevs[0].mtu == 2044


def test_after_a_boot_the_kernels_own_value_is_left_and_nobodys_change(journal):
    there = FakeHost(host(netdev("ib0", 1500)))
    applied(there, journal, [step(mtu("1400"))])
    there.reboot()
    result = _revert(there, journal)
    assert (result.outcome, result.left) == ("done", ())
    assert there.facts.netdevs[0].mtu == 4092
    assert journal.ledger().applied == ()


def test_after_a_boot_what_was_kept_goes_back(journal):
    there = FakeHost(host(netdev("ib0", 2044), profiles=[profile(mtu=2044)]))
    _apply(there, journal, policy(transport_mode="connected", mtu="auto"))
    there.reboot()
    assert there.facts.netdevs[0].mtu == 65520
    result = _revert(there, journal)
    assert (result.outcome, result.left) == ("done", ())
    assert (there.facts.netdevs[0].mtu, there.facts.netdevs[0].ipoib.mode) == (
        2044,
        "datagram",
    )


def test_a_run_that_a_power_cut_interrupted_is_taken_back_at_boot(there, journal):
    before = there.settings()

    def cut(act):
        if act.changes[0].target == MTU:
            raise Killed

    there.on_do = cut
    with pytest.raises(Killed):
        applied(there, journal, [step(Change("file", CONF, None, "x")), MODE_STEP])
    there.reboot()
    result = recover(there, journal, there.now(), Told())
    assert (result.outcome, result.left) == ("rolled back", ())
    netdevs, *rest = there.settings()
    assert rest == list(before[1:])
    assert netdevs["ib0"][:2] == (4092, "datagram")  # the kernel's own


# Users.


def _used(there):
    there.facts = replace(there.facts, netdev_uses=(NFS,))
    return there


def test_a_link_in_use_is_not_taken_down(there, journal):
    applied(there, journal, [step(mtu("1500")), MODE_STEP])
    data = journal.data
    with problem("netdevs-in-use", "--allow-link-down") as caught:
        _revert(_used(there), journal)
    (reason,) = caught.value.reasons
    assert reason.id == "link-in-use"
    assert reason.startswith("IPOIB-MODE-01/ib0 ")
    assert reason.endswith(" nfs: 10.0.0.1:/export at /mnt")
    assert journal.data == data
    # If it is allowed, all steps are reverted.
    assert _revert(there, journal, allow_link_down=True).outcome == "done"


def test_live_steps_come_back_under_users(there, journal):
    applied(there, journal, [step(mtu("1500"))])
    assert _revert(_used(there), journal).outcome == "done"


def test_a_link_that_is_as_before_already_is_not_taken_down(there, journal):
    applied(there, journal, [MODE_STEP])
    there.put(TO_CONNECTED, "datagram")
    there.put(mtu(""), "2044")
    assert _revert(_used(there), journal).outcome == "done"


@pytest.mark.parametrize("profiles", [(), None])
def test_a_child_in_use_is_not_removed(profiles, journal):
    """Making it was a live step; removing it is not."""
    there, _ = _with_child(profiles, journal)
    use = NetdevUse("ib0.8001", "nfs", "server:/export")
    there.facts = replace(there.facts, netdev_uses=(use,))
    with problem("netdevs-in-use", "IPOIB-PKEY-01/ib0.8001 "):
        _revert(there, journal, only="IPOIB-PKEY-01/ib0.8001")


@pytest.mark.parametrize("profiles", [(), None])
@pytest.mark.parametrize("use", ["nfs: server:/export", "address: 10.0.0.2/24"])
def test_nor_is_one_that_somebody_has_renamed(use, profiles, journal):
    there, _ = _with_child(profiles, journal)
    there.rename("ib0.8001", "storage")
    *others, child = there.facts.netdevs
    assert child.name == "storage"
    if use.startswith("nfs"):
        nfs = NetdevUse("storage", "nfs", "server:/export")
        there.facts = replace(there.facts, netdev_uses=(nfs,))
    else:
        child = replace(child, addresses=("10.0.0.2/24",))
        there.facts = replace(there.facts, netdevs=(*others, child))
    if profiles is not None:
        manager = there.facts.network_manager
        renamed = [
            replace(one, active_on="storage")
            if one.interface_name == "ib0.8001"
            else one
            for one in manager.profiles
        ]
        manager = replace(manager, profiles=tuple(renamed))
        there.facts = replace(there.facts, network_manager=manager)
    with problem("netdevs-in-use", "IPOIB-PKEY-01/ib0.8001 ", use):
        _revert(there, journal, only="IPOIB-PKEY-01/ib0.8001")


@pytest.mark.parametrize(
    ("southbound", "addresses", "who"),
    [
        ("ib0", ("10.0.0.2/24",), "engine: network storage on ib0"),
        ("bond0", (), "engine: network storage on bond0"),
        (None, ("10.0.0.2/24", "fe80::2/64"), "address: 10.0.0.2/24 on ib0"),
        (None, ("fe80::2/64",), None),
    ],
)
def test_a_profile_that_the_engine_or_an_admin_has_put_to_use_is_not_deleted(
    southbound, addresses, who, journal
):
    """nmstate finds our profile by its interface-name, and puts the network into it."""
    there = FakeHost(host(netdev("ib0", 2044), profiles=()))
    _apply(there, journal, policy(transport_mode="datagram"))
    uppers = ("bond0",) if southbound == "bond0" else ()
    ours = replace(there.facts.netdevs[0], addresses=addresses, uppers=uppers)
    networks = (network(southbound=southbound),) if southbound else ()
    there.facts = replace(
        there.facts,
        netdevs=(ours, *there.facts.netdevs[1:], netdev("bond0", 2044)),
        ovirt_networks=networks,
    )
    if who is None:
        assert _revert(there, journal).outcome == "done"
        return
    data = journal.data
    with problem("netdevs-in-use") as caught:
        _revert(there, journal)
    (reason,) = caught.value.reasons
    assert reason.startswith("IPOIB-PROFILE-01/ib0 ") and reason.endswith(f" {who}")
    assert journal.data == data
    assert _revert(there, journal, allow_link_down=True).outcome == "done"


def test_a_network_that_was_there_before_keeps_nothing_from_coming_back(journal):
    """The operator's own profile stays, so the network does."""
    there = FakeHost(
        host(netdev("ib0", 2044), profiles=(profile(),), networks=(network(),))
    )
    applied(there, journal, [step(mtu("1500")), MODE_STEP])
    assert _revert(there, journal).outcome == "done"


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_what_was_interrupted_is_left_where_somebody_uses_the_link_by_now(
    verb, there, journal
):
    if verb == "apply":
        there.on_do = lambda act: act.changes[0].target == MODE or cut(act)
        with pytest.raises(Killed):
            applied(there, journal, [MODE_STEP])
    else:
        applied(there, journal, [MODE_STEP])
        there.on_undo = cut
        with pytest.raises(Killed):
            _revert(there, journal)
    there.on_do = there.on_undo = lambda act: None
    data, facts = journal.data, _used(there).facts
    run = journal.ledger().interrupted.number
    with problem("netdevs-in-use", f"run {run} was interrupted", " for nfs: "):
        recover(there, journal, 0, Told(), lambda: facts)
    assert journal.data == data
    assert value(there, TO_CONNECTED) == "connected"
    unused = replace(facts, netdev_uses=())
    assert recover(there, journal, 0, Told(), lambda: unused).run
    assert value(there, TO_CONNECTED) == "datagram"


def test_a_new_port_mtu_takes_all_links_of_the_adapter_down(journal):
    from support.host.ipoib_plans import HARDWARE

    facts = host(netdev("ib0", 2044), profiles=None, **HARDWARE["port-mtu"])
    there = FakeHost(facts)
    change = Change(
        "sysfs", "/sys/bus/pci/devices/0000:04:00.0/mlx4_port1_mtu", "4096", "2048"
    )
    one = step(change, rule="IPOIB-MTU-03", subject="mlx4_0/1", effect=LINK_DOWN)
    assert applied(there, journal, [one]).outcome == "done"
    with problem("netdevs-in-use", "IPOIB-MTU-03/mlx4_0/1 "):
        _revert(_used(there), journal)


@pytest.mark.parametrize("was", [1400, 4092])
def test_an_mtu_comes_back_before_the_port_mtu_that_allows_more(was, journal):
    """The MTU of a netdev that is recreated is at most what its port allows then."""
    from support.host.ipoib_plans import HARDWARE

    there = FakeHost(host(netdev("ib0", was), profiles=None, **HARDWARE["port-mtu"]))
    _apply(there, journal, policy(mtu=1500, port_mtu=2048))
    assert there.facts.netdevs[0].mtu == 1500
    result = _revert(there, journal)
    assert (result.outcome, result.left) == ("done", ())
    assert there.facts.netdevs[0].mtu == 4092  # recreated once more
    assert journal.ledger().applied == ()


def test_an_interrupted_revert_is_finished_with_what_it_was_asked_for(there, journal):
    tso = Change("offload", "ib0", None, "off", "tx-tcp-segmentation")
    applied(there, journal, [step(tso, rule="IPOIB-TSO-02"), MODE_STEP])

    there.on_undo = cut
    with pytest.raises(Killed):
        _revert(there, journal, only="IPOIB-MODE-01/ib0")
    there.on_undo = lambda act: None
    result = recover(_used(there), journal, there.now(), Told())
    assert (result.run, result.outcome) == (2, "done")
    assert result.done == ("IPOIB-MODE-01/ib0",)
    assert value(there, TO_CONNECTED) == "datagram"
    assert value(there, tso) == "off"
