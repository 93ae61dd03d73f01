# SPDX-License-Identifier: GPL-2.0-or-later
"""Say which mode and MTU an IPoIB netdev can have and gets, which profile stores the
settings of a netdev, and which P_Key children there are. Pure.

The profile of an IPoIB netdev is the netdev's own profile or one that the plan creates.
If NetworkManager does not manage the netdev, its settings are only in sysfs. RoCE: only
single properties of a profile are set; none is created.

NetworkManager keeps the connection that it applied separately from the profile. A
Reapply applies some differences between the two without disruption, and is refused if
anything else differs (``can_reapply_change``, NetworkManager
src/core/devices/nm-device.c and nm-device-infiniband.c, the same in 1.42, 1.48, 1.54
and 1.58). nmstate requests a Reapply at each network setup of VDSM. If that is refused,
it activates the profile again (nmstate rust/src/lib/nm/query_apply/profile.rs,
reapply_or_activate): an IPoIB netdev goes down, and any netdev loses its addresses and
ports for a moment. Therefore the step that sets such a property activates the profile
itself, and its class is link-down.

Sources: those of the IPOIB pages in docs/rules; Linux drivers/infiniband/ulp/ipoib
(ipoib.h, ipoib_main.c, ipoib_cm.c; ipoib_vlan.c, ipoib_vlan_add), Linux 6.1;
NetworkManager, nm_net_devname_infiniband.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Callable, Optional, Union

from ovirt_rdma.host.facts.adapter_models import HFI1, MLX4, MLX5, model_of
from ovirt_rdma.host.facts.devices import (
    TSO_FEATURES,
    Guid,
    Ipoib,
    Netdev,
    Profile,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.infiniband import (
    AUTO,
    CONNECTED,
    CONNECTED_MTU,
    DATAGRAM,
    DEFAULT_PARTITION,
    GROUP_MTUS,
    HEADER,
    full_member,
    is_full_member,
    partition_bits,
    partition_of,
)
from ovirt_rdma.host.facts.model import KernelOption
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.policy.model import FOLLOW, interface_rule_for
from ovirt_rdma.host.rules.base import (
    FILE,
    HOST,
    LINK_DOWN,
    LIVE,
    PROFILE,
    SYSFS,
    About,
    Change,
    Finding,
    Interface,
    Outcome,
    Port,
    Rule,
    Step,
    View,
    is_persistent,
    once_per_view,
)
from ovirt_rdma.host.system.files import FOLLOW_PARTITIONS, foreign_reason, own_text

INFINIBAND_TYPE = "infiniband"
NEW = "new:"

CONNECTION_TYPE = "connection.type"
CONNECTION_ID = "connection.id"
INTERFACE_NAME = "connection.interface-name"
TRANSPORT_MODE = "infiniband.transport-mode"
MTU = "infiniband.mtu"
ETHERNET_MTU = "802-3-ethernet.mtu"
P_KEY = "infiniband.p-key"
PARENT = "infiniband.parent"
MAC_ADDRESS = "infiniband.mac-address"
TSO = "ethtool.feature-tso"
# The properties set by our rules that a Reapply accepts.
_REAPPLIED = (MTU, ETHERNET_MTU)

# nmcli's output for a property that is not set.
UNSET = ("", "--", "auto", "0", "default", "-1", "ignore", "unknown")


def needs_activation(change: Change) -> bool:
    """Whether ``change`` of an active profile takes effect only at an activation."""
    return change.kind == PROFILE and change.name not in _REAPPLIED


def class_of(changes: Iterable[Change], profile: Optional[Profile]) -> str:
    """Return the class of a step whose other changes are live: LINK_DOWN if ``profile``
    is active and must be activated again, else LIVE.
    """
    active = profile is not None and bool(profile.active_on)
    down = active and any(needs_activation(change) for change in changes)
    return LINK_DOWN if down else LIVE


@dataclass(frozen=True)
class Settings:
    """The profile of a netdev.

    target: for Changes (a UUID or ``new:NETDEV``); None: only sysfs is set
    profile: the existing one
    blocked: a clause why no profile can be created, or changed, and its ``fix``
    """

    target: Optional[str] = None
    profile: Optional[Profile] = None
    blocked: str = ""
    fix: str = ""

    def value(self, name: str) -> Optional[str]:
        """Return a property; None if it is not set or there is no profile."""
        value = self.profile.value(name) if self.profile else None
        return None if value is None or value.strip().lower() in UNSET else value

    def number(self, name: str) -> Optional[int]:
        """Return a property as a number; None if it has none."""
        text = self.value(name) or ""
        return int(text) if text.isdecimal() else None

    def change(self, name: str, after: str) -> tuple[Change, ...]:
        """Return the Change that sets a property; none if it has that value already."""
        if self.target is None or self.value(name) == after:
            return ()
        return (Change(PROFILE, self.target, self.value(name), after, name),)


def manager_unknown(view: View) -> str:
    """Return a clause if what NetworkManager does could not be read; else nothing."""
    manager = view.facts.network_manager
    if manager is None or manager.running is not None:
        return ""
    return "nmcli failed: what NetworkManager does is unknown (FACTS-01)"


def settings_of(view: View, interface: Interface) -> Settings:
    """Return the Settings of ``interface``."""
    profile, name = interface.profile, interface.name
    if unknown := manager_unknown(view):
        return Settings(blocked=unknown)
    if not interface.is_ipoib:
        blocked = _no_profile(view, interface)
        return Settings(profile.uuid if profile else None, profile, blocked)
    if interface.planned:
        managed = (interface.parent or "") in view.managed
        return Settings(NEW + name if managed else None)
    if name not in view.managed:
        return Settings()
    # It may name the port by GUID only, and no netdev.
    profile = profile or profile_of_guid(view, interface, named=False)
    if profile and is_persistent(profile) and profile.type == INFINIBAND_TYPE:
        return Settings(profile.uuid, profile)
    blocked, fix = _blocked(view, interface)
    return Settings(None if blocked else NEW + name, blocked=blocked, fix=fix)


def _no_profile(view: View, interface: Interface) -> str:
    """Return why there is no profile of an Ethernet netdev to change, or nothing."""
    manager, name = view.facts.network_manager, interface.name
    if manager is None or not manager.running:
        return "NetworkManager is not running: set it where the netdev is configured"
    if interface.profile is None:
        return f"no NetworkManager profile is active on {name}"
    if not is_persistent(interface.profile):
        return f"the profile of {name} is in NetworkManager's memory only"
    return ""


def _blocked(view: View, interface: Interface) -> tuple[str, str]:
    """Return why no IPoIB profile can be created, and the fix; empty if one can."""
    name, foreign = interface.name, profile_of_guid(view, interface, named=True)
    bonds, addresses = bonds_of(view, interface), static_addresses(interface.netdev)
    if foreign:
        return (
            f"the profile {foreign.name!r} of this port names the netdev "
            f"{foreign.interface_name}, but the netdev was renamed to {name}",
            f"nmcli connection modify {foreign.uuid} {INTERFACE_NAME} "
            f"{shlex.quote(name)}, or restore the netdev's old name",
        )
    if interface.is_child and child_pkey(interface) is None:
        return (
            "NetworkManager requires the name that create_child gives a P_Key child, "
            f"but {name} has another",
            "delete the child, and add its P_Key to pkey_children in the policy",
        )
    if bonds:
        return (
            f"{name} is a member of {bonds[0]}, but has no profile for that",
            "create the bond in the engine, or create profiles for it and its members",
        )
    if addresses:
        return (
            f"{name} has the address {addresses[0]}, which is in no profile",
            f"move it to a profile of type infiniband for {name} with "
            f"infiniband.transport-mode {DATAGRAM}, or let the engine assign one",
        )
    return "", ""


def child_pkey(interface: Interface) -> Optional[str]:
    """Return the P_Key in the name of a child, such as ``0x8001``.

    None if NetworkManager would give that child another name than ``PARENT.%04x``.
    """
    parent, dot, digits = interface.name.rpartition(".")
    if not dot or len(digits) != 4 or interface.parent != parent:
        return None
    partition = partition_of(f"0x{digits}")
    same = partition is not None and partition == partition_of(interface.pkey)
    return f"0x{digits}" if same else None


def new_profile(
    name: str, mode: str, parent: Optional[str] = None, pkey: Optional[str] = None
) -> tuple[Change, ...]:
    """Return the Changes that create a profile for the netdev ``name``, with ``parent``
    and ``pkey`` for a P_Key child. It has no IP addresses: the engine assigns them.
    """
    properties = {
        CONNECTION_TYPE: INFINIBAND_TYPE,
        CONNECTION_ID: name,
        INTERFACE_NAME: name,
        TRANSPORT_MODE: mode,
        "ipv4.method": "disabled",
        "ipv6.method": "disabled",
    }
    if parent and pkey:
        properties.update({PARENT: parent, P_KEY: pkey})
    target = NEW + name
    return tuple(Change(PROFILE, target, None, v, n) for n, v in properties.items())


def profile_of_guid(
    view: View, interface: Interface, *, named: bool
) -> Optional[Profile]:
    """Return the profile of the port's GUID for another netdev (``named``) or none."""
    guid = Guid.of_address(interface.netdev.address)
    if interface.is_child or guid is None:
        return None  # children share their parent's GUID
    for profile in view.profiles:
        if (
            profile.type == INFINIBAND_TYPE
            and is_persistent(profile)
            and Guid.of_address(profile.value(MAC_ADDRESS) or "") == guid
            and Settings(profile=profile).value(P_KEY) is None
            and profile.interface_name != interface.name
            and (profile.interface_name is not None) is named
        ):
            return profile
    return None


def bonds_of(view: View, interface: Interface) -> tuple[str, ...]:
    """Return the bonds of which ``interface`` is a member: one, or none."""
    above = filter(None, map(view.netdev, interface.netdev.uppers))
    return tuple(upper.name for upper in above if upper.bond)


def static_addresses(netdev: Netdev) -> tuple[str, ...]:
    """Return the IP addresses but link-local ones, which the kernel assigns."""
    # An invalid address counts, so that it is not lost.
    parsed = ((text, parsed_address(text)) for text in netdev.addresses)
    return tuple(text for text, one in parsed if one is None or not one.is_link_local)


def parsed_address(
    text: str,
) -> Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface, None]:
    """Return an address with its prefix length; None if it is not valid."""
    try:
        return ipaddress.ip_interface(text)
    except ValueError:
        return None


def write(interface: Interface, name: str, after: str) -> Change:
    """Return the Change that writes ``after`` to the netdev's sysfs file ``name``."""
    before: Optional[str] = None
    if not interface.planned:
        before = interface.mode if name == "mode" else str(interface.netdev.mtu)
    return Change(SYSFS, f"{NET_CLASS}/{interface.name}/{name}", before, after)


# MLX4_IB_CARD_REV_A0 (drivers/infiniband/hw/mlx4/mlx4_ib.h, main.c).
REVISION_A0 = "a0"


def is_connectx_a0(device: RdmaDevice) -> bool:
    """Whether ``device`` is a ConnectX of revision a0.

    ConnectX-2 has the same PCI ids and revision b0. The driver uses the revision in the
    HCA's NodeInfo, which it shows as ``hw_rev``; the PCI revision counts if that is
    unknown.
    """
    model = model_of(device.pci) if device.pci else None
    if device.pci is None or model is None or not model.gen2:
        return False
    revision = device.pci.revision if device.hw_rev is None else device.hw_rev
    return _bare(revision) == REVISION_A0


def revision_text(device: RdmaDevice) -> str:
    """Return ``PCI id 15b3:634a, PCI revision a0, hw_rev a0``."""
    if device.pci is None:
        return "no PCI identity"
    ids = f"{_bare(device.pci.vendor)}:{_bare(device.pci.device)}"
    hw_rev = "unknown" if device.hw_rev is None else _bare(device.hw_rev)
    return f"PCI id {ids}, PCI revision {_bare(device.pci.revision)}, hw_rev {hw_rev}"


def _bare(number: str) -> str:
    """Return ``a0`` for ``0xA0`` and for ``a0``."""
    return number.strip().lower().removeprefix("0x")


# IPOIB_FLAGS_RC in the first byte of the address: the driver accepts connections.
_RC_FLAG = 0x80


# What to do if a port's largest MTU is unknown.
UNKNOWN_MTU_FIX = (
    "install ibv_devinfo (libibverbs-utils), or see why it fails; on Omni-Path, whose "
    "driver reports at most 4096 to verbs, set mtu to a number (10236 if the fabric "
    "has 10240)"
)


@dataclass(frozen=True)
class MtuLimit:
    """The largest IPoIB MTU in bytes, and a clause about what limits it."""

    mtu: int
    reason: str


@dataclass(frozen=True)
class Tso:
    """The TSO features by name: those that are ``on``, those that can be changed, and
    those that are off but requested (the kernel turns them on again by itself).
    """

    on: tuple[str, ...]
    changeable: tuple[str, ...]
    requested: tuple[str, ...]


MODE_UNKNOWN = "its address cannot be read, which would show if it is possible"


def no_connected_mode(view: View, interface: Interface) -> str:
    """Return why connected mode is not possible or not known to be; empty if it is."""
    if interface.mode == CONNECTED:
        return ""
    config = view.facts.software.kernel_config or ()
    if KernelOption("INFINIBAND_IPOIB_CM", "n") in config:
        return "this kernel is built without CONFIG_INFINIBAND_IPOIB_CM"
    first = interface.netdev.address[:2]
    try:
        accepts = bool(int(first, 16) & _RC_FLAG)
    except ValueError:
        if not interface.planned:
            return MODE_UNKNOWN
        accepts = True
    if accepts:
        return no_mode_file(interface)
    why = "the driver accepts no connections"
    if interface.device.driver == MLX5:
        why = "mlx5's enhanced IPoIB (ConnectX-4 and later) supports datagram mode only"
    return f"{why} (the address begins with {first})"


def no_mode_file(interface: Interface) -> str:
    """Return why nobody can change the mode; empty if it can be changed."""
    if interface.netdev.ipoib is None or interface.netdev.ipoib.sysfs:
        return ""
    return "it was created by ip link, and such a child has no sysfs file for its mode"


def port_limit(interface: Interface) -> Optional[MtuLimit]:
    """Return the largest datagram MTU that the kernel accepts once the policy's
    port_mtu is set (more is EINVAL); None if unknown.
    """
    most, planned = interface.port.max_mtu, planned_port_mtu(interface)
    if planned is not None:
        return MtuLimit(planned - HEADER, f"the policy sets port_mtu {planned}")
    if most is None:
        return None
    return MtuLimit(most - HEADER, f"the port's largest MTU is {most}")


def datagram_limit(interface: Interface) -> Optional[MtuLimit]:
    """Return the largest datagram MTU of port, link and policy; None if unknown.

    The broadcast group may allow less: the kernel does not show the group's MTU, only
    its effect on the netdev's.
    """
    port, limit = interface.port, port_limit(interface)
    # A port whose own MTU changes limits the link only until then.
    by_port = (
        planned_port_mtu(interface) is not None and port.active_mtu == port.max_mtu
    )
    if port.active_mtu is None or not port.is_active or by_port:
        return limit
    why = f"the link has MTU {port.active_mtu}, limited by its other end"
    link = MtuLimit(port.active_mtu - HEADER, why)
    return link if limit is None or link.mtu < limit.mtu else limit


def mtu_limit(interface: Interface, mode: Optional[str]) -> Optional[MtuLimit]:
    """Return the largest MTU in ``mode``; None if the limit or the mode is unknown."""
    if mode == CONNECTED:
        return MtuLimit(CONNECTED_MTU, "IPoIB supports no more")
    return datagram_limit(interface) if mode == DATAGRAM else None


def planned_port_mtu(interface: Interface) -> Optional[int]:
    """Return the port MTU in bytes that the plan sets; None if it is unchanged."""
    wanted = interface.policy.port_mtu
    unchanged = no_port_mtu(interface) or wanted == port_mtu_of(interface)
    return None if unchanged else wanted


def no_port_mtu(place: Union[Port, Interface]) -> str:
    """Return why the port's own MTU cannot be set; empty if it can.

    Only mlx4 has it, for InfiniBand ports, but not on virtual functions, or while there
    are some (drivers/net/ethernet/mellanox/mlx4/main.c, mlx4_init_port_info).
    """
    adapter, driver = place.adapter, place.device.driver
    function = bool(adapter and adapter.physical_function)
    if driver != MLX4 or function or not place.port.is_infiniband:
        of = f"{'a virtual function' if function else 'a port'} of {driver}"
        only = "only InfiniBand ports of physical functions of mlx4 have that setting"
        return f"{only}, and this is {of} ({place.port.link_layer})"
    if adapter and adapter.vfs:
        return f"mlx4 does not allow it while there are {adapter.vfs} VFs"
    if port_mtu_of(place) is None:
        return "the driver does not show it (mlx4_portN_mtu)"
    return ""


def port_mtu_of(place: Union[Port, Interface]) -> Optional[int]:
    """Return the ``mlx4_portN_mtu`` of the port in bytes; None if it has none."""
    mtus, number = place.adapter.port_mtus if place.adapter else (), place.port.number
    return mtus[number - 1] if 1 <= number <= len(mtus) else None


def tso_of(netdev: Netdev) -> Optional[Tso]:
    """Return the TSO features of ``netdev``; None if ethtool did not report them."""
    features = [o for o in netdev.offloads if o.name in TSO_FEATURES]
    if not features:
        return None
    return Tso(
        tuple(f.name for f in features if f.on),
        tuple(f.name for f in features if not f.fixed),
        tuple(f.name for f in features if not f.on and f.requested),
    )


def no_tso(interface: Interface) -> Optional[str]:
    """Return why there is no TSO in datagram mode; empty if there is; None: unknown."""
    if is_connectx_a0(interface.device):
        return "a ConnectX of revision a0 must not use TSO"
    tso = tso_of(interface.netdev)
    if tso is None:
        return None
    return "" if tso.on or tso.changeable else "the driver does not support TSO"


# VDSM's MTU if the network has none (lib/vdsm/network/nmstate/bridge_util.py).
VDSM_DEFAULT = 1500

NETWORK, BOND, POLICY = "network", "bond", "policy"


@dataclass(frozen=True)
class DecidedMtu:
    """The MTU of a netdev in a mode; MTUs are in bytes.

    by: NETWORK, BOND, POLICY or PROFILE; empty if none of them has an MTU
    who: its name in a sentence
    wanted: its MTU; None for the largest
    limit: the largest in that mode; None if it is unknown
    """

    by: str
    who: str
    wanted: Optional[int]
    limit: Optional[MtuLimit]

    @property
    def too_large(self) -> bool:
        """Whether network, bond or policy want more than the mode allows."""
        return (
            self.by in (NETWORK, BOND, POLICY)
            and self.limit is not None
            and self.wanted is not None
            and self.wanted > self.limit.mtu
        )

    @property
    def mtu(self) -> Optional[int]:
        """The MTU to set; None if that is the largest, and unknown.

        It is above the limit only if the policy's is, which is refused. A profile's
        number may be of the other mode, so it is lowered.
        """
        if self.limit is None:
            return self.wanted
        if self.wanted is None:
            return self.limit.mtu
        return self.wanted if self.by == POLICY else min(self.wanted, self.limit.mtu)


def decided_mtu(view: View, interface: Interface, mode: Optional[str]) -> DecidedMtu:
    """Return the MTU of ``interface`` in ``mode``, which need not be its present one;
    None for an unknown mode.

    In datagram mode the broadcast group may reduce it, see :func:`may_be_group_mtu`.
    """
    return DecidedMtu(*_decider(view, interface), mtu_limit(interface, mode))


def _decider(view: View, interface: Interface) -> tuple[str, str, Optional[int]]:
    """Return who decides, its name for a sentence, and the MTU."""
    network = interface.network
    if network:
        return NETWORK, f"network {network.name!r}", network.mtu or VDSM_DEFAULT
    for name in bonds_of(view, interface):
        bond = view.netdev(name)
        return BOND, name, bond.mtu if bond else interface.netdev.mtu
    wanted = interface.policy.mtu
    if wanted is not None:
        return POLICY, "the policy", None if wanted == AUTO else int(wanted)
    stored = settings_of(view, interface).number(MTU)
    return (PROFILE, "its profile", stored) if stored is not None else ("", "", None)


def may_be_group_mtu(interface: Interface, wanted: int) -> bool:
    """Whether the broadcast group's MTU may keep the present MTU below ``wanted``."""
    mtu = interface.netdev.mtu
    return interface.mode == DATAGRAM and mtu in GROUP_MTUS and mtu < wanted


@dataclass(frozen=True)
class Choice:
    """The ``mode``, a clause with the ``reason`` for it, and one why it is not possible
    (``refused``; empty if it is). ``unknown``: what would decide is not known.
    """

    mode: str
    reason: str
    refused: str = ""
    unknown: bool = False


def choose_mode(view: View, interface: Interface) -> Optional[Choice]:
    """Return the mode that the policy sets for ``interface``; None if it sets none."""
    wanted = interface.policy.transport_mode
    if wanted is None:
        return None
    now = interface.mode
    unchangeable = no_mode_file(interface)
    if wanted == AUTO:
        if now and unchangeable:
            return Choice(now, unchangeable)
        return _best(view, interface)
    refused = no_connected_mode(view, interface) if wanted == CONNECTED else ""
    if now not in (None, wanted):
        refused = refused or unchangeable
        if wanted == DATAGRAM:
            refused = refused or too_large_for_datagrams(view, interface)
    return Choice(wanted, "the policy requires it", refused)


def asked_mode(view: View, interface: Interface) -> Optional[str]:
    """Return the mode that the logical network asks for by ipoib_mode, or None."""
    asked = interface.network.ipoib_mode if interface.network else None
    if asked == AUTO:
        return _best(view, interface).mode
    return asked if asked in (DATAGRAM, CONNECTED) else None


def _best(view: View, interface: Interface) -> Choice:
    impossible = no_connected_mode(view, interface)
    if impossible:
        return Choice(DATAGRAM, impossible, unknown=impossible == MODE_UNKNOWN)
    too_large = too_large_for_datagrams(view, interface)
    if too_large and not decided_mtu(view, interface, CONNECTED).too_large:
        return Choice(CONNECTED, too_large)
    driver, without_tso = interface.device.driver, no_tso(interface)
    if driver == HFI1:
        why = "on Omni-Path it carries up to 10236 bytes and scales better"
        return Choice(DATAGRAM, why)
    if driver is None or without_tso is None:
        why = "the driver, or its TSO state, is unknown, which decides"
        return Choice(interface.mode or DATAGRAM, why, unknown=True)
    if without_tso:
        why = f"{without_tso}, and packets of {CONNECTED_MTU} bytes cost less CPU"
        return Choice(CONNECTED, why)
    why = "it keeps TSO and checksum offload, and scales with the number of peers"
    return Choice(DATAGRAM, why)


def planned_mode(view: View, interface: Interface) -> Optional[str]:
    """Return the mode that ``interface`` has once the plan is applied."""
    now = interface.mode
    choice = choose_mode(view, interface)
    if choice is None or choice.refused or settings_of(view, interface).blocked:
        return now
    return choice.mode


def mode_for_mtu(view: View, interface: Interface) -> Optional[str]:
    """Return the planned mode, or the one that only the MTU prevents."""
    choice = choose_mode(view, interface)
    too_large = too_large_for_datagrams(view, interface)
    if choice and choice.refused and choice.refused == too_large:
        return DATAGRAM
    return planned_mode(view, interface)


def too_large_for_datagrams(view: View, interface: Interface) -> str:
    """Return why the MTU that is asked for fits no datagram; empty if it does."""
    decided = decided_mtu(view, interface, DATAGRAM)
    if decided.limit is None or not decided.too_large:
        return ""
    wanted = f"MTU {decided.wanted} ({decided.who})"
    return f"{wanted} does not fit a datagram: {decided.limit.reason}"


# The kernel names a child "%.10s.%04x".
PARENT_LENGTH = 10


@dataclass(frozen=True)
class WantedChild:
    """A child that the policy requires on ``parent``, a port's base netdev.

    pkey: such as ``0x8001``, with bit 15 set, as the kernel sets it
    name: the name that the kernel gives it; if it exists, its present name
    member: the port's P_Key table entry for the partition (``0x0001``: limited member),
        None if the table has none
    refused: why it cannot be created, and its ``fix``
    """

    parent: Interface
    pkey: str
    name: str
    exists: bool
    member: Optional[str]
    refused: str = ""
    fix: str = ""


@once_per_view
def required_children(view: View) -> tuple[WantedChild, ...]:
    """Return the children that the policy requires, port by port."""
    present = {
        (interface.parent, partition_of(interface.pkey)): interface.name
        for interface in view.ipoib
        if interface.parent
    }
    taken = {netdev.name for netdev in view.facts.netdevs}
    wanted = []
    for parent in view.ipoib:
        if parent.is_child:
            continue
        keys = (int(text, 16) for text in parent.policy.pkey_children)
        named = tuple(dict.fromkeys(map(partition_bits, keys)))
        for partition in followed_partitions(parent) if parent.follows else named:
            pkey = full_member(partition)
            existing = present.get((parent.name, partition))
            name = existing or f"{parent.name[:PARENT_LENGTH]}.{pkey[2:]}"
            refused, fix = "", ""
            if not existing:
                refused, fix = _refused(view, parent, partition, name)
            if not existing and name in taken:
                refused = f"another netdev {name} exists, or will exist"
                name = f"{parent.name}.{pkey[2:]}"
            taken.add(name)
            member = table_entry(parent.port, partition)
            wanted.append(
                WantedChild(parent, pkey, name, bool(existing), member, refused, fix)
            )
    return tuple(wanted)


def followed_partitions(parent: Interface) -> tuple[int, ...]:
    """Return the partitions of the port of ``parent``, in the order of its table.

    Without the default partition and the base netdev's own, which is at index 0
    (ipoib_parent_init in drivers/infiniband/ulp/ipoib/ipoib_main.c).
    """
    excluded = {None, DEFAULT_PARTITION, partition_of(parent.pkey)}
    excluded |= {partition_of(e.value) for e in parent.port.pkeys if e.index == 0}
    partitions = (partition_of(entry.value) for entry in parent.port.pkeys)
    return tuple(
        dict.fromkeys(p for p in partitions if p is not None and p not in excluded)
    )


def planned_children(view: View) -> tuple[Interface, ...]:
    """Return the children that the plan creates, with their values right after."""
    children = required_children(view)
    return tuple(
        _planned(view, child)
        for child in children
        if not (child.exists or child.member is None or child.refused)
    )


def _planned(view: View, child: WantedChild) -> Interface:
    parent, limit = child.parent, port_limit(child.parent)
    netdev = replace(
        parent.netdev,
        name=child.name,
        mtu=limit.mtu if limit else parent.netdev.mtu,
        driver="ipoib",
        operstate="down",
        carrier=None,
        uppers=(),
        lowers=(),
        addresses=(),
        ipoib=Ipoib(DATAGRAM, child.pkey, parent.name),
    )
    wanted = interface_rule_for(view.policy.host, netdev, parent.device, parent.port)
    unused = replace(parent, profile=None, network=None)
    return replace(unused, netdev=netdev, wanted=wanted, planned=True)


@once_per_view
def parents_first(view: View) -> tuple[Interface, ...]:
    """Return all IPoIB netdevs, planned ones included, parents before children."""
    everything = (*view.ipoib, *planned_children(view))
    return tuple(sorted(everything, key=lambda i: (i.is_child, i.name)))


NO_NETDEV = "this host has no IPoIB netdev"


def of_netdevs(
    rule: str,
    judge: Callable[[View, About, Interface], Iterable[Outcome]],
    otherwise: str = NO_NETDEV,
    applies: Callable[[Interface], bool] = lambda _: True,
) -> Rule:
    """Return a rule about IPoIB netdevs; planned ones have steps only."""

    def check(view: View) -> Iterator[Outcome]:
        for one in filter(applies, parents_first(view)):
            for outcome in judge(view, About(rule, one.name), one):
                if not one.planned or isinstance(outcome, Step):
                    yield outcome

    return Rule(rule, check, otherwise)


def table_entry(port: RdmaPort, partition: int) -> Optional[str]:
    """Return the port's entry for ``partition``, a full member's first, or None."""
    entries = [e.value for e in port.pkeys if partition_of(e.value) == partition]
    return max(entries, key=lambda value: int(value, 16), default=None)


def _refused(
    view: View, parent: Interface, partition: int, name: str
) -> tuple[str, str]:
    """Return why a child cannot be created, and the fix; empty if it can."""
    of_child = (
        profile
        for profile in view.profiles
        if profile.type == INFINIBAND_TYPE and is_persistent(profile)
        if profile.interface_name == name
        or (
            profile.value(PARENT) == parent.name
            and partition_of(profile.value(P_KEY)) == partition
        )
    )
    profile = next(of_child, None) if parent.name in view.managed else None
    if partition_of(parent.pkey) == partition:
        return f"{parent.name} itself is in that partition", ""
    if parent.name in view.managed and len(parent.name) > PARENT_LENGTH:
        names = f"the kernel names children by the first {PARENT_LENGTH} letters of "
        return names + f"{parent.name}, and NetworkManager expects another name", ""
    if profile is None:
        return manager_unknown(view), ""
    return (
        f"the profile {profile.name!r} is for this child, but NetworkManager has not "
        "activated it",
        f"nmcli connection up {profile.uuid}; or delete it, and apply creates one",
    )


def _children(view: View) -> Iterator[Outcome]:
    required = required_children(view)
    named = {child.name for child in required}
    for child in required:
        yield from _wanted(view, child)
    for interface in view.ipoib:
        about, port = About(CHILDREN.id, interface.name), interface.port_name
        if interface.is_child and interface.name not in named:
            yield _existing(about, interface)
        if not interface.follows or followed_partitions(interface):
            continue
        if interface.port.pkeys:
            none = f"{port} is in no partition that needs a child of {interface.name}"
            yield about.passes(none)
        else:
            unread = f"the P_Key table of {port} could not be read"
            yield about.fails(f"{unread}, so no child follows it")
    for place in view.ports:
        keys = [r for r in place.rules if r.pkey_children or r.partitions]
        if keys and not any(one.is_ipoib for one in view.on_port(place)):
            wanted = ", ".join(keys[0].pkey_children) or f"partitions: {FOLLOW}"
            yield About(CHILDREN.id, place.name).fails(
                f"{place.name} has no IPoIB netdev for the children of "
                f"{keys[0].title} ({wanted})",
                "modprobe ib_ipoib, and see IB-PORT-01 and DRIVER-01; a RoCE port has "
                "no IPoIB",
            )


def _wanted(view: View, child: WantedChild) -> Iterator[Outcome]:
    name, parent, port = child.name, child.parent, child.parent.port_name
    about = About(CHILDREN.id, name)
    if child.member is None:
        table = f"the P_Key table of {port} could not be read"
        if parent.port.pkeys:
            table = f"the P_Key table of {port} has no {child.pkey}"
        state = f"{name} has no carrier" if child.exists else f"{name} is not created"
        guid = (parent.port.guid or "GUID").replace(":", "")
        yield about.fails(
            f"{table}, so {state}",
            "add the port to the partition in the subnet manager (opensm's "
            f"partitions.conf: NAME=0x{partition_bits(int(child.pkey, 16)):04x},ipoib "
            f": 0x{guid}=full ;)",
        )
        return
    limited = not is_full_member(child.member)
    sentence = f"{name} {'exists' if child.exists else 'will be created'}, for P_Key "
    sentence += child.pkey
    if not child.exists:
        rule = parent.wanted.title if parent.wanted else "the policy"
        why = f"; {child.refused}" if child.refused else ""
        missing = f"{rule} requires {name}, which does not exist{why}"
        yield about.fails(missing, child.fix)
        yield _step(view, about, child)
    elif not limited:
        yield about.passes(sentence)
    if limited:
        yield about.warns(
            f"{sentence}, of which {port} is a limited member: it reaches full members "
            "only",
            "unless this is intended, set the port to full member in the subnet "
            "manager's partitions (=full in partitions.conf)",
        )


def _step(view: View, about: About, child: WantedChild) -> Step:
    parent, name, pkey = child.parent.name, child.name, child.pkey
    if parent in view.managed:
        planned = [i for i in parents_first(view) if i.planned and i.name == name]
        choice = choose_mode(view, planned[0]) if planned else None
        mode = DATAGRAM if choice is None or choice.refused else choice.mode
        changes = new_profile(name, mode, parent, pkey)
        after = f"profile {name!r} on {parent}, P_Key {pkey}, {mode} mode"
        undo = f"deletes the profile, and NetworkManager removes {name}"
    else:
        folder = f"{NET_CLASS}/{parent}"
        changes = (Change(SYSFS, f"{folder}/create_child", None, pkey),)
        after = f"{name} on {parent}, P_Key {pkey}"
        undo = f"writes {pkey} to {folder}/delete_child"
    return about.step(
        f"create {name}",
        "none",
        after,
        LIVE,
        reason="the children follow the port's P_Key table"
        if child.parent.follows
        else "the policy requires it, and the port is a member of its partition",
        undo=undo,
        changes=changes,
        refused=child.refused,
    )


def _existing(about: About, interface: Interface) -> Finding:
    name, partition = interface.name, partition_of(interface.pkey)
    shown = f"{name} (P_Key {interface.pkey})"
    if partition is None:
        return about.warns(f"the P_Key of {name} could not be read")
    if not interface.port.pkeys:
        unread = f"the P_Key table of {interface.port_name} could not be read"
        return about.skips(f"{shown}: {unread}")
    if table_entry(interface.port, partition):
        return about.passes(f"{shown} is in a partition of its port")
    return about.warns(
        f"{shown} has no carrier: its P_Key is not in the port's table",
        "add the port to the partition in the subnet manager (the child then comes up "
        "by itself), or remove the child; with partitions: follow the daemon removes "
        "those of ours that are not in use",
    )


def _follower(view: View) -> Iterator[Outcome]:
    about = About(FOLLOWER.id)
    parents = ", ".join(interface.name for interface in view.ipoib if interface.follows)
    present = view.own_file(FOLLOW_PARTITIONS)
    if not parents:
        none = "no rule with partitions: follow applies to an IPoIB netdev here"
        left = f"there is {FOLLOW_PARTITIONS}, but {none}; the children are unchanged"
        revert = f"ovirt-rdma-host revert {FOLLOWER.id}/{HOST}"
        yield about.warns(left, revert) if present else about.skips(none)
        return
    wanted = own_text(["partitions: follow"])
    if present and present.text == wanted:
        yield about.passes(f"the daemon may change the children of {parents}")
        return
    refused = foreign_reason(FOLLOW_PARTITIONS, present.text) if present else ""
    yield about.fails(
        f"the children of {parents} should follow the P_Key table, but "
        + (refused or f"{FOLLOW_PARTITIONS} does not allow it")
    )
    before = present.text if present else None
    yield about.step(
        "let the daemon make and remove P_Key children",
        "none",
        "allowed",
        LIVE,
        reason="the kernel sends no event for a new P_Key, so the daemon reads the "
        "table every few seconds",
        undo=f"{FOLLOW_PARTITIONS} is removed; the children stay",
        changes=(Change(FILE, FOLLOW_PARTITIONS, before, wanted),),
        refused=refused,
    )


CHILDREN = Rule(
    "IPOIB-PKEY-01",
    _children,
    "there are no P_Key children, and the policy requires none",
)
FOLLOWER = Rule("IPOIB-PKEY-02", _follower)
