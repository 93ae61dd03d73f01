# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the QEMU command line: a guest's devices, and that it reaches no network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Optional

import pytest

from lab.qemu import ALONE, Counted, Machine, Nic, Wire, accelerator, arguments

pytestmark = pytest.mark.selftest


def command_line(
    *nics: Nic,
    kernel_arguments: str = "",
    disk: Optional[Path] = None,
    keep_disk: bool = True,
    counted: Optional[Counted] = None,
) -> list[str]:
    machine = Machine(
        name="host1",
        kernel=Path("/k"),
        initramfs=Path("/i"),
        layer=Path("/cache,1/layer"),
        agent_fd=5,
        monitor_fd=6,
        folder=Path(tempfile.gettempdir()),
        memory_mb=700,
        cpus=2,
        nics=nics,
        kernel_arguments=kernel_arguments,
        disk=disk,
        keep_disk=keep_disk,
        counted=counted,
    )
    return arguments(machine, "tcg,thread=multi")


def after(words: list[str], option: str) -> list[str]:
    return [value for name, value in zip(words, words[1:]) if name == option]


def test_size_name_and_more_kernel_arguments() -> None:
    words = command_line(kernel_arguments="rdinit=/x")
    assert after(words, "-m") == ["700"]
    # Room for one more: only then are barriers emulated (lab/qemu.py).
    assert after(words, "-smp") == ["cpus=2,maxcpus=3"]
    kernel = after(words, "-append")[0].split()
    assert "hostname=host1" in kernel
    assert kernel[-1] == "rdinit=/x"


def test_the_shared_file_systems_are_read_only_and_commas_survive() -> None:
    shares = after(command_line(), "-fsdev")
    assert len(shares) == 2
    assert all(",readonly=on," in share for share in shares)
    assert any(",path=/cache,,1/layer," in share for share in shares)


def test_a_disk_is_one_raw_image_and_commas_survive() -> None:
    assert after(command_line(), "-drive") == []
    words = command_line(disk=Path("/tmp/a,b.img"))
    (drive,) = after(words, "-drive")
    assert "file=/tmp/a,,b.img,format=raw," in drive
    assert drive.endswith(",snapshot=off")
    (drive,) = after(command_line(disk=Path("/a"), keep_disk=False), "-drive")
    assert drive.endswith(",snapshot=on")
    assert "virtio-blk-pci,drive=disk" in after(words, "-device")


def test_a_counted_guest_has_one_thread_and_a_clock_of_instructions() -> None:
    assert after(command_line(), "-plugin") == []
    assert after(command_line(), "-icount") == []
    words = command_line(counted=Counted(Path("/p,1.so"), Path("/c")))
    assert after(words, "-accel") == ["tcg,thread=single"]
    assert after(words, "-icount") == ["shift=1,sleep=off"]
    assert after(words, "-smp") == ["2"]
    assert after(words, "-plugin") == ["/p,,1.so,out=/c"]


def test_no_guest_has_a_way_out_of_the_machine() -> None:
    wire = Wire()
    words = command_line(wire.a, ALONE)
    assert "-nodefaults" in words
    kinds = [netdev.partition(",")[0] for netdev in after(words, "-netdev")]
    assert kinds == ["dgram", "hubport", "hubport"]
    assert "type=unix" in after(words, "-netdev")[0]
    assert "-nic" not in words
    assert "-net" not in words


def test_the_two_ends_of_a_wire_meet() -> None:
    wire = Wire()
    assert (wire.a.local, wire.a.remote) == (wire.b.remote, wire.b.local)
    assert wire.a.mac != wire.b.mac
    assert Wire().a.local != wire.a.local


def test_each_nic_of_a_pairs_wires_has_an_address_of_its_own() -> None:
    wires = [Wire(number) for number in range(3)]
    assert len({nic.mac for wire in wires for nic in (wire.a, wire.b)}) == 6


def test_a_long_temporary_folder_does_not_make_a_wires_sockets_too_long() -> None:
    (netdev,) = after(command_line(Wire().a), "-netdev")
    paths = [value for value in netdev.split(",") if ".path=" in value]
    assert len(paths) == 2
    assert all("path=ovirt-rdma-wire-" in path for path in paths)


def test_agent_and_monitor_have_a_socket_each() -> None:
    chardevs = after(command_line(), "-chardev")
    assert chardevs == ["socket,id=agent,fd=5", "socket,id=monitor,fd=6"]
    assert after(command_line(), "-mon") == ["chardev=monitor,mode=control"]


def test_kvm_only_when_asked_for() -> None:
    assert accelerator({}).startswith("tcg")
    assert accelerator({"OVIRT_RDMA_LAB_KVM": "0"}).startswith("tcg")
    assert accelerator({"OVIRT_RDMA_LAB_KVM": "1"}) == "kvm"
