# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the QEMU command line: a guest's devices, and that it reaches no network."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from lab.qemu import ALONE, Machine, Nic, Wire, accelerator, arguments

pytestmark = pytest.mark.selftest


def command_line(*nics: Nic) -> list[str]:
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
    )
    return arguments(machine, "tcg,thread=multi")


def after(words: list[str], option: str) -> list[str]:
    return [value for name, value in zip(words, words[1:]) if name == option]


def test_the_shared_file_systems_are_read_only_and_commas_survive() -> None:
    shares = after(command_line(), "-fsdev")
    assert len(shares) == 2
    assert all(",readonly=on," in share for share in shares)
    assert any(",path=/cache,,1/layer," in share for share in shares)


def test_no_guest_has_a_way_out_of_the_machine() -> None:
    wire = Wire()
    words = command_line(wire.a, ALONE)
    assert "-nodefaults" in words
    kinds = [netdev.partition(",")[0] for netdev in after(words, "-netdev")]
    assert kinds == ["dgram", "hubport", "hubport"]
    assert "type=unix" in after(words, "-netdev")[0]
    assert "-nic" not in words
    assert "-net" not in words


def test_kvm_only_when_asked_for() -> None:
    assert accelerator({}).startswith("tcg")
    assert accelerator({"OVIRT_RDMA_LAB_KVM": "0"}).startswith("tcg")
    assert accelerator({"OVIRT_RDMA_LAB_KVM": "1"}) == "kvm"
