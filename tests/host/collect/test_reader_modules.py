# SPDX-License-Identifier: GPL-2.0-or-later
"""Modules: which there are, their files and options, and the lines that load them."""

from __future__ import annotations

import pytest
from support.fakes.fake_root import EL9_KERNEL

from ovirt_rdma.host.collect.software import load_lines, modprobe_lines, read_modules
from ovirt_rdma.host.facts.model import (
    LoadLine,
    ModprobeLine,
    ModuleFile,
    ModuleParameter,
    Modules,
    module_name,
)
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor

OPTION = "options mlx4_core log_num_mtt=24"


def details(host):
    """The modules, and sentences about what could not be read."""
    problems: list[str] = []
    tree = FileTree(host.path)
    return read_modules(tree, EL9_KERNEL, problems, details=True), tuple(problems)


def told(host):
    """The lines of modprobe.d without their places."""
    modules, _ = details(host)
    return [(line.command, line.module, line.text) for line in modules.modprobe_lines]


def test_the_whole_snapshot_has_them(host):
    host.modprobe_d("x", OPTION)
    assert host.reader().facts().modules == details(host)[0]


# Files and parameters


def test_files_say_which_tree_a_module_is_from(host):
    host.module_files(
        "kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz",
        "extra/mlnx-ofa_kernel/drivers/infiniband/core/ib_core.ko",
        "weak-updates/mlnx-ofa_kernel/drivers/infiniband/hw/mlx5/mlx5_ib.ko",
        "updates/dkms/rdma-cm.ko.zst",
        "kernel/fs/xfs/xfs.ko.xz",
    )
    modules, problems = details(host)
    assert modules.files == (
        ModuleFile(
            "ib_core", "extra/mlnx-ofa_kernel/drivers/infiniband/core/ib_core.ko"
        ),
        ModuleFile(
            "mlx5_ib",
            "weak-updates/mlnx-ofa_kernel/drivers/infiniband/hw/mlx5/mlx5_ib.ko",
        ),
        ModuleFile("rdma_cm", "updates/dkms/rdma-cm.ko.zst"),
        ModuleFile("rpcrdma", "kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz"),
    )
    assert problems == ()


def test_parameters_of_loaded_modules_that_can_be_read(host):
    host.modules(loaded=["mlx4_core", "xfs"], available=["mlx5_core"])
    host.module_parameters("mlx4_core", num_vfs="", port_type_array="1,1", msi_x=1)
    host.unreadable("/sys/module/mlx4_core/parameters/write_only")
    host.module_parameters("mlx5_core", prof_sel=2)
    host.module_parameters("xfs", x=1)
    modules, problems = details(host)
    assert modules.parameters == (
        ModuleParameter("mlx4_core", "msi_x", "1"),
        ModuleParameter("mlx4_core", "num_vfs", ""),
        ModuleParameter("mlx4_core", "port_type_array", "1,1"),
    )
    assert problems == ()


# modprobe.d


def test_lines_about_our_modules_with_their_places(host):
    host.modprobe_d("mlx4", "# ConnectX", "", "options   mlx4-core\tlog_num_mtt=24  ")
    host.modprobe_d("video", "options i915 modeset=1", "blacklist nouveau")
    modules, problems = details(host)
    assert modules.modprobe_lines == (
        ModprobeLine(
            "/etc/modprobe.d/mlx4.conf", 3, "options", "mlx4_core", "log_num_mtt=24"
        ),
    )
    assert problems == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("blacklist ib-ipoib", [("blacklist", "ib_ipoib", "")]),
        ("  blacklist svcrdma", [("blacklist", "rpcrdma", "")]),
        (
            "install mlx4_core /sbin/modprobe -i mlx4_core && /usr/libexec/x.sh",
            [
                (
                    "install",
                    "mlx4_core",
                    "/sbin/modprobe -i mlx4_core && /usr/libexec/x.sh",
                )
            ],
        ),
        ("blacklist mlx4_ib # x", [("blacklist", "mlx4_ib", "")]),
        # They only mention a module.
        ("options i915 x=mlx4_core", []),
        ("blacklist x mlx4_core", []),
        ("softdep nfsd post: rpcrdma", []),
        # modprobe ignores them.
        ("option mlx4_core x=1", []),
        ("options mlx4_core", []),
        ("install rpcrdma \t", []),
        ("blacklist", []),
    ],
)
def test_each_command_that_has_an_effect(host, line, expected):
    host.modprobe_d("x", line, OPTION)
    assert told(host) == [*expected, ("options", "mlx4_core", "log_num_mtt=24")]
    assert details(host)[1] == ()


def test_a_backslash_joins_lines_also_of_a_comment(host):
    host.modprobe_d(
        "x",
        "# not this one \\",
        "options mlx4_core a=1",
        "options mlx4_core b=1 \\",
        "  c=2",
        "blacklist mlx4_en",
    )
    lines = details(host)[0].modprobe_lines
    assert [(line.line, line.text) for line in lines] == [(3, "b=1   c=2"), (5, "")]


def test_the_earlier_folder_wins_and_names_are_sorted(host):
    host.modprobe_d("b", "options mlx4_core b=usr", folder="/usr/lib")
    host.modprobe_d("b", "options mlx4_core b=run", folder="/run")
    host.modprobe_d("b", "options mlx4_core b=local", folder="/usr/local/lib")
    host.modprobe_d("c", "options mlx4_core c=usr", folder="/lib")
    host.modprobe_d("a", "options mlx4_core a=usr", folder="/usr/lib")
    host.modprobe_d("d", OPTION, folder="/usr/lib")
    (host.path / "etc/modprobe.d").mkdir(parents=True)
    (host.path / "etc/modprobe.d/d.conf").symlink_to("/dev/null")
    (host.path / "etc/modprobe.d/gone.conf").symlink_to("../gone")
    assert [text for _, _, text in told(host)] == ["a=usr", "b=run", "c=usr"]
    assert details(host)[1] == ()


@pytest.mark.parametrize("name", [".a.conf", "a.conf.rpmsave", "a", "a.conf~"])
def test_other_files_do_not_count(host, name):
    host.write(f"/etc/modprobe.d/{name}", OPTION)
    assert told(host) == []


def test_a_folder_in_the_place_of_a_file(host):
    host.unreadable("/etc/modprobe.d/x.conf")
    host.modprobe_d("x", OPTION, folder="/usr/lib")
    assert told(host) == [("options", "mlx4_core", "log_num_mtt=24")]
    assert details(host)[1] == ("/etc/modprobe.d/x.conf is a folder, so it is ignored",)


def test_bytes_that_are_no_text_hide_no_line():
    text = b"\xff\xfe\x00\noptions \xff\x00 a=1\noptions mlx4_core \xff=1\n\\"
    found = modprobe_lines("x", text.decode("utf-8", "surrogateescape"))
    assert [(line.module, line.text) for line in found] == [("mlx4_core", "\udcff=1")]


# The kernel's command line


def test_options_and_blacklists_of_the_command_line(host):
    host.modprobe_d("zz", "options mlx4_core msi_x=0")
    host.command_line(
        "mlx4-core.port_type_array=1,1",
        '"mlx5_core.dyndbg=file x.c +p"',
        'ib_core.x="a b"',
        "nfs.flag",
        "mlx4_core.a.b=1",  # kmod ignores it
        "net.ifnames=0",
        "rd.driver.blacklist=mlx4_ib",
        "modprobe.blacklist=nouveau,ib_ipoib",
        "module_blacklist=mlx4_en",
    )
    lines = details(host)[0].modprobe_lines
    assert {(line.file, line.line) for line in lines[1:]} == {("/proc/cmdline", 1)}
    assert told(host) == [
        ("options", "mlx4_core", "msi_x=0"),
        ("options", "mlx4_core", "port_type_array=1,1"),
        ("options", "mlx5_core", "dyndbg=file x.c +p"),
        ("options", "ib_core", 'x="a b"'),
        ("options", "nfs", "flag"),
        ("blacklist", "ib_ipoib", ""),
        ("blacklist", "mlx4_en", ""),
    ]


def test_a_command_line_that_cannot_be_read_is_told_once(host):
    host.unreadable("/proc/cmdline")
    assert details(host)[1] == ("/proc/cmdline cannot be read: Is a directory",)


# modules-load.d


def test_what_loads_modules_at_boot(host):
    host.modules_load_d("ovirt", "; a comment", "# another", "", "  nvme-rdma ")
    host.modules_load_d("vdsm", "dummy", folder="/usr/lib")
    host.rdma_core_lists(srp_daemon=True)
    host.command_line("modules_load=ib_srp,", "rd.modules_load=mlx4_ib")
    modules, problems = details(host)
    lines = modules.load_lines
    assert lines[0] == LoadLine("/etc/modules-load.d/ovirt.conf", 4, "nvme_rdma")
    assert lines[1].module == "dummy"
    folder = "/etc/rdma/modules"
    assert [(line.file, line.module) for line in lines[2:]] == [
        (f"{folder}/infiniband.conf", "ib_ipoib"),
        (f"{folder}/infiniband.conf", "ib_umad"),
        (f"{folder}/opa.conf", "ib_ipoib"),
        (f"{folder}/opa.conf", "ib_umad"),
        (f"{folder}/opa.conf", "opa_vnic"),
        (f"{folder}/rdma.conf", "ib_iser"),
        (f"{folder}/rdma.conf", "ib_isert"),
        (f"{folder}/rdma.conf", "ib_srpt"),
        (f"{folder}/rdma.conf", "ib_uverbs"),
        (f"{folder}/rdma.conf", "rdma_ucm"),
        (f"{folder}/rdma.conf", "rpcrdma"),
        (f"{folder}/srp_daemon.conf", "ib_srp"),
        ("/proc/cmdline", "ib_srp"),
        ("/proc/cmdline", "mlx4_ib"),
    ]
    assert problems == ()


def test_a_line_with_options_loads_nothing():
    text = "ib_ipoib debug=1\n\udcff\nrpcrdma"
    assert [*load_lines("x.conf", text)] == [LoadLine("x.conf", 3, "rpcrdma")]


# Loaded and available

DEPENDENCIES = f"/lib/modules/{EL9_KERNEL}/modules.dep"


def test_loaded_and_available(host, problems):
    host.modules(loaded=["sunrpc", "xfs"], available=["rpcrdma", "ext4"])
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


def test_a_kernel_whose_modules_folder_is_gone(host, problems):
    host.modules(loaded=["rpcrdma"])
    (host.path / DEPENDENCIES.lstrip("/")).unlink()
    assert host.reader().modules(problems) == Modules(("rpcrdma",), None)
    assert problems == [f"{DEPENDENCIES} cannot be read: No such file or directory"]


def test_odd_lines_hide_no_module(host):
    host.write("/proc/modules", b"\xff\xfe\n\n \nrpcrdma 1 0 - Live 0x0\n\x00\x0b\n")
    host.write(DEPENDENCIES, b"\xff.ko:\n:\n/abs/nfs.ko.zst: \nnfs.txt:\nko:\n")
    assert host.reader().modules() == Modules(("rpcrdma",), ("nfs",))


def test_a_release_that_is_no_file_name(host, problems):
    host.write("/proc/sys/kernel/osrelease", b"\x00\xff")
    assert host.reader().modules(problems).available is None
    assert len(problems) == 1
