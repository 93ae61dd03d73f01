# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that a changed profile is activated if the step may take the link down, so that
NetworkManager refuses no later Reapply.
"""

from dataclasses import replace

import pytest

from ovirt_rdma.host.changes.journal import DONE
from ovirt_rdma.host.changes.kinds.kind import AtomicChange, EffectFailed
from ovirt_rdma.host.changes.kinds.registry import HostEffects
from ovirt_rdma.host.changes.run import interrupted_users
from ovirt_rdma.host.changes.undo import UndoChange
from ovirt_rdma.host.facts.devices import NetworkManager
from ovirt_rdma.host.rules.base import LINK_DOWN, LIVE, PROFILE, Change, Step
from ovirt_rdma.host.rules.ipoib import needs_activation
from ovirt_rdma.host.services.hook_runs import HookRun

pytestmark = pytest.mark.hypervisor

MODE = "infiniband.transport-mode"
TSO = "ethtool.feature-tso"
NAME = "connection.interface-name"
MTU = "infiniband.mtu"
# The property that is set, its values, and the state of ib0 then: mode, MTU and TSO.
ACTS = [
    (MODE, "datagram", "connected", ("connected", "65520", "off [requested on]")),
    (TSO, None, "off", ("datagram", "2044", "off")),
]


@pytest.fixture
def host(host):
    host.network_manager()
    host.write("/sys/class/net/ib0/carrier", "1")
    host.uuid = host.nm_profile("ib0")
    host.activate(host.uuid)
    host.activated.clear()
    return host


def act(host, name, before, after, effect=LINK_DOWN):
    change = Change(PROFILE, host.uuid, before, after, name)
    return AtomicChange("S/x", effect, (change,))


@pytest.mark.parametrize(("name", "before", "after", "becomes"), ACTS)
def test_it_is_in_force_there_and_back(host, name, before, after, becomes):
    found = host.state("ib0")
    one = act(host, name, before, after)
    host.effects().do(one)
    assert (host.refused(), host.activated) == ({}, ["ib0"])
    assert host.state("ib0") == becomes
    host.effects().undo(one)
    assert (host.refused(), host.activated) == ({}, ["ib0", "ib0"])
    if name == TSO:
        assert host.profile("ib0").get(TSO) is None
    else:
        assert host.profile("ib0")[MODE] == before
        host.set_mode("ib0", before)  # the step's own change in sysfs
        host.set_mtu("ib0", int(found[1]))
    for _ in range(2):
        host.effects().undo(one)
    assert len(host.activated) == 2


def test_a_name(host):
    host._nm_profiles[host.uuid].properties[NAME] = ""
    host._nm_applied[host.uuid][NAME] = ""
    host.effects().do(act(host, NAME, None, "ib0"))
    assert (host.refused(), host.activated) == ({}, ["ib0"])


def test_what_a_reapply_takes_costs_no_activation(host):
    for effect in (LIVE, LINK_DOWN):
        one = act(host, MTU, None, "2000", effect)
        host.effects().do(one)
        host.effects().undo(one)
    assert (host.refused(), host.activated) == ({}, [])


def test_nor_does_an_ethernet_netdevs():
    for name, needs in (("802-3-ethernet.mtu", False), (TSO, True)):
        change = Change(PROFILE, "1234-abcd", None, "9000", name)
        assert needs_activation(change) is needs


@pytest.mark.parametrize("why", ["on several netdevs", "not active", "live"])
def test_what_is_not_activated(host, why):
    """NetworkManager may activate a profile of several netdevs on another one, whose
    users are not known. One of a live step has become active since the plan was made.
    """
    if why == "on several netdevs":
        host._nm_profiles[host.uuid].row["DEVICE"] = "ib0,ib1"
    if why == "not active":
        host._forget("ib0")
    effect = LIVE if why == "live" else LINK_DOWN
    host.effects().do(act(host, MODE, "datagram", "connected", effect))
    assert host.activated == []


def test_before_vdsms_own_setup_nothing_is_activated(host):
    hook = HostEffects(host.path, host.run, host.sleep, activates=False)
    one = act(host, MODE, "datagram", "connected")
    hook.do(one)
    assert (list(host.refused()), host.activated) == (["ib0"], [])
    hook.undo(one)
    assert (host.refused(), host.activated) == ({}, [])


def test_a_hook_is_such_a_host_by_itself(host):
    change = Change(PROFILE, host.uuid, "datagram", "connected", MODE)
    step = Step(
        *("IPOIB-MODE-01", "ib0", "", "datagram", "connected"),
        *(LINK_DOWN, "", ""),
        changes=(change,),
    )
    hook = HookRun(host.path, "before_network_setup", lambda _: None, host.run)
    assert hook.apply([step], host.reader().facts()).outcome == DONE
    assert (list(host.refused()), host.activated) == (["ib0"], [])


def test_taken_back_before_any_activation_a_reapply_will_do(host):
    """A live step set it in the profile, which was not activated since."""
    one = act(host, TSO, None, "off", LIVE)
    host.effects().do(one)
    assert list(host.refused()) == ["ib0"]
    host.effects().undo(one)
    assert (host.refused(), host.activated) == ({}, [])


@pytest.mark.parametrize("name", [TSO, NAME])
def test_what_somebody_set_by_hand_stays(host, name):
    """NetworkManager sets all properties of the profile."""
    properties = host._nm_profiles[host.uuid].properties
    properties.update({MTU: "2000", NAME: "ib0"})
    host.activate(host.uuid)
    host.set_mode("ib0", "connected")
    host.set_mtu("ib0", 9000)
    before, after = (None, "off") if name == TSO else ("ib0", "ib0")
    one = act(host, name, before, after)
    properties[NAME] = "ib0"
    if name == NAME:
        host._nm_applied[host.uuid][NAME] = ""
    host.effects().do(one)
    assert host.activated[-1:] == ["ib0"]
    assert host.state("ib0")[:2] == ("connected", "9000")
    if name == TSO:
        host.effects().undo(one)
        assert host.state("ib0")[:2] == ("connected", "9000")


def test_who_uses_the_netdev_is_named_before_its_profile_is_taken_back(host):
    """The profile was not active when it was changed, so that was live. Only
    NetworkManager knows the netdev.
    """
    host.nfs_mount("10.0.0.1:/vm", "/rhev/data-center/mnt/10.0.0.1:_vm", "rdma")
    one = act(host, TSO, None, "off", LIVE)
    group = [UndoChange(None, one)]
    ((step, users),) = interrupted_users([group], host.reader().facts())
    assert step == one.step
    assert any("10.0.0.1:/vm" in user for user in users)
    # Where it is active is unknown, if nmcli does not answer then.
    facts = replace(host.reader().facts(), network_manager=NetworkManager(None))
    ((_, users),) = interrupted_users([group], facts)
    assert users == ("unknown: nmcli failed: where the profile is active is unknown",)
    host._forget("ib0")
    assert list(interrupted_users([group], host.reader().facts())) == []


def test_a_profile_that_cannot_be_activated_is_said(host):
    host.fail("nmcli --wait 50 connection up", 4, "Error: activation failed: x.")
    with pytest.raises(EffectFailed) as failed:
        host.effects().do(act(host, MODE, "datagram", "connected"))
    assert failed.value.id == "network-manager-refused"
    assert host.uuid in str(failed.value)
    assert str(failed.value).endswith(": Error: activation failed: x")


def test_what_somebody_set_by_hand_stays_also_if_the_activation_fails(host):
    """NetworkManager has set the profile's mode and MTU by then. The rollback connects
    the netdev again: that is how it was.
    """
    host._nm_profiles[host.uuid].properties[MTU] = "2000"
    host.activate(host.uuid)
    host.set_mode("ib0", "connected")
    host.set_mtu("ib0", 9000)
    found, effects = host.state("ib0"), host.effects()
    one = act(host, TSO, None, "off")
    host.dhcp_fails = 1
    with pytest.raises(EffectFailed):
        effects.do(one)
    assert host.state("ib0") == found
    assert host._nm_devices["ib0"] == "disconnected"
    effects.undo(one)
    assert (host.state("ib0"), host.refused()) == (found, {})
    assert host._nm_devices["ib0"] == "connected"
    # What somebody disconnects later stays so.
    host._forget("ib0")
    effects.undo(one)
    assert host.profile("ib0").get(TSO) is None
    assert host.activated[-2:] == ["ib0", "ib0"]
