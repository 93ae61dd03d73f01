# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the rules' statements about the kernel with the kernel's own ib_ipoib.

These are the values that it accepts, refuses, and changes by itself. Also execute
plans: ``decide`` uses facts of a guest, and the kernel must do what the plan wants.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from support.host import ipoib_kernel

from lab import modules
from lab.guest import Guest
from lab.infiniband import InfiniBand, PciFunction
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.infiniband import ACTIVE_BACKUP, CONNECTED_MTU, HEADER
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import FAIL, OFFLOAD, SYSFS, Step
from ovirt_rdma.host.rules.ipoib import PARENT_LENGTH
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.kernels("6.12")

# ConnectX-2: like the first ConnectX, except for that one's revision a0.
CONNECTX_2 = PciFunction(revision=0xB0, driver="mlx4_core")
CONNECTX_A0 = PciFunction(revision=0xA0, driver="mlx4_core")
UD_2K, UD_4K = 2048 - HEADER, 4096 - HEADER
NET = "/sys/class/net"
WAIT = "for i in {1..3000}; do [ \"$(%s)\" = '%s' ] && break; sleep 0.1; done; %s"


# ---- Single writes and calls.

# The shell functions that test claims: bash builtins where possible, because programs
# are slow under emulation. ``put`` prints ``taken``, or the kernel's text for the
# errno; ``call`` runs a tool and prints the same.
SHELL = f"""
N={NET}
TSO=tx-tcp-segmentation
put() {{
    local said
    said=$( {{ printf "$1" > "$2"; }} 2>&1 ) && echo taken || echo "${{said##*: }}"
}}
call() {{
    local said
    said=$("$@" 2>&1 >/dev/null) && echo taken || echo "${{said##*: }}"
}}
mode() {{ put "$1\\n" $N/ib0/mode; }}
mtu() {{ put "$1\\n" $N/${{2:-ib0}}/mtu; }}
child() {{ put "$1\\n" $N/ib0/create_child; }}
delete() {{ put "$1\\n" $N/ib0/delete_child; }}
show() {{ local text; read -r text < $N/$1/$2 && echo "$text"; }}
there() {{ [ -e $N/$1 ] && echo there || echo none; }}
# What delete_child takes away goes soon after.
gone() {{
    for i in {{1..3000}}; do [ -e $N/$1 ] || break; sleep 0.1; done
    there $1
}}
feature() {{
    ethtool -k ${{2:-ib0}} | while read -r name state; do
        [ $name != $1: ] || echo "$state"
    done
}}
"""
# The values that are restored after each claim.
BACK = """
for made in $N/ib0.* $N/rtnl* $N/br* $N/bond[0-9]* $N/dummy*; do
    [ ! -e $made ] || ip link del ${made##*/} 2>/dev/null || [ ! -e $made ]
done
read -r flags < $N/ib0/flags
(( flags & 1 )) || ip link set ib0 up
echo datagram > $N/ib0/mode
read -r most < /sys/module/ib_fabric/parameters/hca_mtu
echo $((most - 4)) > $N/ib0/mtu
"""
BACK_TSO = "ethtool -K ib0 $TSO on"


@dataclass(frozen=True)
class Claim:
    """A claim of ``rule``: ``lines`` print ``says``."""

    rule: str
    what: str
    lines: str
    says: str


def claims(prefix: str, found: tuple[Claim, ...]) -> list[object]:
    """Return the claims as parameters of a test, with ids that name the rules."""
    names = [f"{prefix}{claim.rule}: {claim.what}" for claim in found]
    return [pytest.param(claim, id=name) for claim, name in zip(found, names)]


REFUSED, NOT_UNIQUE = "Invalid argument", "Name not unique on network"
ABOVE = "mtu greater than device maximum."
OFFLOAD_SAYS_NO = "off [requested on]"

ON_4K = (
    Claim(
        "IPOIB-MODE-01",
        "the address's first byte says that connections are taken",
        "address=$(show ib0 address); echo ${address:0:2}; mode connected",
        "80\ntaken",
    ),
    Claim(
        "IPOIB-MODE-02",
        "a mode without a newline is refused",
        "put connected $N/ib0/mode; show ib0 mode; mode connected; show ib0 mode",
        f"{REFUSED}\ndatagram\ntaken\nconnected",
    ),
    Claim(
        "IPOIB-MODE-01",
        "there are two modes",
        "mode Connected; mode ud; show ib0 mode",
        f"{REFUSED}\n{REFUSED}\ndatagram",
    ),
    Claim(
        "IPOIB-MODE-01",
        "a mode that is there already is taken",
        "mode datagram; mode connected; mode connected",
        "taken\ntaken\ntaken",
    ),
    Claim(
        "IPOIB-MODE-01",
        "connected mode is set on a netdev that is up",
        "mode connected; show ib0 operstate",
        "taken\nup",
    ),
    Claim(
        "IPOIB-MODE-01",
        "connected mode sets its own MTU and takes offloads away",
        "feature $TSO; mode connected; show ib0 mtu; feature $TSO; "
        "feature tx-checksum-ipv4",
        f"on\ntaken\n{CONNECTED_MTU}\n{OFFLOAD_SAYS_NO}\n{OFFLOAD_SAYS_NO}",
    ),
    Claim(
        "IPOIB-MODE-01",
        "datagram mode lowers the MTU to the group's and gives offloads back",
        "mode connected; mode datagram; show ib0 mtu; feature $TSO; "
        "feature tx-checksum-ipv4",
        f"taken\ntaken\n{UD_4K}\non\non",
    ),
    Claim(
        "IPOIB-MODE-01",
        "datagram mode leaves an MTU that fits",
        "mode connected; mtu 1500; mode datagram; show ib0 mtu",
        "taken\ntaken\ntaken\n1500",
    ),
    Claim(
        "IPOIB-TSO-02",
        "connected mode has none, and says so",
        "mode connected; call ethtool -K ib0 $TSO on; feature $TSO",
        f"taken\nCould not change any device features\n{OFFLOAD_SAYS_NO}",
    ),
    Claim(
        "IPOIB-TSO-02",
        "what was off before connected mode stays off after it",
        "call ethtool -K ib0 $TSO off; mode connected; feature $TSO; mode datagram; "
        "feature $TSO",
        "taken\ntaken\noff\ntaken\noff",
    ),
    Claim(
        "IPOIB-TSO-01",
        "a value that is set in connected mode can be reverted there",
        "mode connected; ethtool -K ib0 $TSO off; feature $TSO; mode datagram; "
        "feature $TSO",
        "taken\noff\ntaken\noff",
    ),
    Claim(
        "IPOIB-TSO-02",
        "a fixed feature is not changed",
        "feature tx-tcp6-segmentation; call ethtool -K ib0 tx-tcp6-segmentation on",
        "off [fixed]\nCould not change any device features",
    ),
    Claim(
        "IPOIB-MTU-01",
        "connected mode carries up to its largest",
        f"mode connected; mtu {CONNECTED_MTU}; mtu {CONNECTED_MTU + 1}; "
        f"call ip link set ib0 mtu {CONNECTED_MTU + 1}; show ib0 mtu",
        f"taken\ntaken\n{REFUSED}\n{ABOVE}\n{CONNECTED_MTU}",
    ),
    Claim(
        "IPOIB-MTU-01",
        "a datagram takes no more than the port",
        f"mtu {UD_4K}; mtu {UD_4K + 1}; call ip link set ib0 mtu {UD_4K + 1}; "
        "show ib0 mtu",
        f"taken\n{REFUSED}\n{REFUSED}\n{UD_4K}",
    ),
    Claim(
        "IPOIB-MTU-01",
        "the MTU of connected mode is refused before the mode is set",
        f"mtu {CONNECTED_MTU}; mode connected; mtu {CONNECTED_MTU}",
        f"{REFUSED}\ntaken\ntaken",
    ),
    Claim(
        "IPOIB-MTU-01",
        "an MTU that is set before the mode is lost",
        "mtu 2044; mode connected; show ib0 mtu",
        f"taken\ntaken\n{CONNECTED_MTU}",
    ),
    Claim(
        "IPOIB-MTU-01",
        "the largest MTU that ip shows says nothing",
        "ip -d link show ib0 | grep -o 'maxmtu [0-9]*'",
        f"maxmtu {CONNECTED_MTU}",
    ),
    Claim(
        "IPOIB-PKEY-01",
        "no child without a partition, or of one that cannot be",
        "for key in 0 0x8000 0x10000 key; do child $key; done",
        "\n".join([REFUSED] * 4),
    ),
    Claim(
        "IPOIB-PKEY-01",
        "a child is named after the P_Key as it is written, and is a full member",
        "child 0x8001; show ib0.8001 pkey; child 0x0002; show ib0.0002 pkey; "
        "show ib0.0002 parent",
        "taken\n0x8001\ntaken\n0x8002\nib0",
    ),
    Claim(
        "IPOIB-PKEY-01",
        "the same child twice is refused",
        "child 0x8001; child 0x8001",
        f"taken\n{NOT_UNIQUE}",
    ),
    Claim(
        "IPOIB-PKEY-01",
        "a child for the parent's own partition is refused",
        "child 0xffff",
        NOT_UNIQUE,
    ),
    # So bit 15 is always written: the kernel compares before it sets the bit.
    Claim(
        "IPOIB-PKEY-01",
        "the same partition written without bit 15 is not refused",
        "child 0x8001; child 0x0001; show ib0.0001 pkey",
        "taken\ntaken\n0x8001",
    ),
    Claim(
        "IPOIB-PKEY-01",
        "a child goes by the value with bit 15",
        "child 0x8001; delete 0x0001; delete 0x8001; gone ib0.8001",
        "taken\nNo such device\ntaken\nnone",
    ),
    Claim(
        "IPOIB-PKEY-01",
        "a child has no children",
        "child 0x8001; there ib0.8001/create_child; "
        "call ip link add link ib0.8001 name rtnl1 type ipoib pkey 0x8002",
        f"taken\nnone\n{REFUSED}",
    ),
    Claim(
        "IPOIB-PKEY-01",
        "a child whose parent's name is long is named by its first letters",
        "ip link set ib0 down; ip link set ib0 name infiniband0; "
        "put '0x8001\\n' $N/infiniband0/create_child; "
        f"there {'infiniband0'[:PARENT_LENGTH]}.8001; "
        "put '0x8001\\n' $N/infiniband0/delete_child; ip link set infiniband0 name ib0",
        "taken\nthere\ntaken",
    ),
    Claim(
        "IPOIB-PKEY-01",
        "a child starts in datagram mode, with the port's MTU, and is not up",
        "mode connected; child 0x8001; show ib0.8001 mode; show ib0.8001 mtu; "
        "show ib0.8001 operstate",
        f"taken\ntaken\ndatagram\n{UD_4K}\ndown",
    ),
    Claim(
        "IPOIB-MODE-01",
        "a child has a mode of its own",
        "child 0x8001; put 'connected\\n' $N/ib0.8001/mode; show ib0.8001 mtu; "
        "show ib0 mode",
        f"taken\ntaken\n{CONNECTED_MTU}\ndatagram",
    ),
    Claim(
        "IPOIB-TSO-01",
        "a child has a TSO of its own",
        "child 0x8001; call ethtool -K ib0 $TSO off; feature $TSO ib0.8001; "
        "call ethtool -K ib0.8001 $TSO off; feature $TSO ib0.8001",
        "taken\ntaken\non\ntaken\noff",
    ),
    Claim(
        "IPOIB-MODE-01",
        "a child made by ip link has no sysfs file for its mode",
        "call ip link add link ib0 name rtnl1 type ipoib pkey 0x8001; "
        "for f in mode umcast pkey parent; do there rtnl1/$f; done",
        "taken\nnone\nnone\nnone\nnone",
    ),
    Claim(
        "IPOIB-MTU-01",
        "one whose mode is known by ip only has the same limits",
        "call ip link add link ib0 name rtnl1 type ipoib pkey 0x8001 mode connected; "
        f"show rtnl1 mtu; mtu {CONNECTED_MTU + 1} rtnl1; "
        f"call ip link set rtnl1 type ipoib mode datagram; mtu {UD_4K + 1} rtnl1",
        f"taken\n{CONNECTED_MTU}\n{REFUSED}\ntaken\n{REFUSED}",
    ),
    Claim(
        "IPOIB-BOND-01",
        "a bridge takes none",
        "ip link add br0 type bridge; call ip link set ib0 master br0",
        REFUSED,
    ),
    Claim(
        "IPOIB-BOND-01",
        "no VLAN on top",
        "call ip link add link ib0 name ib0.7 type vlan id 7",
        "VLANs not supported on device.",
    ),
    *(
        Claim(
            "IPOIB-BOND-01",
            f"no bond in mode {mode}",
            f"ip link set ib0 down; ip link add bond0 type bond mode {mode}; "
            "call ip link set ib0 master bond0",
            "Only active-backup mode is supported for infiniband slaves.",
        )
        for mode in ("balance-rr", "balance-xor", "broadcast", "balance-alb")
    ),
    Claim(
        "IPOIB-BOND-01",
        "a bond in active-backup sets fail_over_mac itself, and its members' MTU",
        f"ip link set ib0 down; ip link add bond0 type bond mode {ACTIVE_BACKUP[0]}; "
        "show bond0 bonding/fail_over_mac; call ip link set ib0 master bond0; "
        "show bond0 bonding/fail_over_mac; show ib0 mtu; "
        "call ip link set bond0 mtu 2044; show ib0 mtu",
        "none 0\ntaken\nactive 1\n1500\ntaken\n2044",
    ),
    Claim(
        "IPOIB-BOND-01",
        "no Ethernet beside it",
        f"ip link set ib0 down; ip link add bond0 type bond mode {ACTIVE_BACKUP[0]}; "
        "call ip link set ib0 master bond0; ip link add dummy0 type dummy; "
        "call ip link set dummy0 master bond0",
        "taken\nDevice type is different from other slaves.",
    ),
)
WITHOUT_TSO_2K = (
    Claim(
        "IPOIB-TSO-02",
        "an HCA without TSO offers none",
        "feature $TSO; call ethtool -K ib0 $TSO on",
        "off [fixed]\nCould not change any device features",
    ),
    Claim(
        "IPOIB-MTU-01",
        "a port of 2048 refuses more",
        f"show ib0 mtu; mtu {UD_2K + 1}; mtu {UD_4K}; show ib0 mtu",
        f"{UD_2K}\n{REFUSED}\n{REFUSED}\n{UD_2K}",
    ),
    Claim(
        "IPOIB-MODE-01",
        "connected mode has its MTU whatever the port's",
        "mode connected; show ib0 mtu; mode datagram; show ib0 mtu",
        f"taken\n{CONNECTED_MTU}\ntaken\n{UD_2K}",
    ),
)
WITHOUT_SM = (
    Claim(
        "IB-PORT-01",
        "without a subnet manager there is no carrier",
        "show ib0 carrier; cat /sys/class/infiniband/mlx4_0/ports/1/{state,sm_lid}",
        "0\n2: INIT\n0x0",
    ),
    Claim(
        "IPOIB-MODE-01",
        "the mode changes without a carrier",
        "mode connected; show ib0 mtu; mode datagram; show ib0 mode",
        f"taken\n{CONNECTED_MTU}\ntaken\ndatagram",
    ),
    Claim(
        "IPOIB-MTU-01",
        "the MTU changes without a carrier",
        f"mtu {UD_2K}; show ib0 mtu; mtu {UD_4K + 1}",
        f"taken\n{UD_2K}\n{REFUSED}",
    ),
)


def put_to(guest: Guest, fabric: InfiniBand, found: tuple[Claim, ...]) -> list[str]:
    """Return the output of the lines of each claim on ``fabric``, from one run."""
    replace_fabric(guest, fabric)
    lines = [SHELL]
    for one in found:
        lines.append(f"( {one.lines} ) 2>&1; {BACK}")
        if fabric.tso and "ethtool -K" in one.lines:
            lines.append(BACK_TSO)
        lines.append("echo ===")
    printed = guest.run("\n".join(lines), timeout=300)
    assert printed.stderr == "", printed.stderr
    return printed.stdout.split("===\n")[:-1]


def replace_fabric(guest: Guest, fabric: InfiniBand) -> None:
    guest.run("[ ! -e /sys/module/ib_fabric ] || rmmod ib_fabric", check=True)
    fabric.load(guest)


Printed = Mapping[Claim, str]


@pytest.fixture(scope="module")
def printed(guest: Guest) -> Printed:
    """The output of the lines of every claim."""
    modules.load(guest, "bonding", "bridge", "8021q", "dummy")
    fabrics = (
        (InfiniBand(hcas=1, pkeys=(0xFFFF, 0x8001), pci=CONNECTX_2), ON_4K),
        (InfiniBand(hcas=1, hca_mtu=2048, group_mtu=2048, tso=False), WITHOUT_TSO_2K),
        (InfiniBand(hcas=1, subnet_manager=False), WITHOUT_SM),
    )
    found: dict[Claim, str] = {}
    for fabric, put in fabrics:
        found.update(zip(put, put_to(guest, fabric, put)))
    return found


# The kernel does not change with this source; the plans below are tried in make check.
@pytest.mark.faults
@pytest.mark.parametrize(
    "claim",
    [
        *claims("", ON_4K),
        *claims("no TSO, 2K: ", WITHOUT_TSO_2K),
        *claims("no SM: ", WITHOUT_SM),
    ],
)
def test_the_kernel_does_as_the_rule_says(printed: Printed, claim: Claim) -> None:
    assert printed[claim].splitlines() == claim.says.splitlines()


# ---- Changes by the subnet manager.


def waited(guest: Guest, path: str, value: str) -> str:
    """Return the content of ``path``, as soon as it is ``value`` or after 30 s."""
    see = f"cat {path}"
    return guest.run(WAIT % (see, value, see), timeout=60).stdout.strip()


@pytest.fixture
def on_4k(guest: Guest) -> InfiniBand:
    fabric = InfiniBand(hcas=1, pkeys=(0xFFFF, 0x8001), pci=CONNECTX_2)
    replace_fabric(guest, fabric)
    return fabric


def test_the_groups_mtu_decides_without_a_word(guest: Guest, on_4k: InfiniBand) -> None:
    """IPOIB-MTU-01: the netdev follows a smaller group MTU, and its own larger one."""
    mtu = f"{NET}/ib0/mtu"
    on_4k.set_group_mtu(guest, 2048)
    assert waited(guest, mtu, str(UD_2K)) == str(UD_2K)
    said = guest.run(f"ip link set ib0 mtu {UD_4K} && echo {UD_4K} > {mtu}; cat {mtu}")
    assert (said.stdout, said.stderr) == (f"{UD_2K}\n", "")
    on_4k.set_group_mtu(guest, 4096)
    assert waited(guest, mtu, str(UD_4K)) == str(UD_4K)


def test_connected_mode_does_not_follow_the_group(
    guest: Guest, on_4k: InfiniBand
) -> None:
    """IPOIB-MTU-01 and IPOIB-MODE-01: the change back to datagram mode does it."""
    guest.run(f"echo connected > {NET}/ib0/mode", check=True)
    on_4k.set_group_mtu(guest, 2048)
    guest.run("sleep 2")
    said = guest.run(f"cat {NET}/ib0/mtu; echo datagram > {NET}/ib0/mode")
    assert (said.stdout, said.stderr) == (f"{CONNECTED_MTU}\n", "")
    assert waited(guest, f"{NET}/ib0/mtu", str(UD_2K)) == str(UD_2K)


def test_a_child_has_a_carrier_while_its_partition_is_there(
    guest: Guest, on_4k: InfiniBand
) -> None:
    """IPOIB-PKEY-01: a child without its P_Key comes up later, and goes down."""
    guest.run(f"echo 0x8005 > {NET}/ib0/create_child", check=True)
    carrier = f"{NET}/ib0.8005/carrier"
    said = guest.run(f"ip link set ib0.8005 up && sleep 1 && cat {carrier}")
    assert said.stdout == "0\n"
    # A limited member is in it too: the low 15 bits are the partition.
    on_4k.set_pkeys(guest, "mlx4_0", (0xFFFF, 0x0005))
    assert waited(guest, carrier, "1") == "1"
    on_4k.set_pkeys(guest, "mlx4_0", (0xFFFF,))
    assert waited(guest, carrier, "0") == "0"


def test_a_port_without_cable_has_no_carrier(guest: Guest, on_4k: InfiniBand) -> None:
    """IB-PORT-01: a port keeps its state after its subnet manager has stopped."""
    port, carrier = "/sys/class/infiniband/mlx4_0/ports/1", f"{NET}/ib0/carrier"
    on_4k.set_subnet_manager(guest, False)
    assert waited(guest, f"{port}/state", "4: ACTIVE") == "4: ACTIVE"
    assert waited(guest, carrier, "1") == "1"
    on_4k.port_down(guest, "mlx4_0")
    assert waited(guest, carrier, "0") == "0"
    assert waited(guest, f"{port}/phys_state", "2: Polling") == "2: Polling"


# ---- Plans, executed.

# A permanent process reads facts: Python takes longer to start than to read.
READ = """
from ovirt_rdma.host.facts.model import to_json
from ovirt_rdma.host.collect.collector import HostReader
while True:
    open("/run/ask").read()
    with open("/run/answer", "w") as answer:
        answer.write(to_json(HostReader().facts()))
"""


@pytest.fixture(scope="module")
def reading(guest: Guest) -> None:
    guest.run("mkfifo /run/ask /run/answer", check=True)
    guest.start([sys.executable, "-c", READ])


def facts_of(guest: Guest) -> Facts:
    read = guest.run("echo > /run/ask; cat /run/answer", check=True).stdout
    facts = model.from_json_dict(json.loads(read), "the guest")
    assert facts.problems == ()
    return facts


def carry_out(guest: Guest, steps: Sequence[Step]) -> str:
    """Make the changes as ``apply`` does on a host without NetworkManager; return the
    error messages.
    """
    lines = []
    for change in (change for step in steps for change in step.changes):
        if change.kind == SYSFS:
            lines.append(f"echo {change.after} > {change.target}")
        else:
            assert change.kind == OFFLOAD, change
            lines.append(f"ethtool -K {change.target} {change.name} {change.after}")
    return guest.run("\n".join(lines)).stderr


def undo(guest: Guest, steps: Sequence[Step]) -> str:
    """Undo them as ``revert`` does; return the error messages, except for TSO, which
    ethtool -K cannot show as on in connected mode.
    """
    made = {step.subject for step in steps if step.rule == "IPOIB-PKEY-01"}
    lines = []
    for step in reversed(steps):
        for change in reversed(step.changes):
            if change.target.endswith("/create_child"):
                folder = change.target.rpartition("/")[0]
                lines.append(f"echo {change.after} > {folder}/delete_child")
            elif step.subject in made:
                continue  # disappears with its netdev
            elif change.kind == SYSFS:
                lines.append(f"echo {change.before} > {change.target}")
            else:
                what = f"{change.target} {change.name} {change.before}"
                lines.append(f"ethtool -K {what} 2>/dev/null")
    # The kernel removes children shortly after the request.
    lines += [f"while [ -e {NET}/{name} ]; do sleep 0.1; done" for name in made]
    return guest.run("\n".join(lines)).stderr


def settings(facts: Facts) -> dict[str, object]:
    """Return the values of each IPoIB netdev that plans may change."""
    return {
        netdev.name: (
            netdev.ipoib.mode,
            netdev.mtu,
            {o.name: o.on or bool(o.requested) for o in netdev.offloads},
        )
        for netdev in facts.netdevs
        if netdev.ipoib
    }


# Netdevs by name: mode, MTU, and TSO as ethtool -k shows it.
Shape = tuple[str, int, str]


def shapes(guest: Guest, wanted: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the values of the netdevs in ``wanted``, once their MTUs are as wanted.

    Read without our own parsers. The netdevs are set up first, as an admin does.
    """
    see = "; ".join(f"cat {NET}/{name}/mtu" for name in wanted)
    mtus = "\n".join(str(shape[1]) for shape in wanted.values())
    ups = "; ".join(f"ip link set {name} up" for name in wanted)
    line = f"{ups}; " + WAIT % (see, mtus, ":")
    tso = "ethtool -k $n | sed -n 's/.*tx-tcp-segmentation: //p'"
    line += f"; for n in {' '.join(wanted)}; do"
    line += f" echo $n,$(cat {NET}/$n/mode),$(cat {NET}/$n/mtu),$({tso}); done"
    rows = guest.run(line, check=True, timeout=60).stdout.splitlines()
    cells = [row.split(",") for row in rows]
    return {name: (mode, int(mtu), tso) for name, mode, mtu, tso in cells}


def shapes_in(facts: Facts, wanted: Iterable[str]) -> dict[str, Shape]:
    """Return the values of the netdevs in ``wanted`` from ``facts``."""
    found: dict[str, Shape] = {}
    for netdev in facts.netdevs:
        if netdev.name in wanted and netdev.ipoib and netdev.ipoib.mode:
            (tso,) = (o for o in netdev.offloads if o.name == "tx-tcp-segmentation")
            text = "on" if tso.on else "off"
            if tso.fixed:
                text += " [fixed]"
            elif tso.requested:
                text += " [requested on]"
            found[netdev.name] = (netdev.ipoib.mode, netdev.mtu, text)
    return found


@dataclass(frozen=True)
class Plan:
    """A policy for the interfaces of ``fabric``, and its expected result.

    ``refused`` has the ids of steps that are not in the plan, each with what would be
    done, and the kernel's answer to it; ``before`` is a line that prepares the host.
    """

    name: str
    fabric: InfiniBand
    interfaces: str
    becomes: Mapping[str, Shape]
    before: str = ":"
    refused: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    fails: frozenset[str] = frozenset()


BEST_ON_4K = ("datagram", UD_4K, "on")
BEST_ON_2K = ("datagram", UD_2K, "on")
CONNECTED_BEST = ("connected", CONNECTED_MTU, OFFLOAD_SAYS_NO)
AUTO = "transport_mode: auto, mtu: auto, tso: auto, pkey_children: [0x8001]"
PLANS = (
    Plan(
        "4K fabric",
        InfiniBand(hcas=6, pkeys=(0xFFFF, 0x8001), pci=CONNECTX_2),
        f"""
        - {{match: {{device: mlx4_0}}, {AUTO}}}
        - {{match: {{device: mlx4_1}}, transport_mode: connected, mtu: auto,
           pkey_children: [0x0001]}}
        - {{match: {{device: mlx4_2}}, transport_mode: auto, mtu: 9000, tso: auto}}
        - {{match: {{device: mlx4_3}}, transport_mode: datagram, mtu: 2044, tso: off}}
        - {{match: {{device: mlx4_4}}, transport_mode: datagram, mtu: auto}}
        - {{match: {{device: mlx4_5}}, transport_mode: datagram, mtu: 10236}}
        """,
        {
            "ib0": BEST_ON_4K,
            "ib0.8001": BEST_ON_4K,
            "ib1": CONNECTED_BEST,
            "ib1.8001": CONNECTED_BEST,
            "ib2": ("connected", 9000, OFFLOAD_SAYS_NO),
            "ib3": ("datagram", UD_2K, "off"),
            "ib4": BEST_ON_4K,
            "ib5": BEST_ON_4K,
        },
        # Only an undo in the right order restores this.
        before="echo connected > /sys/class/net/ib4/mode; ip link set ib4 mtu 9000; "
        "ip link set ib0 mtu 1500; ip link set ib1 mtu 1500; "
        "ip link add link ib4 name rtnl4 type ipoib pkey 0x8001 mode connected",
        refused={
            "IPOIB-MTU-01/ib5": (f"echo 10236 > {NET}/ib5/mtu", REFUSED),
            # Bash cannot create the file, which does not exist.
            "IPOIB-MODE-01/rtnl4": (
                f"echo datagram > {NET}/rtnl4/mode",
                "Permission denied",
            ),
        },
        fails=frozenset({"IPOIB-MTU-01", "IPOIB-MODE-01"}),
    ),
    Plan(
        "2K group on 4K ports",
        InfiniBand(hcas=3, group_mtu=2048, pkeys=(0xFFFF, 0x0001), pci=CONNECTX_2),
        f"""
        - {{match: {{device: mlx4_0}}, {AUTO}}}
        - {{match: {{device: mlx4_1}}, transport_mode: connected, mtu: auto}}
        - {{match: {{device: mlx4_2}}, transport_mode: datagram, mtu: auto}}
        """,
        {
            "ib0": BEST_ON_2K,
            "ib0.8001": BEST_ON_2K,
            "ib1": CONNECTED_BEST,
            "ib2": BEST_ON_2K,
        },
        before="echo connected > /sys/class/net/ib2/mode",
    ),
    Plan(
        "2K link on 4K ports, in a partition",
        InfiniBand(
            hcas=2,
            active_mtu=2048,
            group_mtu=2048,
            pkeys=(0x8002, 0x8001),
            pci=CONNECTX_2,
        ),
        """
        - {match: {device: mlx4_0}, transport_mode: auto, mtu: auto,
           pkey_children: [0x8002]}
        - {match: {device: mlx4_1}, transport_mode: datagram, mtu: 4092}
        """,
        {"ib0": BEST_ON_2K, "ib1": BEST_ON_2K},
        # The kernel accepts it, but uses a lower value.
        refused={
            "IPOIB-MTU-01/ib1": (
                f"cd {NET}/ib1; was=$(cat mtu); echo 4092 > mtu; echo $was > mtu",
                "",
            ),
            "IPOIB-PKEY-01/ib0.8002": (
                f"echo 0x8002 > {NET}/ib0/create_child",
                NOT_UNIQUE,
            ),
        },
        fails=frozenset({"IPOIB-MTU-01", "IPOIB-PKEY-01"}),
    ),
    Plan(
        "2K ports without TSO",
        InfiniBand(hcas=3, hca_mtu=2048, group_mtu=2048, tso=False, pci=CONNECTX_2),
        """
        - {match: {device: mlx4_0}, transport_mode: auto, mtu: auto, tso: auto}
        - {match: {device: mlx4_1}, transport_mode: datagram, mtu: auto, tso: auto}
        - {match: {device: mlx4_2}, transport_mode: datagram, mtu: 4092}
        """,
        {
            "ib0": ("connected", CONNECTED_MTU, "off [fixed]"),
            "ib1": ("datagram", UD_2K, "off [fixed]"),
            "ib2": ("datagram", UD_2K, "off [fixed]"),
        },
        refused={"IPOIB-MTU-01/ib2": (f"echo 4092 > {NET}/ib2/mtu", REFUSED)},
        fails=frozenset({"IPOIB-MTU-01"}),
    ),
    Plan(
        "revision a0 with a driver that offers TSO",
        InfiniBand(hcas=3, pkeys=(0xFFFF, 0x8001), pci=CONNECTX_A0),
        f"""
        - {{match: {{device: mlx4_0}}, {AUTO}}}
        - {{match: {{device: mlx4_1}}, transport_mode: datagram, mtu: auto, tso: auto,
           pkey_children: [0x8001]}}
        - {{match: {{device: mlx4_2}}, transport_mode: datagram, mtu: auto, tso: auto}}
        """,
        {
            "ib0": ("connected", CONNECTED_MTU, "off"),
            "ib0.8001": ("connected", CONNECTED_MTU, "off"),
            "ib1": ("datagram", UD_4K, "off"),
            "ib1.8001": ("datagram", UD_4K, "off"),
            "ib2": ("datagram", UD_4K, "off"),
        },
        # Off in the policy: datagram mode by itself would turn it on.
        before="echo connected > /sys/class/net/ib2/mode",
    ),
    Plan(
        "without a subnet manager",
        InfiniBand(hcas=2, subnet_manager=False, pci=CONNECTX_2),
        """
        - {match: {device: mlx4_0}, transport_mode: auto, mtu: auto, tso: auto}
        - {match: {device: mlx4_1}, transport_mode: connected, mtu: auto}
        """,
        {"ib0": BEST_ON_4K, "ib1": CONNECTED_BEST},
        fails=frozenset({"IB-PORT-01"}),
    ),
)


def policy_of(interfaces: str) -> Policy:
    text = f"version: 1\nhost:\n  interfaces:\n{textwrap.indent(interfaces, '  ')}\n"
    return parse_policy(text, "policy.yaml").policy


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(
            plan, id=plan.name, marks=[] if plan is PLANS[0] else pytest.mark.faults
        )
        for plan in PLANS
    ],
)
@pytest.mark.usefixtures("reading")
def test_a_plan_carried_out_leaves_nothing_to_do_and_can_be_undone(
    guest: Guest, plan: Plan
) -> None:
    replace_fabric(guest, plan.fabric)
    guest.run(plan.before, check=True)
    policy = policy_of(textwrap.dedent(plan.interfaces))
    before = facts_of(guest)
    steps = decide(before, policy).steps
    # The kernel's double in the unit tests of the rules does the same.
    double = ipoib_kernel.carried_out(before, steps, plan.fabric.group_mtu - HEADER)
    assert shapes_in(double, plan.becomes) == plan.becomes
    assert carry_out(guest, [step for step in steps if not step.refused]) == ""
    assert {step.id for step in steps if step.refused} == plan.refused.keys()
    for write, answer in plan.refused.values():
        said = guest.run(write).stderr
        assert said.rpartition(": ")[2].strip() == answer
    assert shapes(guest, plan.becomes) == plan.becomes
    facts = facts_of(guest)
    assert shapes_in(facts, plan.becomes) == plan.becomes
    after = decide(facts, policy)
    assert {step.id for step in after.steps} == plan.refused.keys()
    assert all(step.refused for step in after.steps)
    failed = {one.rule for one in after.findings if one.verdict == FAIL}
    assert failed == plan.fails
    assert undo(guest, [step for step in steps if not step.refused]) == ""
    assert settings(facts_of(guest)) == settings(before)
