# SPDX-License-Identifier: GPL-2.0-or-later
"""VF-01 to VF-04 and PORT-TYPE-01: what is decided about VFs and the types of ports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.effects_host import MemoryJournal, Told, applied, revert
from support.host.memory_host import FakeHost
from support.problems import problem

from ovirt_rdma.host.changes.boot import boot_settings
from ovirt_rdma.host.changes.plan import gate
from ovirt_rdma.host.errors import Refused
from ovirt_rdma.host.facts.devices import (
    Adapter,
    Guid,
    Netdev,
    NetdevUse,
    PciIdentity,
    PKey,
    RdmaDevice,
    RdmaPort,
    VfPort,
    VirtualFunction,
)
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, Policy, VfRule
from ovirt_rdma.host.rules.base import (
    FAIL,
    LINK_DOWN,
    LIVE,
    PASS,
    SKIP,
    VF,
    WARN,
    Change,
)
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor

# libvirt binds the variant for the adapter if there is one.
VFIO, VARIANT = "vfio-pci", "mlx5_vfio_pci"
UUID = "3c2ee5a2-1b1e-4c35-b2a5-6a56fd8f8f14"
ADDRESS, ZERO = "0000:5e:00.0", "0000:0000:0000:0000"
RULE = VfRule(1, "virtual functions 1", 4, device="mlx*", guests="0-1")
PORT = RdmaPort(1, "ACTIVE", "LinkUp", "InfiniBand", guid="ec0d:9a03:007d:7d1a")


def vf(number: int, **fields) -> VirtualFunction:
    fields.setdefault("ports", (VfPort(1, ZERO),))
    values = {"node_guid": ZERO, "link_state": "auto", **fields}
    return VirtualFunction(number, f"0000:5e:00.{number + 1}", **values)


def facts(*vfs, driver="mlx5_core", port=PORT, uuid=UUID, uses=(), **fields) -> Facts:
    pci = PciIdentity(ADDRESS, "0x15b3", "0x1017", "0x00")
    count = {"vfs": len(vfs), "max_vfs": 8, **fields}
    adapter = Adapter(pci, driver, virtual_functions=vfs, **count)
    name = driver.partition("_")[0]
    device = RdmaDevice(
        f"{name}_0", "CA", "ec0d:9a03:007d:7d19", driver, pci=pci, ports=(port,)
    )
    netdev = Netdev("ib0", 32, 2044, "", "up", pci=pci, rdma_device=f"{name}_0")
    netdev = replace(netdev, rdma_port=1)
    own = [Netdev(one.netdev, 32, 2044, "", "up") for one in vfs if one.netdev]
    return Facts(
        "hv1",
        "5.14.0",
        1.0,
        host_uuid=uuid,
        adapters=(adapter,),
        rdma_devices=(device,),
        netdevs=(netdev, *own),
        netdev_uses=uses,
    )


def outcomes(found: Facts, rule=RULE, interfaces=()):
    rules = (rule,) if rule else ()
    host = HostPolicy(interfaces=interfaces, virtual_functions=rules)
    decision = decide(found, Policy(host=host))
    ours = ("VF-", "PORT-TYPE-")
    steps = {s.rule: s for s in decision.steps if s.rule.startswith(ours)}
    findings = [f for f in decision.findings if f.rule.startswith(ours)]
    return steps, findings


def verdicts(findings, rule):
    return [f.verdict for f in findings if f.rule == rule]


def values(step) -> dict[int, str]:
    pairs = (change.after.partition("=") for change in step.changes)
    return {int(number): value for number, _, value in pairs}


def test_a_new_adapter_gets_all_in_order():
    steps, _ = outcomes(facts(), replace(RULE, link_state="enable"))
    assert list(steps) == ["VF-01", "VF-02", "VF-03", "VF-04"]
    assert {step.effect for step in steps.values()} == {LIVE}
    (change,) = steps["VF-01"].changes
    assert (change.target, change.before, change.after) == (ADDRESS, "0", "4")
    assert [steps[name].changes[0].before for name in list(steps)[1:]] == [None] * 3
    assert values(steps["VF-03"]) == dict.fromkeys(range(4), "enable")
    # 0 and 1 are for virtual machines.
    assert values(steps["VF-04"]) == {2: "mlx5_core", 3: "mlx5_core"}
    refused = replace(steps["VF-01"], refused="no", changes=())
    gated = gate([refused, *list(steps.values())[1:]])
    assert len(gated.left) == 1  # what the rules refuse, they have considered


def test_guids_are_stable_different_and_local():
    """Computed once by hand with sha256sum, as docs/virtual-functions.md says."""
    steps, _ = outcomes(facts())
    guids = values(steps["VF-02"])
    assert guids == values(outcomes(facts())[0]["VF-02"])
    flat = [guid for pair in guids.values() for guid in pair.split("/")]
    other = values(outcomes(facts(uuid=UUID.replace("3c", "3d")))[0]["VF-02"])
    flat += [guid for pair in other.values() for guid in pair.split("/")]
    assert len(set(flat)) == 16
    for guid in flat:
        first = int(Guid(guid.replace(":", ""))[:2], 16)
        assert first & 0x03 == 0x02
    # 829b7620bd7cd917 and dbe5a41dc4acca49, with the two bits of the first byte.
    assert guids[0] == "829b:7620:bd7c:d917/dae5:a41d:c4ac:ca49"


def test_without_the_hosts_id_nothing_is_derived():
    steps, findings = outcomes(facts(uuid=None))
    assert "VF-02" not in steps
    assert verdicts(findings, "VF-02") == [FAIL]


def test_what_is_done_is_done():
    guids = values(outcomes(facts())[0]["VF-02"])
    done = [
        vf(
            number,
            node_guid=pair.split("/")[0],
            ports=(VfPort(1, pair.split("/")[1]),),
            driver="mlx5_core" if number > 1 else None,
        )
        for number, pair in guids.items()
    ]
    steps, findings = outcomes(facts(*done))
    assert steps == {}
    assert {f.verdict for f in findings} <= {PASS, SKIP}


def test_guests_are_never_changed():
    vfs = [vf(0, driver=VFIO), vf(1, driver=VARIANT), vf(2), vf(3)]
    steps, findings = outcomes(facts(*vfs))
    assert set(values(steps["VF-02"])) == {2, 3}
    assert verdicts(findings, "VF-02") == [WARN, FAIL]
    sentence = (
        "the GUIDs of VFs 0, 1 of mlx5_0 are not those of the policy, but a virtual "
        "machine has them"
    )
    assert sentence in [f.sentence for f in findings]


def test_a_netdev_of_a_vf_that_is_in_use():
    vfs = [vf(n, driver="mlx5_core", netdev=f"ib{n + 1}") for n in range(4)]
    uses = (NetdevUse("ib3", "nfs", "10.0.0.1:/data"),)
    steps, _ = outcomes(facts(*vfs, uses=uses))
    step = steps["VF-02"]
    assert (step.effect, step.users) == (LINK_DOWN, ("nfs: 10.0.0.1:/data",))
    # The undo binds them last, whatever has become of them.
    drivers = [
        Change(VF, ADDRESS, *[f"{n}=mlx5_core"] * 2, "drivers") for n in range(4)
    ]
    assert step.changes[:4] == tuple(drivers)
    assert {change.name for change in step.changes[4:]} == {"guids"}
    with pytest.raises(Refused):
        gate([step])


@pytest.mark.parametrize(
    ("had", "wanted", "effect"),
    [
        ("auto", "enable", LIVE),
        ("disable", "enable", LIVE),
        ("auto", "disable", LINK_DOWN),
        ("enable", "auto", LINK_DOWN),
    ],
)
def test_the_link_of_a_vf_that_is_in_use_does_not_go_down_unasked(had, wanted, effect):
    states = {"link_state": had, "driver": "mlx5_core"}
    vfs = [vf(n, netdev=f"ib{n + 1}", **states) for n in range(4)]
    uses = (NetdevUse("ib3", "nfs", "10.0.0.1:/data"),)
    rule = replace(RULE, guids="keep", link_state=wanted)
    step = outcomes(facts(*vfs, uses=uses), rule)[0]["VF-03"]
    assert (step.effect, bool(step.users)) == (effect, effect == LINK_DOWN)


@pytest.mark.parametrize("rule", ["VF-02", "VF-03"])
def test_what_mlx4_tells_the_driver_of_a_vf_interrupts_its_users(rule):
    """IPoIB drops its paths (ipoib_event, drivers/infiniband/ulp/ipoib)."""
    port = replace(PORT, pkeys=(PKey(0, "0xffff"),))
    used = vf(0, driver="mlx4_core", netdev="ib1")
    uses = (NetdevUse("ib1", "nfs", "10.0.0.1:/data"),)
    found = facts(used, driver="mlx4_core", port=port, uses=uses)
    steps, _ = outcomes(found, replace(RULE, count=1, pkeys=("0xffff",)))
    step = steps[rule]
    assert (step.effect, step.users) == (LINK_DOWN, ("nfs: 10.0.0.1:/data",))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (facts(vf(0)), "echo 0 > /sys/bus/pci/devices/0000:5e:00.0/sriov_numvfs"),
        (facts(max_vfs=2), "mstconfig -d 0000:5e:00.0 set SRIOV_EN=1 NUM_OF_VFS=4"),
        (facts(max_vfs=None), "mstconfig"),
        (facts(driver="mlx4_core"), "num_vfs: 4"),
    ],
)
def test_a_number_that_is_not_possible(found, says):
    steps, findings = outcomes(found)
    assert steps["VF-01"].refused
    assert steps["VF-01"].changes == ()
    (finding,) = [f for f in findings if f.rule == "VF-01"]
    assert (finding.verdict, says in finding.fix) == (FAIL, True)


def test_a_vf_without_a_guid_is_a_finding_without_a_policy():
    found = facts(vf(0, driver=VFIO), vf(1), vf(2, driver="mlx5_core"))
    steps, findings = outcomes(found, rule=None)
    assert steps == {}
    (finding,) = [f for f in findings if f.rule == "VF-02"]
    assert finding.verdict == WARN
    assert "VFs 0, 2 of mlx5_0" in finding.sentence
    assert "never becomes ACTIVE" in finding.sentence


def test_two_with_one_guid():
    twice = (VfPort(1, "0e11:2233:4455:6601"),)
    found = facts(vf(0, ports=twice), vf(1, ports=twice))
    _, findings = outcomes(found, rule=None)
    assert FAIL in verdicts(findings, "VF-02")


def test_ethernet_has_no_guids_and_all_vfs_a_driver():
    port = replace(PORT, link_layer="Ethernet", guid=None)
    steps, findings = outcomes(facts(port=port))
    assert "VF-02" not in steps
    assert verdicts(findings, "VF-02") == [SKIP]
    assert set(values(steps["VF-04"])) == {0, 1, 2, 3}


def test_pkeys_are_mlx4s():
    rule = replace(RULE, count=1, pkeys=("0x8001", "0xffff"), guids="keep")
    port = replace(PORT, pkeys=(PKey(0, "0xffff"), PKey(3, "0x0001")))
    found = facts(vf(0, driver="mlx4_core"), driver="mlx4_core", port=port)
    steps, _ = outcomes(found, rule)
    assert values(steps["VF-03"]) == {0: "1:3,0"}
    assert steps["VF-03"].changes[0].before == "0=1:"
    steps, findings = outcomes(facts(vf(0), port=port), rule)
    assert "VF-03" not in steps
    assert verdicts(findings, "VF-03") == [FAIL]
    missing = facts(vf(0), driver="mlx4_core", port=replace(port, pkeys=()))
    steps, findings = outcomes(missing, rule)
    assert "VF-03" not in steps
    assert verdicts(findings, "VF-03") == [FAIL]


def test_pkeys_are_those_of_the_infiniband_ports():
    """mlx4 has a table for its Ethernet port too, which nobody can write."""
    rule = replace(RULE, count=1, pkeys=("0xffff",), guids="keep")
    port = replace(PORT, pkeys=(PKey(0, "0xffff"),))
    for indexes, planned in (((), True), ((0,), False)):
        ports = (VfPort(1, ZERO, indexes), VfPort(2, ZERO, (0,)))
        found = facts(vf(0, ports=ports), driver="mlx4_core", port=port)
        ethernet = replace(PORT, number=2, link_layer="Ethernet", guid=None)
        (device,) = found.rdma_devices
        device = replace(device, ports=(port, ethernet))
        steps, _ = outcomes(replace(found, rdma_devices=(device,)), rule)
        assert ("VF-03" in steps) is planned
        if planned:
            (change,) = steps["VF-03"].changes
            assert (change.before, change.after) == ("0=1:", "0=1:0")


def test_link_state_is_mlx5s():
    rule = replace(RULE, count=1, link_state="disable")
    _, findings = outcomes(facts(vf(0), driver="mlx4_core"), rule)
    assert verdicts(findings, "VF-03") == [FAIL]


def typed(port_type, number=1, **fields):
    rule = InterfaceRule(1, "interface 1", device="mlx*", port_type=port_type)
    found = facts(**{"vfs": 0, "port": replace(PORT, number=number), **fields})
    return outcomes(found, None, (rule,))


def test_mlx4_changes_its_type():
    use = (NetdevUse("ib0", "migration", "ovirtmgmt"),)
    steps, _ = typed("eth", driver="mlx4_core", port_types=("auto (ib)",), uses=use)
    step = steps["PORT-TYPE-01"]
    (change,) = step.changes
    assert change.target == f"/sys/bus/pci/devices/{ADDRESS}/mlx4_port1"
    assert (change.before, change.after, step.effect) == ("auto", "eth", LINK_DOWN)
    assert step.users == ("migration: ovirtmgmt",)


def test_a_type_that_is_right():
    steps, findings = typed("ib", driver="mlx4_core", port_types=("ib",))
    assert steps == {}
    assert verdicts(findings, "PORT-TYPE-01") == [PASS]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"vfs": 2, "port_types": ("ib",)}, "port_type_array"),
        ({"vfs": 2, "port_types": (" ", " ")}, '"2,0"'),  # of a facts file
        ({"port_types": ("ib", "ib")}, "port 2"),
        ({"port_types": ()}, "remove port_type"),
        ({"port_types": ("ib",), "physical_function": "x"}, "remove port_type"),
    ],
)
def test_a_type_that_mlx4_refuses(fields, says):
    steps, findings = typed("eth", driver="mlx4_core", **fields)
    assert steps["PORT-TYPE-01"].refused
    (finding,) = [f for f in findings if f.rule == "PORT-TYPE-01"]
    assert says in finding.fix


def test_mlx5_has_it_in_its_firmware():
    steps, findings = typed("eth")
    assert "PORT-TYPE-01" not in steps
    (finding,) = [f for f in findings if f.rule == "PORT-TYPE-01"]
    assert finding.fix.startswith("mstconfig -d 0000:5e:00.0 set LINK_TYPE_P1=2,")


def test_each_vf_has_its_own_earlier_value_and_its_own_boot_setting():
    """A virtual machine has VF 1 while the policy changes once more."""
    there, journal = FakeHost(facts(*map(vf, range(4)))), MemoryJournal()
    before = there.settings()
    rule = replace(RULE, guids="keep")
    for state, driver in (("enable", None), ("disable", VFIO), ("disable", None)):
        (adapter,) = there.facts.adapters
        vfs = list(adapter.virtual_functions)
        vfs[1] = replace(vfs[1], driver=driver)
        adapter = replace(adapter, virtual_functions=tuple(vfs))
        there.facts = replace(there.facts, adapters=(adapter,))
        if driver or state == "enable":
            steps, _ = outcomes(there.facts, replace(rule, link_state=state))
            assert applied(there, journal, [steps["VF-03"]]).outcome == "done"
    settings = boot_settings(journal.ledger())
    at_boot = [one.changes[0].after for one in settings]
    assert at_boot == ["1=enable", "0=disable", "2=disable", "3=disable"]
    result = revert(there, journal, there.facts, Told())
    assert (result.outcome, result.left) == ("done", ())
    assert there.settings() == before


def made(journal) -> FakeHost:
    """Return a host on which a run has made two VFs, with their links enabled."""
    there = FakeHost(facts())
    steps, _ = outcomes(there.facts, replace(RULE, count=2, link_state="enable"))
    assert applied(there, journal, list(steps.values())).outcome == "done"
    return there


@pytest.mark.parametrize("only", [None, "VF-01/mlx5_0"])
@pytest.mark.parametrize("number", ["8", "1"])
def test_a_number_of_vfs_that_somebody_else_has_set_stays(number, only):
    journal = MemoryJournal()
    there = made(journal)
    for value in ("0", number):
        there.put(Change(VF, ADDRESS, None, None, "number"), value)
    facts = there.facts
    result = revert(there, journal, there.facts, Told(), only=only)
    assert result.outcome == "done"
    # What was set in ours went with them.
    ((step, why),) = ((one.step, one.why) for one in result.left)
    assert step == "VF-01/mlx5_0"
    assert why.id == "value-changed-by-others"
    assert f"(now {number}, ours 2)" in why
    assert (there.facts, journal.ledger().applied) == (facts, ())


@pytest.mark.parametrize("step", ["VF-02/mlx5_0", "VF-03/mlx5_0"])
def test_what_is_set_in_vfs_of_ours_does_not_go_back_alone(step):
    """There is nothing to go back to: the VFs are ours."""
    journal = MemoryJournal()
    there = made(journal)
    found, data = there.settings(), journal.data
    with problem("step-set-what-we-made", step, "VF-01/mlx5_0"):
        revert(there, journal, there.facts, Told(), only=step)
    assert (there.settings(), journal.data) == (found, data)
    revert(there, journal, there.facts, Told(), only="VF-01/mlx5_0")
    assert journal.ledger().applied == ()
    assert there.facts.adapters[0].vfs == 0
