# SPDX-License-Identifier: GPL-2.0-or-later
"""Test VDSM's hooks with real netdevs, systemd and udev: refusals, and hanging hooks.

test_smoke_lab.py has a complete network setup.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hooked_host import BOUNDED, TSO, HookedHost, asking, hooked_host
from support.host.hook_host import network, setup

from lab import installed_host

# Boots and waits too long for make check.
pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def booted() -> Iterator[HookedHost]:
    with hooked_host() as host:
        yield host


@pytest.fixture(scope="module")
def host(booted: HookedHost) -> HookedHost:
    """Enabled."""
    booted.must("enable", "--mode", "vdsmd")
    return booted


def bond(mode: str, **more: Any) -> dict[str, Any]:
    bonds = {"bond1": {"nics": ["ib0", "ib1"], "options": f"mode={mode} miimon=100"}}
    return setup({"storage": network(bonding="bond1", **more)}, bonds)


# Before it is enabled.
def test_without_the_marker_nothing_happens(booted: HookedHost) -> None:
    request = setup({"storage": network("ib0", bridged=True)})
    assert booted.ask(request) == [None]
    booted.call("after_network_setup", request)
    booted.call("before_vdsm_start")
    caps = {"additionalFeatures": []}
    assert booted.call("after_get_caps", caps, uid=36).data == caps
    assert booted.tso() == TSO
    assert booted.is_untouched()
    assert booted.guest.run("test -e /run/ovirt-rdma/caps.json").exit_code == 1


REFUSED = (
    (setup({"vms": network("ib0", bridged=True)}), "InfiniBand"),
    (setup({"vms": network("ib0", vlan=7)}), "VLAN"),
    (bond("0"), "active-backup"),
    (setup({"storage": network("ib0", mtu=9000)}), "MTU 9000"),
    # More than the port supports, which only the kernel knows.
    (setup({"storage": network("ib1", mtu=4096)}), "MTU 4096"),
    (asking("fast"), "ipoib_mode"),
)


def test_what_infiniband_cannot_do_is_refused(host: HookedHost) -> None:
    refusals = host.ask(*(request for request, _ in REFUSED))
    for refused, (_, why) in zip(refusals, REFUSED, strict=True):
        assert refused is not None, why
        assert why in refused
    # But never a rollback; restore-nets at boot is marked as one too.
    rollback = {"connectivityCheck": False, "_inRollback": True}
    again = [
        {"request": {**request["request"], "options": rollback}}
        for request, _ in REFUSED
    ]
    assert host.ask(*again) == [None] * len(again)
    assert host.is_untouched()


def test_what_it_can_goes_on(host: HookedHost) -> None:
    requests = (
        setup({"storage": network("ib0", mtu=2044)}),
        setup({"storage": network("ib0", mtu=4092)}),
        bond("1", mtu=2044),
        setup({"storage": {"remove": True}}),
        setup({"vms": network("eth0", bridged=True, vlan=7)}),
    )
    assert host.ask(*requests) == [None] * len(requests)
    assert host.is_untouched()


def test_before_vdsm_starts_all_that_nobody_notices_is_done(host: HookedHost) -> None:
    host.call("before_vdsm_start")
    assert host.tso() == dict.fromkeys(TSO, "tx-tcp-segmentation: off")
    assert host.mode() == "datagram"
    host.has_logged(
        "before_vdsm_start: IPOIB-TSO-01/ib1: on -> off",
        "before_vdsm_start: left: ",
    )


def test_revert_has_it_all(host: HookedHost) -> None:
    host.must("revert")
    assert (host.tso(), host.mode(), host.held()) == (TSO, "datagram", [])


def test_the_engine_is_told_what_the_unit_wrote(host: HookedHost) -> None:
    """``enable`` has started the daemon."""
    host.wait_until("[ -e /run/ovirt-rdma/caps.json ]")
    assert host.said("stat -c '%a %U' /run/ovirt-rdma/caps.json") == "644 root"
    caps = {"additionalFeatures": ["GLUSTER_SNAPSHOT"], "cpuCores": "4"}
    called = host.call("after_get_caps", caps, uid=36)
    assert called.data == {
        "additionalFeatures": ["GLUSTER_SNAPSHOT", "NFS_RDMA"],
        "cpuCores": "4",
    }
    host.said("rm /run/ovirt-rdma/caps.json; systemctl reload ovirt-rdmad.service")
    host.wait_until("[ -e /run/ovirt-rdma/caps.json ]")


def test_ansible_gets_what_each_netdev_is(host: HookedHost) -> None:
    host.said("ip link add link ib0 name backup type ipoib pkey 0x8064")
    host.said("modprobe bonding; ip link add bond7 type bond")
    program = "/etc/ansible/facts.d/ovirt_rdma.fact"
    # It waits for 10 s, which may be too short in a guest on a busy machine.
    printed = f"runuser -u nobody -- {program} > /run/printed"
    host.wait_until(f"{{ {printed}; grep -q interfaces /run/printed; }}", 120)
    found = json.loads(host.said("cat /run/printed"))["interfaces"]
    here = json.loads(host.said("ovirt-rdma-host facts --interfaces -o json"))
    assert found == here["interfaces"]
    by_name = {one["name"]: one for one in found}
    child, bond = by_name["backup"], by_name["bond7"]
    assert (child["parent"], child["pkey"], child["pkey_vlan"]) == (
        "ib0",
        "0x8064",
        100,
    )
    assert (child["device"], child["port"]) == ("mlx4_0", 1)
    assert (bond["driver"], bond["roles"]) == ("bond", ["bond"])
    assert by_name["ib0"]["link_layer"] == "InfiniBand"
    host.said("ip link delete backup; ip link delete bond7")
    host.must("disable")
    assert json.loads(host.said(program)) == {}
    host.must("enable", "--mode", "vdsmd")


def test_a_worker_that_the_kernel_holds_costs_its_time_only(host: HookedHost) -> None:
    """No signal ends the creation of a file on a frozen file system."""
    host.said(FROZEN)
    host.limit(BOUNDED)
    try:
        called = host.call("after_network_setup", setup({"s": network("ib0")}))
        # It is still frozen: VDSM has continued without it.
        assert called.seconds >= BOUNDED
        host.has_logged(f"no answer within {BOUNDED:g} s: stopped, VDSM continues")
        # It still hangs in the kernel, but without VDSM's pipes.
        states = host.guest.run("ps -o stat= -C 50_ovirt_rdma; ps -eo stat,comm")
        assert states.stdout.startswith("D"), states
    finally:
        host.said("fsfreeze -u /run/ovirt-rdma")
    host.wait_until("! pgrep -x 50_ovirt_rdma")
    host.said("umount /run/ovirt-rdma")
    assert host.tso() == TSO


FROZEN = """
set -e
modprobe loop
truncate -s 16M /run/frozen.img
mkfs.ext4 -q /run/frozen.img
mkdir /run/frozen
mount -o loop /run/frozen.img /run/frozen
cp -a /run/ovirt-rdma/. /run/frozen
rm /run/frozen/lock
mount --bind /run/frozen /run/ovirt-rdma
umount /run/frozen
fsfreeze -f /run/ovirt-rdma
"""
TOOL_THAT_HANGS = """\
#!/bin/sh
# A child that is out of reach of whoever started this, with all files of this.
setsid sleep 321 &
trap '' TERM
touch /run/tool-ran
sleep 321
"""


def test_a_tool_that_hangs_and_its_child(host: HookedHost) -> None:
    """It costs its timeout; the mode does not depend on what ethtool says."""
    host.limit(BOUNDED)
    host.said("mv /usr/sbin/ethtool /usr/sbin/ethtool.away")
    install = "install -m 755 /dev/stdin /usr/sbin/ethtool"
    host.guest.run(install, input=TOOL_THAT_HANGS, check=True)
    try:
        called = host.call("before_network_setup", asking("connected"))
        # The tool hangs for 321 s.
        assert called.seconds < 300
        assert called.refused is None
        host.wait_until("! pgrep -x 50_ovirt_rdma")
        host.said("test -e /run/tool-ran; pgrep -x sleep")
    finally:
        host.said("mv /usr/sbin/ethtool.away /usr/sbin/ethtool; pkill -x sleep; true")
    assert host.mode() == "connected"


def test_standard_files_that_are_closed(host: HookedHost) -> None:
    request = setup({"vms": network("ib0", bridged=True)})
    host.guest.run("cat > /run/hook.json", input=json.dumps(request), check=True)
    hook = f"{installed_host.HOOKS}/before_network_setup/50_ovirt_rdma"
    for closed in (">&-", "<&- >&- 2>&-"):
        line = f"_hook_json=/run/hook.json {hook} {closed}"
        assert host.guest.run(line).exit_code == 2
    assert json.loads(host.said("cat /run/hook.json")) == request
