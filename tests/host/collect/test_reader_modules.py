# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.fakes.fake_root import EL9_KERNEL

from ovirt_rdma.host.facts.model import Modules, module_name

pytestmark = pytest.mark.hypervisor

DEPENDENCIES = f"/lib/modules/{EL9_KERNEL}/modules.dep"


def test_loaded_and_available(host):
    host.modules(loaded=["sunrpc", "xfs"], available=["rpcrdma", "ext4"])
    problems: list[str] = []
    assert host.reader().modules(problems) == Modules(
        ("sunrpc",), ("rpcrdma", "sunrpc")
    )
    assert not problems


@pytest.mark.parametrize("suffix", [".ko", ".ko.xz", ".ko.zst", ".ko.gz"])
def test_compressed_modules(host, suffix):
    host.modules(available=["rpcrdma"], suffix=suffix)
    assert host.reader().modules().available == ("rpcrdma",)


def test_built_in_is_loaded_and_available(host):
    host.modules(built_in=["sunrpc", "nfs"])
    assert host.reader().modules() == Modules(("nfs", "sunrpc"), ("nfs", "sunrpc"))


def test_dashes_in_file_names_are_underscores(host):
    host.write(DEPENDENCIES, "extra/rdma-rxe.ko.xz: x.ko\nkernel/net/iw-cm.ko:\n")
    assert host.reader().modules().available == ("iw_cm", "rdma_rxe")


@pytest.mark.parametrize("name", ["xprtrdma", "svcrdma", "rpcrdma", "rpcrdma6"])
def test_both_halves_of_nfs_over_rdma_are_one_module(name):
    assert module_name(name) == "rpcrdma"


def test_a_module_on_its_way_in_or_out_is_not_loaded(host):
    host.write(
        "/proc/modules",
        "rpcrdma 45056 0 - Loading 0x0\nnfs 45056 0 - Unloading 0x0\n"
        "nfsv4 45056 1 nfs, Live 0x0 (OE)\nsunrpc 45056 0\n",
    )
    assert host.reader().modules().loaded == ("nfsv4", "sunrpc")


def test_a_kernel_whose_modules_folder_is_gone(host):
    host.modules(loaded=["rpcrdma"])
    (host.path / DEPENDENCIES.lstrip("/")).unlink()
    problems: list[str] = []
    assert host.reader().modules(problems) == Modules(("rpcrdma",), None)
    assert problems == [f"{DEPENDENCIES} cannot be read: No such file or directory"]


def test_odd_lines_hide_no_module(host):
    host.write("/proc/modules", b"\xff\xfe\n\n \nrpcrdma 1 0 - Live 0x0\n\x00\x0b\n")
    host.write(DEPENDENCIES, b"\xff.ko:\n:\n/abs/nfs.ko.zst: \nnfs.txt:\nko:\n")
    assert host.reader().modules() == Modules(("rpcrdma",), ("nfs",))


def test_a_release_that_is_no_file_name(host):
    host.write("/proc/sys/kernel/osrelease", b"\x00\xff")
    problems: list[str] = []
    assert host.reader().modules(problems).available is None
    assert len(problems) == 1
