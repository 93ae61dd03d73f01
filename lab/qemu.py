# SPDX-License-Identifier: GPL-2.0-or-later
"""Build the QEMU command line of a guest. Pure, except for a wire's socket names.

No guest can reach a network: there is no user networking and no bridge, only unix
sockets between the guests of one run.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

PROGRAM = "qemu-system-x86_64"


@dataclass(frozen=True)
class Nic:
    """A virtio NIC; ``eth0`` is the first in the guest.

    ``local`` and ``remote`` are the unix datagram sockets of the two ends of a wire
    (:class:`Wire`); without them the NIC has a link, but no other host on it.
    """

    mac: str
    local: Optional[Path] = None
    remote: Optional[Path] = None


class Wire:
    """Joins two NICs; ``number`` identifies the wire of a pair. Either guest may die
    and come back.
    """

    def __init__(self, number: int = 0) -> None:
        # Made when a guest starts, removed by the keeper of the last one.
        folder = Path(tempfile.gettempdir()) / f"ovirt-rdma-wire-{secrets.token_hex(6)}"
        mac = f"52:54:00:99:{number:02x}"
        self.a = Nic(f"{mac}:01", folder / "a", folder / "b")
        self.b = Nic(f"{mac}:02", folder / "b", folder / "a")


# A NIC with a link and no other host: for RDMA and NFS to the guest's own address.
ALONE = Nic("52:54:00:99:00:01")


@dataclass(frozen=True)
class Counted:
    """A guest whose executed instructions are counted.

    ``plugin`` is a plugin of QEMU's emulation, which gets ``out=`` with the file
    ``counts``. The guest's clock counts its instructions too (``-icount``), so that how
    often its timers interrupt does not depend on the machine: 2 ns each (shift=1), and
    an idle guest's clock leaps to the next timer (sleep=off). It has one processor.
    """

    plugin: Path
    counts: Path


@dataclass(frozen=True)
class Machine:
    """The parts of a guest's machine.

    ``agent_fd`` and ``monitor_fd`` are file descriptors of connected stream sockets,
    for the command agent and for QMP (:mod:`lab.monitor`). ``folder`` is QEMU's working
    directory; paths of sockets are relative to it, because the path of a unix socket
    has at most 107 bytes (unix(7)) and TMPDIR may be longer. ``disk`` is an image, the
    guest's /dev/vda; without ``keep_disk`` the image is not written.
    """

    name: str
    kernel: Path
    initramfs: Path
    layer: Path
    agent_fd: int
    monitor_fd: int
    folder: Path
    cpus: int = 1
    memory_mb: int = 1536
    nics: tuple[Nic, ...] = ()
    kernel_arguments: str = ""
    disk: Optional[Path] = None
    keep_disk: bool = True
    counted: Optional[Counted] = None


def accelerator(environment: Mapping[str, str] = os.environ) -> str:
    """Return QEMU's ``-accel``: emulation, unless ``OVIRT_RDMA_LAB_KVM=1``.

    /dev/kvm may exist but not work (nested virtualisation), and QEMU then aborts or
    hangs, so it is only used on request.
    """
    return "kvm" if environment.get("OVIRT_RDMA_LAB_KVM") == "1" else "tcg,thread=multi"


def arguments(machine: Machine, accel: str) -> list[str]:
    """Return the whole command line. The console is QEMU's standard output."""
    return [
        *(PROGRAM, *_processor(machine.counted, accel), "-M", "q35"),
        # With a fifth level of page tables all that a guest does costs 15 % more. With
        # "enhanced" string instructions Linux copies byte by byte, which emulation
        # does: twice the time of words.
        *("-cpu", "max,la57=off,erms=off"),
        *("-smp", _processors(machine), "-m", str(machine.memory_mb)),
        # One for each host, as the engine demands, also after a power cut.
        *("-uuid", str(uuid.uuid5(uuid.NAMESPACE_DNS, machine.name))),
        *("-nodefaults", "-no-user-config", "-display", "none"),
        *("-serial", "stdio", "-no-reboot"),
        *("-kernel", str(machine.kernel), "-initrd", str(machine.initramfs)),
        *("-append", kernel_command_line(machine.name, machine.kernel_arguments)),
        *_share("machine", Path("/")),
        *_share("layer", machine.layer),
        *_disk(machine.disk, machine.keep_disk),
        *("-device", "virtio-serial-pci"),
        *("-chardev", f"socket,id=agent,fd={machine.agent_fd}"),
        *("-device", "virtserialport,chardev=agent,name=lab"),
        *("-chardev", f"socket,id=monitor,fd={machine.monitor_fd}"),
        *("-mon", "chardev=monitor,mode=control"),
        *(
            word
            for number, nic in enumerate(machine.nics)
            for word in _nic(number, nic, machine.folder)
        ),
    ]


def _processor(counted: Optional[Counted], accel: str) -> list[str]:
    if counted is None:
        return ["-accel", accel]
    # Only emulation by one thread can count.
    plugin, counts = _value(counted.plugin), _value(counted.counts)
    return [
        *("-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off"),
        *("-plugin", f"{plugin},out={counts}"),
    ]


def _processors(machine: Machine) -> str:
    """Return how many processors there are, and room for one more.

    A machine that can never have two is emulated without atomic operations (QEMU's
    mttcg_start_vcpu_thread), and before QEMU 8.1 without memory barriers (tcg_gen_mb),
    although QEMU's own threads read its virtqueues. Now and then one missed a
    notification, and the NIC sent nothing any more. A counted guest stays so.
    """
    if machine.counted is not None:
        return str(machine.cpus)
    return f"cpus={machine.cpus},maxcpus={machine.cpus + 1}"


def kernel_command_line(hostname: str, more: str) -> str:
    """Return the kernel's arguments; an oops ends the guest, so that it is noticed."""
    # mitigations=off: they only cost time in the lab. norandmaps: emulation translates
    # a program again for each address that it is at: a start took 40 ms, now 13.
    base = (
        "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic mitigations=off norandmaps"
    )
    return f"{base} hostname={hostname} {more}".rstrip()


def _share(tag: str, folder: Path) -> list[str]:
    path = _value(folder)
    return [
        "-fsdev",
        f"local,id={tag},path={path},security_model=none,readonly=on,multidevs=remap",
        "-device",
        f"virtio-9p-pci,fsdev={tag},mount_tag={tag}",
    ]


def _disk(image: Optional[Path], keep: bool) -> list[str]:
    if image is None:
        return []
    # unsafe: a guest's power cut ends QEMU, not the machine, so data in the image
    # stays. Data that the guest has not written yet is lost.
    snapshot = "off" if keep else "on"
    file = f"file={_value(image)},format=raw,cache=unsafe,snapshot={snapshot}"
    return [
        *("-drive", f"if=none,id=disk,{file}"),
        *("-device", "virtio-blk-pci,drive=disk"),
    ]


def nic_id(number: int) -> str:
    """Return QEMU's name for the guest's NIC ``eth<number>``."""
    return f"net{number}"


def _nic(number: int, nic: Nic, folder: Path) -> list[str]:
    name = nic_id(number)
    ends = []
    if nic.local is None or nic.remote is None:
        # A hub with one port keeps what it gets (net_hub_port_can_receive), and
        # Linux 6.12 logs a time-out of the queue every 5 s; a second port takes it.
        backend = f"hubport,id={name},hubid={number}"
        ends = ["-netdev", f"hubport,id={name}-end,hubid={number}"]
    else:
        local, remote = (
            _value(os.path.relpath(end, folder)) for end in (nic.local, nic.remote)
        )
        backend = (
            f"dgram,id={name},local.type=unix,local.path={local}"
            f",remote.type=unix,remote.path={remote}"
        )
    # Without a speed rxe floods the console with warnings. No option ROM: no guest
    # boots from its NIC.
    device = (
        f"virtio-net-pci,netdev={name},mac={nic.mac},speed=10000,duplex=full,romfile="
    )
    return [*ends, "-netdev", backend, "-device", device]


def _value(path: Union[str, Path]) -> str:
    """Return a path as an option's value, with commas doubled as QEMU requires."""
    return str(path).replace(",", ",,")
