# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.fakes.fake_root import Pci

from ovirt_rdma.host.collect import netdevs
from ovirt_rdma.host.collect.netdevs import read_network_manager, with_rdma_details
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import NetworkManager, Property
from ovirt_rdma.host.system.commands import CommandFailed, CommandTimeout
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor

HCA = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
NIC = Pci("0000:00:03.0", "0x1af4", "0x1041", "virtio_net")


@pytest.fixture
def ib0(host):
    """An HCA with ib0 and its child, eth0, and NetworkManager, which is running."""
    host.rdma_device("mlx4_0", pci=HCA)
    host.rdma_port("mlx4_0")
    host.ipoib("ib0", pci=HCA)
    host.pkey_child("ib0", "0x8001")
    host.netdev("eth0", pci=NIC)
    host.network_manager()
    return host


def read(host, problems=None):
    problems = [] if problems is None else problems
    reader, tools = host.reader(), Tools(host.runner, str(host.path))
    devices = reader.rdma_devices(problems)
    netdevs = with_rdma_details(
        FileTree(host.path), tools, reader.netdevs(problems), devices, problems
    )
    return read_network_manager(tools, netdevs, problems)


def test_not_installed_and_not_running(host, problems):
    assert read(host, problems) is None
    host.network_manager(running=False)
    assert read(host, problems) == NetworkManager(running=False)
    assert problems == []


def test_which_netdevs_it_manages(ib0):
    ib0.nm_device("ib0", "disconnected")
    ib0.nm_device("lo", "connected (externally)")
    ib0.nm_device("eth0", "unmanaged")
    ib0.nm_device("a:b\\c", "unmanaged")
    found = read(ib0)
    assert found.running
    assert found.managed == ("ib0", "lo")
    assert found.unmanaged == ("a:b\\c", "eth0")


def test_profiles_of_infiniband_and_those_active_on_rdma_netdevs(ib0):
    ib0.bond("bond0", ("ib0",))
    ib0.netdev("bond0.7", kind="vlan", lowers=("bond0",))
    ib0.nm_profile("spare", interface_name="ib9")
    file = "/run/NetworkManager/system-connections/memory.nmconnection"
    ib0.nm_profile("memory", file=file)
    ib0.nm_profile("ib0.8001", active_on="ib0.8001")
    ib0.nm_profile("vlan over it", "vlan", active_on="bond0.7")
    ib0.nm_profile("eth0", "802-3-ethernet", active_on="eth0")
    ib0.nm_profile("twice", "802-3-ethernet", active_on="eth0,ib0")
    ib0.nm_profile("idle", "802-3-ethernet")
    profiles = {profile.name: profile for profile in read(ib0).profiles}
    assert list(profiles) == ["ib0.8001", "memory", "spare", "twice", "vlan over it"]
    assert profiles["memory"].file is None
    assert profiles["twice"].active_on == "ib0"
    spare = profiles["spare"]
    assert (spare.type, spare.active_on, spare.interface_name) == (
        "infiniband",
        None,
        "ib9",
    )
    assert spare.file == "/etc/NetworkManager/system-connections/spare.nmconnection"
    assert profiles["ib0.8001"].active_on == "ib0.8001"
    assert profiles["vlan over it"].type == "vlan"


def test_properties_that_have_a_value(ib0):
    ib0.nm_profile(
        "ib0",
        active_on="ib0",
        properties={
            "infiniband.transport-mode": "connected",
            "infiniband.mtu": "65520",
            "ethtool.feature-tso": "off",
            "ethtool.pause-rx": "",
            "ipv4.method": "manual",
            "802-3-ethernet.wake-on-lan-password": "00:11:22:33:44:55",
        },
    )
    (profile,) = read(ib0).profiles
    assert profile.value("infiniband.transport-mode") == "connected"
    assert profile.value("infiniband.mtu") == "65520"
    assert profile.value("ethtool.feature-tso") == "off"
    assert profile.value("infiniband.p-key") == "default"
    names = {one.name for one in profile.properties}
    assert not names & {"ethtool.pause-rx", "infiniband.parent", "ipv4.method"}
    # Neither changes with a setting, and one is a password.
    assert not names & {"connection.timestamp", "connection.read-only"}
    assert not any("password" in name for name in names)


@pytest.mark.parametrize(
    "name", ["a:b", "back\\slash", "uuid", "-t", "é", "a  b", "\\"]
)
def test_profiles_with_odd_names(ib0, name, problems):
    file = f"/etc/sysconfig/network-scripts/ifcfg-{name}"
    ib0.nm_profile(name, file=file, active_on="ib0", interface_name="ib0")
    ib0.nm_profile("zz", interface_name="")
    first, second = sorted(read(ib0, problems).profiles, key=lambda p: p.name == "zz")
    assert (first.name, first.file, first.interface_name) == (name, file, "ib0")
    assert (second.name, second.interface_name) == ("zz", None)
    assert problems == []


@pytest.mark.parametrize(
    "file", ["", "/run/NetworkManager/system-connections/ib0.nmconnection"]
)
def test_a_profile_in_memory_has_no_file(ib0, file):
    ib0.nm_profile("ib0", active_on="ib0", file=file)
    assert read(ib0).profiles[0].file is None


def test_a_name_of_two_lines_hides_no_other_profile(ib0):
    ib0.nm_profile("a\n\nb:c", interface_name="ib7", file="/etc/a")
    ib0.nm_profile("ib0", active_on="ib0")
    profiles = {profile.name: profile for profile in read(ib0).profiles}
    assert profiles["ib0"].value("infiniband.transport-mode") == "datagram"
    assert profiles["a"].interface_name == "ib7"


def answers(host, **failing):
    """Let the named calls of nmcli fail."""
    strict = host.runner.programs["nmcli"]

    def nmcli(argv):
        call = "show" if "show" in argv else argv[4]
        answer = failing.get(call)
        if isinstance(answer, CommandFailed):
            raise answer
        return strict(argv) if answer is None else answer

    host.runner.program("nmcli", nmcli)


def test_what_fails_is_said_and_the_rest_is_complete(ib0, problems):
    ib0.nm_device("ib0")
    ib0.nm_profile("ib0", active_on="ib0")
    gone = CommandFailed("Error: x - no such connection profile.", 10)
    answers(ib0, show=gone)
    found = read(ib0, problems)
    assert (found.running, found.managed) == (None, ("ib0",))
    assert [(p.name, p.active_on, p.properties) for p in found.profiles] == [
        ("ib0", "ib0", ())
    ]
    assert len(problems) == 1
    assert "no such connection profile" in problems[0]

    answers(ib0, device=CommandFailed("Error: timeout.", 3), show=gone)
    found = read(ib0)
    assert (found.running, found.managed) == (None, ())
    assert [profile.name for profile in found.profiles] == ["ib0"]

    answers(ib0, general=CommandTimeout("no answer within 5 s"))
    problems.clear()
    assert read(ib0, problems) == NetworkManager(running=None)
    assert problems == ["nmcli -t -f RUNNING general failed: no answer within 5 s"]


def test_four_calls_show_all_profiles_and_none_asks_for_secrets(ib0):
    for number in range(5):
        ib0.nm_profile(f"ib{number}")
    assert len(read(ib0).profiles) == 5
    calls = [argv for argv in ib0.runner.ran if argv[0] == "nmcli"]
    assert len(calls) == 4
    assert not any("--show-secrets" in argv or "-s" in argv for argv in calls)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("", ("",)),
        ("a", ("a",)),
        ("a:b", ("a", "b")),
        ("a:", ("a", "")),
        (":", ("", "")),
        ("a\\:b:c", ("a:b", "c")),
        ("a\\\\:b", ("a\\", "b")),
        ("a\\", ("a",)),
    ],
)
def test_fields_of_a_line(line, fields):
    assert netdevs.fields(line) == fields


# nmcli 1.42.4, shortened.
REAL = """\
connection.id:ib:0 \\odd
connection.uuid:278c6b64-d34f-4198-ada5-da8b2ef23f06
connection.stable-id:
connection.timestamp:0
infiniband.mac-address:
infiniband.mtu:2044
infiniband.p-key:default

connection.id:veth0
connection.uuid:3d0ea609-461d-4ce3-a03d-1a3d8348c4b7
802-3-ethernet.mtu:auto
ethtool.feature-tso:off
ethtool.pause-rx:
"""


def test_a_real_answer_of_nmcli():
    found = netdevs.profiles(REAL)
    assert found["278c6b64-d34f-4198-ada5-da8b2ef23f06"] == (
        Property("connection.id", "ib:0 \\odd"),
        Property("connection.uuid", "278c6b64-d34f-4198-ada5-da8b2ef23f06"),
        Property("infiniband.mtu", "2044"),
        Property("infiniband.p-key", "default"),
    )
    assert (
        Property("ethtool.feature-tso", "off")
        in found["3d0ea609-461d-4ce3-a03d-1a3d8348c4b7"]
    )


def test_without_the_list_of_profiles_it_is_unknown_what_it_does(ib0):
    ib0.nm_device("ib0")
    answers(ib0, connection=CommandFailed("Error: timeout.", 3))
    assert read(ib0) == NetworkManager(None, managed=("ib0",))


@pytest.mark.parametrize("text", ["", "\n", "a:b:c", "running:1\n"])
def test_an_nmcli_that_tells_no_state(ib0, text, problems):
    answers(ib0, general=text)
    assert read(ib0, problems) == NetworkManager(running=None)
    assert problems == [f"nmcli does not print NetworkManager's state: {text!a}"]


@pytest.mark.parametrize("text", ["", "Warning: the versions don't match.\n"])
def test_a_profile_that_nmcli_lists_and_does_not_show_is_unknown(ib0, text, problems):
    """Its mode would count as not set, and that of the netdev as what is wanted."""
    uuid = ib0.nm_profile("ib0", active_on="ib0")
    answers(ib0, show=text)
    assert read(ib0, problems).running is None
    assert problems == [f"nmcli does not show the profile {uuid}"]
