# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the users of a netdev: each kind, for each class of step, whoever asks.

And random netdevs on each other, with an oracle that goes from the user down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.changes import boot
from ovirt_rdma.host.changes.kinds.kind import AtomicChange, Place, Reading
from ovirt_rdma.host.changes.kinds.registry import kind_of
from ovirt_rdma.host.changes.plan import gate
from ovirt_rdma.host.changes.run import interrupted_users
from ovirt_rdma.host.changes.undo import UndoChange
from ovirt_rdma.host.daemon.partitions import in_use_because
from ovirt_rdma.host.errors import Refused
from ovirt_rdma.host.facts.devices import (
    Adapter,
    Dcb,
    Ipoib,
    Netdev,
    NetdevUse,
    NetworkManager,
    OvirtNetwork,
    PciIdentity,
    Profile,
    RdmaDevice,
    RdmaPort,
    VfPort,
    VirtualFunction,
)
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import (
    HostPolicy,
    InterfaceRule,
    Policy,
    RoceClass,
    VfRule,
)
from ovirt_rdma.host.rules.base import (
    DCB,
    LINK_DOWN,
    LIVE,
    SYSFS,
    VF,
    Change,
    Step,
    View,
)
from ovirt_rdma.host.rules.registry import decide
from ovirt_rdma.host.services.hook_runs import ModeRefused, mode_steps
from ovirt_rdma.host.services.network_request import WantedMode

pytestmark = pytest.mark.hypervisor

VPI, ROCE, IB = "0000:41:00.0", "0000:42:00.0", "0000:43:00.0"
ZERO = "0000:0000:0000:0000"
GUID = "0e11:2233:4455:6600"


def ipoib(name, address, device, port, **fields) -> Netdev:
    driver = "mlx4_core" if device == "mlx4_0" else "mlx5_core"
    fields.setdefault("ipoib", Ipoib("datagram", "0xffff"))
    fields.setdefault("pci", pci(address))
    fields.setdefault("driver", driver)
    return Netdev(
        name, 32, 2044, "80:00:00:00" + ":00" * 16, "up", rdma_device=device,
        rdma_port=port, **fields,
    )  # fmt: skip


def ethernet(name, driver, **fields) -> Netdev:
    return Netdev(name, 1, 1500, "", "up", driver, **fields)


def pci(address) -> PciIdentity:
    return PciIdentity(address, "0x15b3", "0x1003", "0x00")


INFINIBAND = RdmaPort(1, "ACTIVE", "LinkUp", "InfiniBand", max_mtu=4096)
ETHERNET = RdmaPort(1, "ACTIVE", "LinkUp", "Ethernet", max_mtu=4096)
VF0 = VirtualFunction(
    0, "0000:43:00.1", "mlx5_core", "ib5v0", ZERO, "auto", (VfPort(1, ZERO),)
)
ROCE_VF = VirtualFunction(0, "0000:42:00.1", "mlx5_core", "eth4v0")
NO_PFC = Dcb((), None, None, False, False, ())
BASES = (
    ipoib("ib0", VPI, "mlx4_0", 1),
    ethernet("eth3", "mlx4_en", pci=pci(VPI), rdma_device="mlx4_0", rdma_port=2),
    ethernet(
        "eth4", "mlx5_core", pci=pci(ROCE), rdma_device="mlx5_0", rdma_port=1,
        dcb=NO_PFC,
    ),
    ipoib("ib5", IB, "mlx5_1", 1),
    ipoib("ib5v0", "0000:43:00.1", "mlx5_2", 1),
    ethernet("eth4v0", "mlx5_core", pci=pci(ROCE_VF.address)),
)  # fmt: skip


PROFILE = Profile(
    "storage", "a" * 8, "802-3-ethernet", "eth4", "eth4", "/etc/NetworkManager/s"
)


def host(*more: Netdev, uses=(), networks=(), bases=BASES, vf=VF0, **fields) -> Facts:
    """An mlx4 adapter with an InfiniBand and an Ethernet port, and two mlx5 adapters,
    of RoCE and of InfiniBand, each with a VF.
    """
    vpi = Adapter(pci(VPI), "mlx4_core", port_types=("ib", "eth"))
    ib = Adapter(pci(IB), "mlx5_core", vfs=1, max_vfs=8)
    vf_adapter = Adapter(pci(vf.address), "mlx5_core", physical_function=IB)
    return Facts(
        "hv1",
        "5.14.0",
        1.0,
        host_uuid="3c2ee5a2-1b1e-4c35-b2a5-6a56fd8f8f14",
        adapters=(
            replace(vpi, port_mtus=(4096, 0)),
            Adapter(
                pci(ROCE),
                "mlx5_core",
                vfs=1,
                max_vfs=8,
                virtual_functions=(ROCE_VF,),
            ),
            replace(ib, virtual_functions=(vf,)),
            vf_adapter,
        ),
        rdma_devices=(
            device("mlx4_0", VPI, INFINIBAND, replace(ETHERNET, number=2)),
            device("mlx5_0", ROCE, ETHERNET),
            device("mlx5_1", IB, INFINIBAND),
            device("mlx5_2", vf.address, INFINIBAND),
        ),
        netdevs=(*bases, *more),
        network_manager=NetworkManager(True, managed=("eth4",), profiles=(PROFILE,)),
        netdev_uses=tuple(uses),
        ovirt_networks=tuple(networks),
        **fields,
    )


def device(name, address, *ports) -> RdmaDevice:
    driver = "mlx4_core" if name == "mlx4_0" else "mlx5_core"
    return RdmaDevice(name, "CA", "0", driver, pci=pci(address), ports=ports)


# The steps, and what the policy says for them.


@dataclass(frozen=True)
class Case:
    """A step: of which rule and subject, on which netdev its users are; ``removes``
    that netdev, or takes its link down for a moment; the change at boot or in a revert.
    """

    step: str
    on: str
    change: Change
    rule: InterfaceRule | None = None
    vfs: VfRule | None = None
    removes: bool = False

    @property
    def policy(self) -> Policy:
        rules = (self.rule,) if self.rule else ()
        vfs = (self.vfs,) if self.vfs else ()
        return Policy(host=HostPolicy(interfaces=rules, virtual_functions=vfs))


def rule(device: str, port: int, **wanted) -> InterfaceRule:
    return InterfaceRule(1, "interface 1", device=device, port=port, **wanted)


def sysfs(path: str, before: str, after: str) -> Change:
    return Change(SYSFS, f"/sys/{path}", before, after)


CASES = {
    "mode": Case(
        "IPOIB-MODE-01/ib0",
        "ib0",
        sysfs("class/net/ib0/mode", "datagram", "connected"),
        rule("mlx4_0", 1, transport_mode="connected"),
    ),
    "port MTU": Case(
        "IPOIB-MTU-03/mlx4_0/1",
        "eth3",
        sysfs(f"bus/pci/devices/{VPI}/mlx4_port1_mtu", "4096", "2048"),
        rule("mlx4_0", 1, port_mtu=2048),
        removes=True,
    ),
    "port type": Case(
        "PORT-TYPE-01/mlx4_0/2",
        "ib0",
        sysfs(f"bus/pci/devices/{VPI}/mlx4_port2", "eth", "ib"),
        rule("mlx4_0", 2, port_type="ib"),
        removes=True,
    ),
    "RoCE MTU": Case(
        "ROCE-MTU-01/eth4",
        "eth4",
        sysfs("class/net/eth4/mtu", "1500", "9000"),
        rule("mlx5_0", 1, mtu=9000),
    ),
    "PFC": Case(
        "ROCE-CLASS-01/eth4",
        "eth4",
        Change(DCB, "eth4", "none", "3", "pfc"),
        rule("mlx5_0", 1, roce=RoceClass(3)),
    ),
    "PFC, in a VF": Case(
        "ROCE-CLASS-01/eth4",
        "eth4v0",
        Change(DCB, "eth4", "none", "3", "pfc"),
        rule("mlx5_0", 1, roce=RoceClass(3)),
    ),
    "GUIDs of VFs": Case(
        "VF-02/mlx5_1",
        "ib5v0",
        Change(VF, IB, f"0={ZERO}/{ZERO}", f"0={GUID}/{GUID}", "guids"),
        vfs=VfRule(1, "virtual functions 1", 1, device="mlx5_1"),
        removes=True,
    ),
    "link state of VFs": Case(
        "VF-03/mlx5_1",
        "ib5v0",
        Change(VF, IB, "0=auto", "0=disable", "link-states"),
        vfs=VfRule(1, "virtual functions 1", 1, device="mlx5_1", link_state="disable"),
        removes=True,
    ),
}


def apply(facts: Facts, case: Case) -> str:
    return refusal(s for s in decide(facts, case.policy).steps if s.id == case.step)


def refusal(steps: Iterable[Step]) -> str:
    """Return why ``apply`` refuses a step, or "" if it is done."""
    (step,) = steps
    assert step.effect == LINK_DOWN
    if step.refused:  # by the hardware or the engine: it is never done
        assert gate([step], allow_link_down=True).steps == ()
        return ", ".join(step.users)
    try:
        assert gate([step]).steps == (step,)
    except Refused as refused:
        return " ".join(map(str, refused.reasons))
    return ""


def act(case: Case) -> AtomicChange:
    return AtomicChange(case.step, LINK_DOWN, (case.change,))


def revert(facts: Facts, case: Case) -> str:
    undo = UndoChange(None, act(case))
    return " ".join(", ".join(users) for _, users in interrupted_users([[undo]], facts))


def at_boot(facts: Facts, case: Case) -> str:
    """Return what the unit says instead of setting the value again."""
    done = []

    class Effects:
        def present(self, act):
            return act

        def read(self, change, place=None):
            return Reading(change.after if done else case.change.before)

        def do(self, act):
            done.append(act)

    setting = AtomicChange(
        *("", kind_of(case.change).effect),
        changes=(replace(case.change, before=None),),
        place=Place(),
    )
    with TemporaryDirectory() as folder:
        effects = Effects()
        effects.root = folder
        boot.under(folder, boot._TRIED).parent.mkdir(parents=True)
        _, said = boot._restore(effects, lambda: facts, setting)
    assert said
    return "" if done else said


def hook(facts: Facts, case: Case) -> str:
    """What before_network_setup says to the engine."""
    wanted = WantedMode("storage", case.on, "connected", case.on)
    try:
        mode_steps(facts, Policy(), [wanted])
    except ModeRefused as refused:
        return str(refused)
    return ""


ASKERS = [
    pytest.param(case, ask, id=f"{name}-{ask.__name__}")
    for name, case in CASES.items()
    for ask in (apply, revert, at_boot, hook)
    if ask is not hook or name == "mode"
]
PURPOSES = (
    "nfs mount iscsi srp nvme migration display management route ssh container unknown"
)


def above(facts: Facts, name: str, *chain: Netdev) -> Facts:
    """Put ``chain`` on the netdev ``name``, each on the one before it."""
    lower, netdevs = name, {n.name: n for n in facts.netdevs}
    for upper in chain:
        netdevs[upper.name] = replace(upper, lowers=(*upper.lowers, lower))
        below = netdevs[lower]
        netdevs[lower] = replace(below, uppers=(*below.uppers, upper.name))
        lower = upper.name
    return replace(facts, netdevs=tuple(netdevs.values()))


VLAN = ethernet("x.100", "vlan")
BOND = ethernet("bond7", "bond")
BRIDGE = ethernet("vmnet", "bridge")


@pytest.mark.parametrize("purpose", PURPOSES.split())
@pytest.mark.parametrize(("case", "ask"), ASKERS)
def test_each_use_refuses_each_step_by_its_name(case, ask, purpose):
    assert ask(host(), case) == ""
    for netdev in (case.on, None):
        facts = host(uses=[NetdevUse(netdev, purpose, "WHO")])
        assert f"{purpose}: WHO" in ask(facts, case)
    elsewhere = host(ethernet("eth9", "igb"), uses=[NetdevUse("eth9", purpose, "WHO")])
    assert ask(elsewhere, case) == ""


def mounted(facts, on):
    return replace(facts, netdev_uses=(NetdevUse(on, "nfs", "WHO"),))


STACKED = {
    "a mount over a VLAN": lambda f, on: mounted(above(f, on, VLAN), "x.100"),
    "a mount over a bond": lambda f, on: mounted(above(f, on, BOND), "bond7"),
    "a mount over a bridge on a VLAN on a bond": lambda f, on: mounted(
        above(f, on, BOND, VLAN, BRIDGE), "vmnet"
    ),
    "a tap on a bridge": lambda f, on: tapped(above(f, on, BRIDGE), "tun"),
    "a tap of unknown kind": lambda f, on: tapped(above(f, on, BRIDGE), None),
    "a tap in Open vSwitch": lambda f, on: tapped(
        above(f, on, ethernet("vmnet", "openvswitch")), "tun"
    ),
    "a tap on a bridge on a VLAN": lambda f, on: tapped(
        above(f, on, VLAN, BRIDGE), "tun"
    ),
    "a container on a bridge": lambda f, on: tapped(above(f, on, BRIDGE), "veth"),
    "a macvtap": lambda f, on: above(f, on, ethernet("WHO", "macvtap")),
    "a macvtap on a VLAN": lambda f, on: above(f, on, VLAN, ethernet("WHO", "macvtap")),
}


def tapped(facts: Facts, driver) -> Facts:
    tap = ethernet("WHO", driver, uppers=("vmnet",))
    bridge = next(n for n in facts.netdevs if n.name == "vmnet")
    others = [n for n in facts.netdevs if n is not bridge]
    bridge = replace(bridge, lowers=(*bridge.lowers, "WHO"))
    return replace(facts, netdevs=(*others, bridge, tap))


@pytest.mark.parametrize("stacked", STACKED)
@pytest.mark.parametrize(("case", "ask"), ASKERS)
def test_what_stands_on_a_netdev_uses_it(case, ask, stacked):
    assert "WHO" in ask(STACKED[stacked](host(), case.on), case)


def networked(facts: Facts, on: str) -> Facts:
    """Put a logical network on ``on``, as VDSM has stored it."""
    return replace(facts, ovirt_networks=(OvirtNetwork("WHO", on, bridged=True),))


def addressed(facts: Facts, on: str) -> Facts:
    netdevs = [
        replace(n, addresses=("10.0.0.2/24",)) if n.name == on else n
        for n in facts.netdevs
    ]
    return replace(facts, netdevs=tuple(netdevs))


BUILT = {
    "a logical network": lambda f, on: networked(addressed(f, on), on),
    "a logical network on a VLAN": lambda f, on: networked(
        addressed(above(f, on, VLAN), "x.100"), "x.100"
    ),
    "a bond": lambda f, on: above(f, on, ethernet("WHO", "bond")),
    "an empty bridge": lambda f, on: above(f, on, ethernet("WHO", "bridge")),
}


@pytest.mark.parametrize("built", BUILT)
@pytest.mark.parametrize(("case", "ask"), ASKERS)
def test_what_is_built_on_a_netdev_is_lost_if_that_is_removed(case, ask, built):
    """A link that is down for a moment costs it nothing, as long as nobody uses it:
    networks stay attached in maintenance. The engine sets the MTU of its networks.
    """
    facts = BUILT[built](host(), case.on)
    if "network" in built and case.step.startswith("ROCE-MTU") and ask is apply:
        assert case.step not in {s.id for s in decide(facts, case.policy).steps}
        return
    assert ("WHO" in ask(facts, case)) == case.removes


@pytest.mark.parametrize("name", ["port MTU", "port type"])
def test_at_boot_a_network_that_vdsm_has_only_stored_loses_nothing(name):
    """VDSM sets its networks up later; else the port MTU would never be set again."""
    case = CASES[name]
    facts = networked(host(), case.on)
    management = NetdevUse(case.on, "management", "network WHO")
    facts = replace(facts, netdev_uses=(management,))
    assert "WHO" in apply(facts, case) and at_boot(facts, case) == ""
    for up in (
        addressed(facts, case.on),
        above(facts, case.on, BRIDGE),
        replace(
            above(host(), case.on, VLAN),
            ovirt_networks=(OvirtNetwork("WHO", "x.100", vlan=100),),
        ),
    ):
        assert "WHO" in at_boot(up, case)


@pytest.mark.parametrize("ask", [apply, revert, at_boot])
@pytest.mark.parametrize("name", ["port MTU", "port type"])
def test_an_adapters_netdev_in_a_container(name, ask):
    use = NetdevUse(VPI, "container", "netdev ens1 of conmon (80)")
    assert "container: netdev ens1" in ask(host(uses=[use]), CASES[name])


@pytest.mark.parametrize("driver", ["vfio-pci", "mlx5_vfio_pci"])
def test_a_vf_that_a_virtual_machine_has_counts_for_its_adapter(driver):
    facts = host(vf=replace(VF0, driver=driver, netdev=None))
    number = Change(VF, IB, "0", "1", "number")
    undo = UndoChange(None, AtomicChange("VF-01/x", LIVE, (number,)))
    ((_, users),) = interrupted_users([[undo]], facts)
    assert users == ("vm: VF 0 (0000:43:00.1)",)


@pytest.mark.parametrize(
    ("change", "users"),
    [
        (Change(VF, IB, "0", "1", "number"), ("nfs: WHO",)),
        (Change(VF, IB, "0=-", "0=mlx5_core", "drivers"), ("nfs: WHO",)),
        (Change(VF, IB, "0=auto", "0=enable", "link-states"), ("nfs: WHO",)),
        (Change(VF, IB, "0=enable", "0=disable", "link-states"), ()),
    ],
)
def test_the_revert_of_a_live_step_for_vfs_asks_who_uses_them(change, users):
    """Making a VF and binding its driver is live; the undo removes its netdev. A link
    that is enabled stays up; with auto it may go down with the port.
    """
    facts = mounted(host(), "ib5v0")
    undo = UndoChange(None, AtomicChange("VF-01/x", LIVE, (change,)))
    found = [user for _, named in interrupted_users([[undo]], facts) for user in named]
    assert tuple(found) == users


@pytest.mark.parametrize(
    ("driver", "bonded", "effect"),
    [
        ("mlx5_core", False, LIVE),
        ("mlx5_core", True, LINK_DOWN),  # its RDMA device is replaced
        ("i40e", False, LINK_DOWN),  # it resets the PF
        ("ice", False, LINK_DOWN),  # unknown
    ],
)
def test_making_vfs_may_take_the_pfs_link_down(driver, bonded, effect):
    facts = mounted(host(), "eth4")
    if bonded:
        facts = above(facts, "eth4", BOND)
    adapters = [
        replace(a, driver=driver, vfs=0, virtual_functions=())
        if a.pci.address == ROCE
        else a
        for a in facts.adapters
    ]
    facts = replace(facts, adapters=tuple(adapters))
    rules = (VfRule(1, "virtual functions 1", 2, device="mlx5_0"),)
    steps = decide(facts, Policy(host=HostPolicy(virtual_functions=rules))).steps
    (step,) = (step for step in steps if step.rule == "VF-01")
    assert step.effect == effect
    assert step.users == (("nfs: WHO",) if effect == LINK_DOWN else ())


@pytest.mark.parametrize("purpose", PURPOSES.split())
@pytest.mark.parametrize("netdev", ["ib0.8001", "vmnet", None])
def test_a_child_in_use_is_not_removed_with_its_partition(purpose, netdev):
    """The unit that follows the fabric's partitions."""
    pkey = Ipoib("datagram", "0x8001", parent="ib0")
    child = ipoib("ib0.8001", VPI, "mlx4_0", 1, ipoib=pkey, pci=None, driver="ipoib")
    facts = above(host(child), "ib0.8001", BRIDGE)
    facts = replace(facts, netdev_uses=(NetdevUse(netdev, purpose, "WHO"),))
    view = View(facts, Policy())
    found = next(i for i in view.ipoib if i.name == "ib0.8001")
    assert in_use_because(view, found) == f"it is in use by {purpose}: WHO"


# Random netdevs on each other. The oracle has no code of the product: it goes from each
# user down to what carries it.

WANTED = (
    rule("mlx4_0", 1, transport_mode="connected", port_mtu=2048),
    replace(rule("mlx4_0", 2, port_type="ib"), number=2),
    replace(rule("mlx5_0", 1, mtu=9000), number=3),
)
ADAPTER = {"ib0", "eth3"}
TOUCHED = {
    "IPOIB-MODE-01/ib0": ({"ib0"}, False),
    "IPOIB-MTU-03/mlx4_0/1": (ADAPTER, True),
    "PORT-TYPE-01/mlx4_0/2": (ADAPTER, True),
    "ROCE-MTU-01/eth4": ({"eth4"}, False),
}


@dataclass
class Tree:
    """Netdevs: ``on`` is what each is built on, ``kinds`` what it is."""

    on: dict[str, list[str]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    users: list[tuple[str | None, str]] = field(default_factory=list)
    networks: list[tuple[str, str]] = field(default_factory=list)

    def below(self, name: str) -> set[str]:
        """Return ``name`` and all that carries it; a tap is carried by its bridge."""
        found, waiting = set(), [name]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self.on.get(one, [])
        return found

    def interrupted(self, touched: set[str], removed: bool) -> Iterator[str]:
        for netdev, who in self.users:
            if netdev is None or self.below(netdev) & touched:
                yield who
        for name, kind in self.kinds.items():
            if kind in ("tun", "macvtap") and self.below(name) & touched:
                yield name
        for name, netdev in self.networks if removed else ():
            if self.below(netdev) & touched:
                yield name


@st.composite
def trees(draw) -> Tree:
    tree = Tree()
    for number in range(draw(st.integers(0, 7))):
        kind = draw(
            st.sampled_from(("vlan", "bond", "bridge", "macvtap", "tun", "ipoib"))
        )
        places = [base.name for base in BASES[:3]]
        places += [n for n, k in tree.kinds.items() if k not in ("tun", "macvtap")]
        if kind == "tun":
            places = [n for n, k in tree.kinds.items() if k == "bridge"]
        if kind == "ipoib":
            places = ["ib0"]
        if places:
            several = 2 if kind in ("bond", "bridge") else 1
            chosen = st.lists(st.sampled_from(places), min_size=1, max_size=several)
            name = f"{kind}{number}"
            tree.on[name] = list(dict.fromkeys(draw(chosen)))
            tree.kinds[name] = kind
    # A tap has no address, and no logical network.
    names = [base.name for base in BASES[:3]]
    names += [name for name, kind in tree.kinds.items() if kind != "tun"]
    for number in range(draw(st.integers(0, 2))):
        netdev = draw(st.sampled_from([*names, None]))
        tree.users.append((netdev, f"user{number}"))
    for number in range(draw(st.integers(0, 1))):
        tree.networks.append((f"network{number}", draw(st.sampled_from(names))))
    return tree


def facts_of(tree: Tree) -> Facts:
    """Return what the reader finds: a tap is a lower of its bridge."""
    uppers: dict[str, list[str]] = {}
    lowers: dict[str, list[str]] = {}
    for name, places in tree.on.items():
        for place in places:
            if tree.kinds[name] == "ipoib":  # the kernel lists no child
                continue
            low, up = (name, place) if tree.kinds[name] == "tun" else (place, name)
            uppers.setdefault(low, []).append(up)
            lowers.setdefault(up, []).append(low)
    more = [
        ipoib(
            name, VPI, "mlx4_0", 1, pci=None, driver="ipoib",
            ipoib=Ipoib("datagram", f"0x80{number:02x}", parent="ib0"),
        )
        if kind == "ipoib"
        else ethernet(name, kind)
        for number, (name, kind) in enumerate(tree.kinds.items())
    ]  # fmt: skip
    facts = host(*more)
    return replace(
        facts,
        netdevs=tuple(
            replace(
                n,
                uppers=tuple(uppers.get(n.name, ())),
                lowers=tuple(lowers.get(n.name, ())),
            )
            for n in facts.netdevs
        ),
        netdev_uses=tuple(NetdevUse(on, "nfs", who) for on, who in tree.users),
        ovirt_networks=tuple(OvirtNetwork(n, on) for n, on in tree.networks),
    )


@given(trees())
def test_no_step_takes_down_what_somebody_uses_unasked(tree):
    steps = decide(facts_of(tree), Policy(host=HostPolicy(interfaces=WANTED))).steps
    for step in steps:
        if step.id not in TOUCHED or step.refused or step.effect != LINK_DOWN:
            continue
        touched, removed = TOUCHED[step.id]
        users = set(tree.interrupted(touched, removed))
        said = refusal([step])
        assert all(user in said for user in users), (step.id, users, said)
        if not users and not removed:
            assert said == ""
        assert gate([step], allow_link_down=True).steps == (step,)
