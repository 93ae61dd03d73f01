# SPDX-License-Identifier: GPL-2.0-or-later
"""ROCE-MTU-01, ROCE-GID-01, ROCE-PFC-01 and ROCE-ECN-01."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.golden.golden_hosts import DATA
from support.host.rule_cases import (
    above,
    ethernet,
    facts,
    findings,
    gid,
    host_policy,
    ib_device,
    interface_rule,
    outcomes,
    roce_device,
    steps,
)

from ovirt_rdma.host.facts.devices import (
    Bond,
    Dcb,
    NetdevUse,
    NetworkManager,
    Offload,
    OvirtNetwork,
    PriorityOf,
    Profile,
    Property,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import Route, load
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy, RoceClass
from ovirt_rdma.host.rules import roce
from ovirt_rdma.host.rules.base import Finding
from ovirt_rdma.host.rules.ipoib_rules import TSO_ROCE

STORAGE = {"addresses": ("10.0.0.2/24", "fe80::1/64")}
ALL_RULES = (
    roce.MTU,
    roce.GIDS,
    roce.PFC,
    roce.ECN,
)


IB_MTUS = {68: None, 351: None, 352: 256, 1500: 1024, 2143: 1024, 2144: 2048}
IB_MTUS |= {4191: 2048, 4192: 4096, 4200: 4096, 9000: 4096}


@pytest.mark.parametrize(("mtu", "expected"), IB_MTUS.items())
def test_ib_mtu_of_an_ethernet_mtu(mtu, expected):
    """include/rdma/ib_addr.h; 1500 and 4200 were seen on rxe."""
    assert roce.ib_mtu(mtu) == expected


@pytest.mark.parametrize("rule", ALL_RULES)
def test_no_roce(rule):
    iwarp = RdmaDevice(
        "irdma0", "RNIC", "0", ports=(RdmaPort(1, "ACTIVE", "LinkUp", "Ethernet"),)
    )
    assert findings(rule, facts())["host"][1].startswith("this host has no RDMA device")
    for device in (ib_device(), iwarp):
        host = facts(rdma_devices=(device,))
        assert findings(rule, host)["host"][1].startswith("this host has no RoCE port")


def _host(*netdevs, device=None, **more):
    return facts(rdma_devices=(device or roce_device(),), netdevs=netdevs, **more)


ON_VLAN = ethernet(uppers=("ens1.7",)), above("ens1.7", "ens1", 1500, **STORAGE)
# The port below the bridge is the limit.
ON_BRIDGE = ethernet(mtu=1500, uppers=("br",)), above("br", "ens1", 9000, **STORAGE)


OF_2048 = roce_device(max_mtu=2048)
BY_ENGINE = {"ovirt_networks": (OvirtNetwork("storage", "ens1", mtu=1500),)}
SOFT = roce_device(driver="rdma_rxe")


@pytest.mark.parametrize(
    ("host", "subject", "verdict", "words"),
    [
        (_host(ethernet(mtu=9000, **STORAGE)), "ens1", "PASS", "IB MTU of 4096"),
        (_host(ethernet(mtu=4200)), "ens1", "PASS", "IB MTU of 4096"),
        (_host(ethernet(mtu=1500, **STORAGE)), "ens1", "WARN", "IB MTU of 1024"),
        (_host(ethernet(mtu=300)), "ens1", "WARN", "which allows no IB MTU"),
        (_host(*ON_VLAN), "ens1.7", "WARN", "ens1.7 has MTU 1500"),
        (_host(*ON_BRIDGE), "br", "WARN", "ens1 has MTU 1500"),
        (
            _host(ethernet(mtu=1500, **STORAGE), **BY_ENGINE),
            "ens1",
            "WARN",
            "logical network storage",
        ),
        (_host(ethernet(mtu=2200), device=OF_2048), "ens1", "PASS", ""),
        (_host(ethernet(mtu=1500), device=OF_2048), "ens1", "WARN", "2144 or more"),
        (_host(ethernet(mtu=1500), device=SOFT), "ens1", "PASS", ""),
    ],
)
def test_mtu(judged, host, subject, verdict, words):
    assert list(findings(roce.MTU, host)) == [subject]
    judged(roce.MTU, host, None, subject, verdict, words)


def _profile(**properties):
    return NetworkManager(
        True,
        profiles=(
            Profile(
                "ens1",
                "1234-abcd",
                "802-3-ethernet",
                "ens1",
                "ens1",
                "/etc/NetworkManager/system-connections/ens1.nmconnection",
                tuple(Property(n.replace("__", "."), v) for n, v in properties.items()),
            ),
        ),
    )


JUMBO = host_policy(interfaces=(interface_rule(link_layer="ethernet", mtu=9000),))


def _policy_step(netdev, **more):
    more.setdefault("network_manager", _profile())
    return steps(roce.MTU, _host(netdev, **more), JUMBO)


POLICYS = "ens1 has MTU 1500, the policy requires"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (9000, [f"{POLICYS} 9000"]),
        (
            2200,
            [
                "ens1 has MTU 1500, which allows an IB MTU of 1024; the port supports "
                "4096",
                f"{POLICYS} 2200",
            ],
        ),
    ],
)
def test_too_small_an_mtu_is_said_once(wanted, words):
    host = _host(ethernet(mtu=1500), network_manager=_profile())
    rule = interface_rule(link_layer="ethernet", mtu=wanted)
    found = outcomes(roce.MTU, host, host_policy(interfaces=(rule,)))
    assert [f.sentence for f in found if isinstance(f, Finding)] == words


def test_policy_sets_the_mtu_in_the_profile():
    use = NetdevUse("ens1", "nfs", "10.0.0.1:/data at /mnt")
    step = _policy_step(ethernet(mtu=1500), netdev_uses=(use,))["ens1"]
    kept, live = step.changes
    assert (kept.kind, kept.target, kept.name) == (
        "profile",
        "1234-abcd",
        "802-3-ethernet.mtu",
    )
    assert (kept.before, kept.after) == (None, "9000")
    # Nothing else would change the netdev before the profile's next activation.
    assert (live.kind, live.target) == ("sysfs", "/sys/class/net/ens1/mtu")
    assert (live.before, live.after) == ("1500", "9000")
    assert step.effect == "link-down"
    assert step.users == ("nfs: 10.0.0.1:/data at /mnt",)


def test_earlier_value_of_the_profile_is_kept():
    manager = _profile(**{"802-3-ethernet__mtu": "1500"})
    step = _policy_step(ethernet(mtu=1500), network_manager=manager)["ens1"]
    assert step.changes[0].before == "1500"


def test_mtu_as_wanted_gives_no_step():
    manager = _profile(**{"802-3-ethernet__mtu": "9000"})
    assert _policy_step(ethernet(mtu=9000), network_manager=manager) == {}
    assert _policy_step(ethernet(mtu=9000), network_manager=None) == {}


def test_mtu_that_no_profile_keeps_is_kept_without_touching_the_link():
    use = NetdevUse("ens1", "nfs", "10.0.0.1:/data at /mnt")
    step = _policy_step(ethernet(mtu=9000), netdev_uses=(use,))["ens1"]
    assert [change.name for change in step.changes] == ["802-3-ethernet.mtu"]
    assert (step.effect, step.users) == ("live", ())
    host = _host(ethernet(mtu=9000), network_manager=_profile())
    found = [f for f in outcomes(roce.MTU, host, JUMBO) if isinstance(f, Finding)]
    assert [(f.verdict, f.sentence) for f in found[1:]] == [
        ("WARN", "ens1 has the policy's MTU 9000, but its profile does not")
    ]


def test_mtu_is_not_lowered_below_that_of_a_vlan():
    """vlan_device_event lowers the VLAN too, and a revert would not raise it."""
    rule = interface_rule(link_layer="ethernet", mtu=4200)
    host = _host(
        ethernet(mtu=9000, uppers=("ens1.7",)),
        above("ens1.7", "ens1", 9000, driver="vlan"),
        network_manager=_profile(),
    )
    step = steps(roce.MTU, host, host_policy(interfaces=(rule,)))["ens1"]
    assert step.refused.startswith("ens1.7 above it has MTU 9000")
    assert step.changes == ()


def test_mtu_of_a_logical_network_is_a_finding():
    networks = (OvirtNetwork("storage", "ens1", mtu=1500),)
    assert _policy_step(ethernet(mtu=1500), ovirt_networks=networks) == {}
    host = _host(ethernet(mtu=1500), ovirt_networks=networks)
    said = f"{POLICYS} 9000; the engine's network storage sets it"
    assert [one.sentence for one in outcomes(roce.MTU, host, JUMBO)] == [said]


def test_auto_leaves_the_ethernet_mtu():
    rule = interface_rule(link_layer="ethernet", mtu="auto")
    host = _host(ethernet(mtu=1500), network_manager=_profile())
    said = outcomes(roce.MTU, host, host_policy(interfaces=(rule,)))
    assert [one.verdict for one in said] == ["WARN", "SKIP"]
    assert "auto does not change the MTU 1500 of ens1" in said[1].sentence


IN_MEMORY = Profile("ens1", "u", "802-3-ethernet", "ens1")
MEMORY = "the profile of ens1 is in NetworkManager's memory only"


@pytest.mark.parametrize(
    ("manager", "words"),
    [
        (None, "NetworkManager is not running"),
        (NetworkManager(False), "NetworkManager is not running"),
        (NetworkManager(True), "no NetworkManager profile is active on ens1"),
        (NetworkManager(True, profiles=(IN_MEMORY,)), MEMORY),
        (
            replace(_profile(), running=None),
            "nmcli failed: what NetworkManager does is unknown",
        ),
    ],
)
def test_mtu_without_a_profile_is_refused(manager, words):
    step = _policy_step(ethernet(mtu=1500), network_manager=manager)["ens1"]
    assert step.refused.startswith(words)
    assert step.changes == ()


@pytest.mark.parametrize(
    ("manager", "verdict"),
    [
        (_profile(), "WARN"),
        (_profile(**{"802-3-ethernet__mtu": "9000"}), "PASS"),
        (NetworkManager(None), "SKIP"),
    ],
)
def test_mtu_that_the_profile_may_not_have(manager, verdict):
    host = _host(ethernet(mtu=9000), network_manager=manager)
    said = [o for o in outcomes(roce.MTU, host, JUMBO) if isinstance(o, Finding)]
    assert [one.verdict for one in said] == ["PASS", verdict]


def test_mtu_of_a_port_of_a_bond_is_refused():
    host = _host(
        ethernet(mtu=1500, uppers=("bond0",)),
        above("bond0", "ens1", 1500, driver="bond"),
        network_manager=_profile(),
    )
    refused = steps(roce.MTU, host, JUMBO)["ens1"].refused
    assert refused == "bond0 sets the MTU of its ports: set it there"


def test_profile_that_says_so_already_is_not_set_again():
    manager = _profile(**{"802-3-ethernet__mtu": "9000"})
    step = _policy_step(ethernet(mtu=1500), network_manager=manager)["ens1"]
    (live,) = step.changes
    assert (live.kind, live.before, live.after) == ("sysfs", "1500", "9000")
    assert step.effect == "link-down"


# ROCE-TSO-01

TSO4, TSO6 = "tx-tcp-segmentation", "tx-tcp6-segmentation"
BOTH_ON = (Offload(TSO4, True), Offload(TSO6, True))
BOTH_OFF = (Offload(TSO4, False), Offload(TSO6, False))


def _tso(value):
    rule = interface_rule(link_layer="ethernet", tso=value)
    return host_policy(interfaces=(rule,))


PLAIN, KEPT_OFF = _profile(), _profile(**{"ethtool__feature-tso": "off"})


@pytest.mark.parametrize(
    ("offloads", "manager", "wanted", "verdict", "changed"),
    [
        (BOTH_ON, PLAIN, "off", "FAIL", (TSO4, TSO6)),
        (BOTH_OFF, PLAIN, "on", "FAIL", (TSO4, TSO6)),
        (BOTH_OFF, PLAIN, "off", "PASS", None),
        (BOTH_ON, PLAIN, "auto", "PASS", None),
        (BOTH_OFF, PLAIN, "auto", "PASS", None),
        ((Offload(TSO4, True, fixed=True),), PLAIN, "off", "FAIL", ()),
        ((Offload(TSO4, False, fixed=True),), PLAIN, "on", "FAIL", ()),
        ((), PLAIN, "off", "SKIP", None),
        (BOTH_OFF, KEPT_OFF, "off", "PASS", None),
        (BOTH_ON, None, "off", "FAIL", (TSO4, TSO6)),
        (BOTH_OFF, None, "off", "PASS", None),
    ],
)
def test_tso_of_the_policy(offloads, manager, wanted, verdict, changed):
    host = _host(ethernet(offloads=offloads), network_manager=manager)
    policy = _tso(wanted)
    assert findings(TSO_ROCE, host, policy)["ens1"][0] == verdict
    found = steps(TSO_ROCE, host, policy)
    if changed is None:
        assert found == {}
        return
    step = found["ens1"]
    assert tuple(change.name for change in step.changes) == changed
    assert {change.after for change in step.changes} <= {wanted}
    assert bool(step.refused) != bool(changed)
    assert step.effect == "live"


@pytest.mark.parametrize(("now", "more"), [(BOTH_ON, (TSO4, TSO6)), (BOTH_OFF, ())])
def test_tso_that_the_profile_would_turn_on_again(now, more):
    """Its next activation would; and a Reapply is refused until there is one."""
    manager = _profile(**{"ethtool__feature-tso": "on"})
    use = NetdevUse("ens1", "nfs", "10.0.0.1:/data at /mnt")
    netdev = ethernet(offloads=now)
    host = _host(netdev, network_manager=manager, netdev_uses=(use,))
    assert findings(TSO_ROCE, host, _tso("off"))["ens1"][0] == "FAIL"
    step = steps(TSO_ROCE, host, _tso("off"))["ens1"]
    changed = tuple(change.name for change in step.changes)
    assert changed == ("ethtool.feature-tso", *more)
    assert step.effect == "link-down"
    assert step.users == ("nfs: 10.0.0.1:/data at /mnt",)


def test_tso_of_which_the_driver_keeps_a_part_is_left():
    """Else the step would be done, be planned again, and the run be rolled back."""
    facts = _host(ethernet(offloads=(BOTH_ON[0], Offload(TSO6, True, fixed=True))))
    refused = "the driver does not support turning tx-tcp6-segmentation off ([fixed])"
    assert findings(TSO_ROCE, facts, _tso("off"))["ens1"] == (
        "FAIL",
        f"TSO of ens1 is on, and the policy's off is not possible: {refused} | "
        "set tso: auto for it in the policy",
    )
    step = steps(TSO_ROCE, facts, _tso("off"))["ens1"]
    assert (step.changes, step.refused) == ((), refused)


def test_tso_that_the_policy_does_not_name():
    host = _host(ethernet(offloads=BOTH_ON))
    assert findings(TSO_ROCE, host)["host"][0] == "SKIP"
    assert findings(TSO_ROCE, facts())["host"][0] == "SKIP"


# ROCE-GID-01


GID = gid("10.0.0.2", "ens1")
GID_1 = gid("10.0.0.2", "ens1", "IB/RoCE v1")
BY_V1 = {"gids": (GID_1, replace(GID, index=1)), "default_gid_type": "IB/RoCE v1"}
BY_V2 = {"gids": (GID,), "default_gid_type": "RoCE v2"}
OTHER = {"gids": (gid("10.9.9.9", "ens1"),)}
CONFIGFS = "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode"


@pytest.mark.parametrize(
    ("port", "subject", "verdict", "words"),
    [
        ({"gids": (GID,)}, "mlx5_0/1", "PASS", "RoCE v2"),
        ({"gids": (GID_1,)}, "mlx5_0/1", "WARN", "RoCE v1 only"),
        (BY_V1, "mlx5_0/1", "WARN", CONFIGFS),
        (BY_V2, "mlx5_0/1", "PASS", "RDMA CM uses RoCE v2"),
        ({"gids": ()}, "mlx5_0/1", "SKIP", "no GID"),
        (OTHER, "ens1", "WARN", "10.0.0.2 of ens1 is not in the GID table of mlx5_0/1"),
    ],
)
def test_gid(judged, port, subject, verdict, words):
    host = _host(ethernet(**STORAGE), device=roce_device(**port))
    judged(roce.GIDS, host, None, subject, verdict, words)


def test_gid_of_an_address_above_the_port():
    netdevs = (
        ethernet(uppers=("bond0",)),
        above("bond0", "ens1", uppers=("br",)),
        above("br", "bond0", addresses=("10.0.0.2/24", "fd00::2/64")),
    )
    gids = (
        gid("10.0.0.2", "br"),
        replace(gid("10.0.0.2", "br"), gid="fd00:0000:0000:0000:0000:0000:0000:0002"),
    )
    host = _host(*netdevs, device=roce_device(gids=gids))
    assert findings(roce.GIDS, host) == {
        "mlx5_0/1": ("PASS", "mlx5_0/1 supports RoCE v2 | ")
    }
    host = _host(*netdevs, device=roce_device(gids=gids[:1]))
    assert "fd00::2 of br" in findings(roce.GIDS, host)["br"][1]


@pytest.mark.parametrize("name", ["of-two", "of-two-failed-over"])
def test_gid_of_a_bond_is_at_its_active_member_only(name):
    """Real facts, which tests/lab/test_roce_uppers_lab.py writes."""
    host = load(DATA.parent / f"facts/roce-bond-{name}.json")
    found = findings(roce.GIDS, host)
    assert {verdict for verdict, _ in found.values()} == {"PASS"}
    # The active one must have it.
    devices = tuple(
        replace(device, ports=(replace(port, gids=port.gids[:1]),))
        for device in host.rdma_devices
        for port in device.ports
    )
    found = findings(roce.GIDS, replace(host, rdma_devices=devices))
    active = {"of-two": "rxe1/1", "of-two-failed-over": "rxe2/1"}[name]
    lost = f"10.98.0.2 of bond7 is not in the GID table of {active}"
    assert found["bond7"][1].startswith(lost)


# ROCE-PFC-01, ROCE-ECN-01

KERNELS = "connections of the kernel (NFS, iSER, SRP)"
UNKNOWN = f"ens1 has PFC for priority 3; the priority of {KERNELS} is unknown |"
BY_TAG = "because a VLAN's tag decides"
UNPROTECTED = "flow control does not protect them"


@pytest.mark.parametrize(
    ("rule", "dcb", "verdict", "words"),
    [
        (roce.PFC, None, "SKIP", "is unknown"),
        (roce.PFC, Dcb(ecn_priorities=(3,)), "SKIP", "dcb pfc show dev ens1"),
        (roce.PFC, Dcb(()), "WARN", "no flow control"),
        (roce.PFC, Dcb((), pause_rx=True, pause_tx=True), "PASS", "global pause"),
        (roce.PFC, Dcb(pause_rx=True, pause_tx=True), "PASS", "global pause"),
        (roce.PFC, Dcb((3,), trust="dscp"), "SKIP", UNKNOWN),
        (roce.PFC, Dcb((3,)), "SKIP", UNKNOWN),
        (
            roce.PFC,
            Dcb((3, 4), trust="pcp"),
            "WARN",
            f"ens1 has PFC for priority 3, 4, but {KERNELS} have priority 0, {BY_TAG}: "
            f"{UNPROTECTED} |",
        ),
        (roce.PFC, Dcb((3,), pause_rx=True), "WARN", "ethtool -A ens1 rx off"),
        (roce.ECN, None, "SKIP", "is unknown"),
        (roce.ECN, Dcb(ecn_priorities=()), "WARN", "has no ECN"),
        (roce.ECN, Dcb((3,), (3,)), "PASS", "ECN for priority 3"),
        (roce.ECN, Dcb((3, 5), (3,)), "WARN", "no ECN for priority 5"),
        (roce.ECN, Dcb(None, (0, 1)), "PASS", "0, 1"),
    ],
)
def test_pfc_and_ecn(judged, rule, dcb, verdict, words):
    judged(rule, _host(ethernet(dcb=dcb)), None, "ens1", verdict, words)


@pytest.mark.parametrize(
    ("entries", "tos", "verdict"),
    [
        # A DSCP without an entry has the priority of its upper three bits.
        ((), 0, "WARN"),
        ((), 106, "PASS"),
        ((PriorityOf(26, 3), PriorityOf(24, 3)), 0, "WARN"),
        ((PriorityOf(46, 3), PriorityOf(48, 3), PriorityOf(26, 0)), 0, "WARN"),
        ((PriorityOf(46, 3),), 186, "PASS"),
        ((PriorityOf(26, 0),), 106, "WARN"),
    ],
)
def test_the_priority_of_a_type_of_service(entries, tos, verdict):
    dcb = Dcb((3,), trust="dscp", dscp_priorities=entries)
    host = _host(ethernet(dcb=dcb), device=roce_device(default_tos=tos))
    found, text = findings(roce.PFC, host)["ens1"]
    assert found == verdict
    fix = (
        f"{UNPROTECTED} | write roce: {{priority: 3}} for it in the policy "
        "(ROCE-CLASS-01, ROCE-TOS-01), and trust the DSCP"
    )
    assert (fix in text) == (verdict == "WARN")


HAVE = f"{KERNELS} have"
TOS_106 = f"{HAVE} type of service 106 and so priority 3"


@pytest.mark.parametrize(
    ("egress", "tos", "trust", "verdict", "words"),
    [
        ((PriorityOf(0, 3),), 0, "pcp", "PASS", f"{HAVE} priority 3, {BY_TAG}"),
        ((PriorityOf(2, 3),), 106, "pcp", "PASS", f"{HAVE} priority 3, {BY_TAG}"),
        ((PriorityOf(2, 3),), 0, "pcp", "WARN", f"{HAVE} priority 0, {BY_TAG}"),
        ((), 0, "pcp", "WARN", f"{HAVE} priority 0, {BY_TAG}"),
        ((PriorityOf(0, 3),), None, "pcp", "SKIP", UNKNOWN),
        (None, 0, "pcp", "SKIP", UNKNOWN),
        ((PriorityOf(0, 3),), 0, None, "SKIP", UNKNOWN),
        ((PriorityOf(2, 3),), 106, None, "PASS", TOS_106),
        ((PriorityOf(0, 5),), 106, "dscp", "PASS", TOS_106),
    ],
)
def test_the_egress_map_of_a_vlan_decides(judged, egress, tos, trust, verdict, words):
    """RDMA CM takes the priority of a VLAN from it (iboe_tos_to_sl)."""
    on_vlan = ethernet(uppers=("ens1.7",), dcb=Dcb((3,), trust=trust))
    vlan = above("ens1.7", "ens1", 1500, driver="vlan", egress=egress, **STORAGE)
    host = _host(on_vlan, vlan, device=roce_device(default_tos=tos))
    judged(roce.PFC, host, None, "ens1", verdict, words)


@pytest.mark.parametrize("rule", [roce.PFC, roce.ECN])
def test_soft_roce_has_no_flow_control(rule):
    assert findings(rule, _host(ethernet(), device=SOFT))["mlx5_0/1"][0] == "SKIP"


# ROCE-LAG-01


def _bonded(mode, *members, devices=("mlx5_0",)):
    netdevs = [replace(one, uppers=("bond0",)) for one in members]
    names = tuple(member.name for member in members)
    bond = above(
        "bond0",
        members[0].name,
        bond=Bond(mode),
    )
    return facts(
        rdma_devices=tuple(roce_device(name) for name in devices),
        netdevs=(*netdevs, replace(bond, driver="bond", lowers=names)),
    )


_FIRST = ethernet("ens1", driver="mlx5_core")
_SECOND = ethernet("ens2", driver="mlx5_core", rdma_device="mlx5_1")
_TWO = {"devices": ("mlx5_0", "mlx5_1")}
_BNXT = replace(_FIRST, driver="bnxt_en")
_PLAIN = ethernet("eno1", rdma_device=None, rdma_port=None)
_ONE = replace(_SECOND, rdma_device="mlx5_0")
_HANG = "so that connections hang | give each port"


@pytest.mark.parametrize(
    ("host", "verdict", "words"),
    [
        (_bonded("802.3ad", _FIRST), "PASS", "one RoCE port"),
        (_bonded("802.3ad", _FIRST, _ONE), "PASS", "one RoCE port"),
        (_bonded("active-backup", _FIRST, _SECOND, **_TWO), "PASS", "begin again"),
        (
            _bonded("802.3ad", _FIRST, _SECOND, **_TWO),
            "WARN",
            "all ports of one adapter",
        ),
        (_bonded("balance-xor", _BNXT, _SECOND, **_TWO), "WARN", _HANG),
        (_bonded("active-backup", _FIRST, _PLAIN), "WARN", "eno1 has no RoCE"),
    ],
)
def test_bonds(judged, host, verdict, words):
    assert "no export of the policy goes" in findings(roce.LAG, host)["bond0"][1]
    rule = interface_rule(link_layer="ethernet", roce=RoceClass(3))
    nfs = NfsPolicy((NfsRule(1, "r", "10.0.0.1", "*", "prefer-rdma"),))
    routed = replace(host, routes=(Route("10.0.0.1", "bond0", "10.0.0.2"),))
    for where, policy in (
        (host, host_policy(interfaces=(rule,))),
        (routed, Policy(nfs=nfs)),
    ):
        assert list(findings(roce.LAG, where, policy)) == ["bond0"]
        judged(roce.LAG, where, policy, "bond0", verdict, words)


def test_a_bond_of_soft_roce_is_not_judged():
    host = _bonded("802.3ad", _FIRST, _SECOND, devices=())
    devices = tuple(roce_device(n, driver="rdma_rxe") for n in ("mlx5_0", "mlx5_1"))
    found = findings(roce.LAG, replace(host, rdma_devices=devices))
    assert found == {"host": ("SKIP", "no bond has a RoCE port | ")}
