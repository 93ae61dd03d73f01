# SPDX-License-Identifier: GPL-2.0-or-later
"""Installed and configured software: distribution, packages, kernel, units, stacks."""

from __future__ import annotations

import gzip

import pytest
from support.fakes.fake_processes import VDSM, run_process
from support.fakes.fake_root import EL9_KERNEL

from ovirt_rdma.host.collect.software import (
    COMMAND,
    MAX_BYTES,
    UNITS,
    distribution,
    parse_units,
    read_software,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.model import (
    KernelOption,
    RdmaStack,
    SELinux,
    Software,
    Unit,
    VdsmDaemon,
)
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor


def software(host, problems=None):
    """The software that is read; only the prepared commands may be run."""
    problems = [] if problems is None else problems
    tools = Tools(host.runner, str(host.path))
    return read_software(FileTree(host.path), tools, EL9_KERNEL, problems)


def test_a_host_with_nothing_of_it(host):
    for path in ("usr/lib/os-release", "proc/cmdline"):
        (host.path / path).unlink()
    problems: list[str] = []
    assert software(host, problems) == Software()
    assert problems == [
        "the distribution is unknown: there is no /etc/os-release or "
        "/usr/lib/os-release"
    ]
    assert not [argv for argv in host.runner.ran if argv[0] == "systemctl"]


def test_a_tree_that_only_looks_like_a_host_runs_nothing(host):
    (host.path / "run/systemd/system").mkdir(parents=True)
    problems: list[str] = []
    tree = FileTree(host.path)
    found = read_software(tree, Tools(None, "/x"), EL9_KERNEL, problems)
    assert (found, problems) == (Software(distribution="el9"), [])


def test_the_whole_snapshot_has_it(host):
    host.package("vdsm", "4.50.5.1")
    host.unit("opensm.service")
    host.kernel_config(INFINIBAND="m")
    assert host.reader().facts().software == software(host)


# SELinux


def test_selinux_and_vdsms_daemons(host):
    host.write("/sys/fs/selinux/enforce", "0")
    context = "system_u:system_r:virtd_t:s0-s0:c0.c1023"
    for pid, name in ((800, "vdsmd"), (90, "supervdsmd"), (801, "vdsmd")):
        user = VDSM if name == "vdsmd" else 0
        words = ("/usr/bin/python3", f"/usr/libexec/vdsm/{name}")
        run_process(host.path, pid, *words, user=user, program="/usr/bin/python3.9")
        host.write(f"/proc/{pid}/attr/current", f"{context}\0")
    run_process(host.path, 91, "/usr/sbin/sanlock", "daemon")
    host.write("/proc/91/attr/current", "system_u:system_r:sanlock_t:s0\0")
    theirs = ("/usr/bin/python3", "/usr/libexec/vdsm/supervdsmd")
    run_process(host.path, 89, *theirs, user=1000)
    host.write("/proc/89/attr/current", "unconfined_u:unconfined_r:unconfined_t:s0\0")
    daemons = (VdsmDaemon("supervdsmd", context), VdsmDaemon("vdsmd", context))
    assert software(host).selinux == SELinux(False, daemons)
    (host.path / "sys/fs/selinux/enforce").unlink()
    assert software(host).selinux is None


# Distribution


@pytest.mark.parametrize("name", ["el9", "el10", "debian12"])
def test_distributions(host, name):
    host.distribution(name)
    assert software(host).distribution == name


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"ID": "rhel", "ID_LIKE": "fedora", "VERSION_ID": "9.4"}, "el9"),
        ({"ID": "centos", "VERSION_ID": "10"}, "el10"),
        ({"ID": "ol", "PLATFORM_ID": "platform:el9", "VERSION_ID": "9.3"}, "el9"),
        ({"ID": "almalinux", "ID_LIKE": "rhel centos", "VERSION_ID": "8.9"}, "el8"),
        ({"ID": "fedora", "PLATFORM_ID": "platform:f40", "VERSION_ID": "40"}, "fc40"),
        ({"ID": "ubuntu", "ID_LIKE": "debian", "VERSION_ID": "24.04"}, "ubuntu24.04"),
        ({"ID": "debian"}, "debian"),
        ({"ID": "rhel", "VERSION_ID": "x"}, "rhelx"),
        ({"NAME": "Linux"}, ""),
    ],
)
def test_names_of_distributions(fields, name):
    assert distribution(fields) == name


def test_the_administrators_os_release_wins(host):
    host.write("/etc/os-release", "ID='debian'\nVERSION_ID=13")
    assert software(host).distribution == "debian13"


def test_odd_lines_of_os_release(host):
    host.write("/etc/os-release", b'\n# x\nID=rocky\nA="b\n\xff\nPLATFORM_ID=a b\n')
    problems: list[str] = []
    assert software(host, problems).distribution == "rocky"
    assert problems == []


# Packages


def test_versions_of_rpm(host):
    host.package("vdsm", "4.50.5.1")
    problems: list[str] = []
    found = software(host, problems)
    assert (found.vdsm_version, found.rdma_core) == ("4.50.5.1", None)
    host.package("rdma-core", "46.0")
    assert software(host).rdma_core == "46.0"
    assert problems == []


def test_an_rpm_database_that_is_broken(host):
    host.package("vdsm", "4.50.5.1")
    words = "error: cannot open Packages database in /var/lib/rpm"
    host.runner.answer(r"rpm -q --qf %{VERSION}\n vdsm", CommandFailed(words, 1))
    problems: list[str] = []
    assert software(host, problems).vdsm_version is None
    assert problems == [rf"rpm -q --qf %{{VERSION}}\n vdsm failed: {words}"]


@pytest.mark.parametrize(
    ("shown", "version"),
    [
        ("installed/44.0-2+deb12u1\n", "44.0"),
        ("installed/1:50.0-2\n", "50.0"),
        ("installed/50.0\n", "50.0"),
        ("config-files/44.0-2\n", None),
        ("", None),
    ],
)
def test_versions_of_dpkg(host, shown, version):
    asked = r"dpkg-query -W -f ${db:Status-Status}/${Version}\n "
    none = "dpkg-query: no packages found matching vdsm"
    host.runner.answer(asked + "vdsm", CommandFailed(none, 1))
    host.runner.answer(asked + "rdma-core", shown)
    problems: list[str] = []
    found = software(host, problems)
    assert (found.vdsm_version, found.rdma_core) == (None, version)
    assert problems == []


# Kernel configuration


@pytest.mark.parametrize("packed", [False, True])
def test_symbols_that_matter_set_and_not_set(host, packed):
    host.kernel_config(
        "MLX4_CORE_GEN2",
        "XFS_FS",
        packed=packed,
        INFINIBAND="m",
        NFS_V4="y",
        LOCALVERSION='""',
        DCB='"odd"',
    )
    problems: list[str] = []
    assert software(host, problems).kernel_config == (
        KernelOption("DCB", "odd"),
        KernelOption("INFINIBAND", "m"),
        KernelOption("MLX4_CORE_GEN2", "n"),
        KernelOption("NFS_V4", "y"),
    )
    assert problems == []


@pytest.mark.parametrize("place", ["/lib/modules", "/usr/lib/modules"])
def test_a_configuration_beside_the_modules(host, place):
    host.write(f"{place}/{EL9_KERNEL}/config", "CONFIG_INFINIBAND=y")
    assert software(host).kernel_config == (KernelOption("INFINIBAND", "y"),)


def test_a_configuration_without_any_of_ours_is_one(host):
    host.kernel_config(XFS_FS="m")
    assert software(host).kernel_config == ()


@pytest.mark.parametrize(
    "packed",
    [
        b"\x1f\x8bnot gzip",
        b"",
        gzip.compress(b"CONFIG_INFINIBAND=y\n", mtime=0)[:-9],
        gzip.compress(b"CONFIG_INFINIBAND=y\n" + bytes(MAX_BYTES), mtime=0),
        gzip.compress(b"hello\n", mtime=0),
    ],
)
def test_a_packed_configuration_that_is_of_no_use(host, packed):
    host.write("/proc/config.gz", packed)
    problems: list[str] = []
    assert software(host, problems).kernel_config is None
    assert problems == ["/proc/config.gz is not a kernel configuration"]


def test_a_garbled_configuration_gives_way_to_the_next(host):
    host.write(f"/boot/config-{EL9_KERNEL}", b"\xff\x00CONFIG\n")
    host.kernel_config(packed=True, INFINIBAND="m")
    problems: list[str] = []
    assert software(host, problems).kernel_config == (KernelOption("INFINIBAND", "m"),)
    assert problems == [f"/boot/config-{EL9_KERNEL} is not a kernel configuration"]


# Units


def test_units_that_are_there_and_not(host):
    host.unit("rdma-hw.target", enabled="static")
    host.unit("vdsmd.service", active="failed")
    problems: list[str] = []
    found = software(host, problems)
    assert [unit.name for unit in found.units] == list(UNITS)
    by_name = {unit.name: unit for unit in found.units}
    assert by_name["rdma-hw.target"].enabled == "static"
    assert by_name["vdsmd.service"].active == "failed"
    assert by_name["openibd.service"] == Unit(
        "openibd.service", "not-found", "inactive"
    )
    assert (found.subnet_manager, problems) == (None, [])


@pytest.mark.parametrize("name", ["opensm.service", "opensmd.service", "opafm.service"])
def test_a_subnet_manager_that_runs_here(host, name):
    host.unit(name, active="inactive")
    assert software(host).subnet_manager is None
    host.unit(name)
    assert software(host).subnet_manager == name


def test_a_systemctl_that_does_not_answer(host):
    host.unit("vdsmd.service")
    host.runner.answer(" ".join(COMMAND), CommandFailed("Failed to connect to bus"))
    problems: list[str] = []
    assert software(host, problems).units == ()
    (problem,) = problems
    assert problem.endswith("failed: Failed to connect to bus")


def test_odd_blocks_of_systemctl():
    problems: list[str] = []
    text = "Id=a.service\nLoadState=loaded\nx\n\nLoadState=masked\n\nId=b.service\n"
    assert parse_units(text, problems) == (
        Unit("a.service", "loaded", ""),
        Unit("b.service", "", ""),
    )
    assert problems == [
        "systemctl show printed a unit without an id: 'LoadState=masked'"
    ]


# Stacks


@pytest.mark.parametrize(
    ("said", "name", "version"),
    [
        ("MLNX_OFED_LINUX-23.10-5.1.4.0:", "MLNX_OFED", "23.10-5.1.4.0"),
        ("MLNX_OFED_LINUX-4.9-7.1.0.0:", "MLNX_OFED", "4.9-7.1.0.0"),
        ("OFED-internal-25.01-0.6.0:", "DOCA", "25.01-0.6.0"),
        ("mlnx-en-5.8-1.1.2.1:", "mlnx-en", "5.8-1.1.2.1"),
    ],
)
def test_stacks_that_say_what_they_are(host, said, name, version):
    host.mlnx_ofed(said)
    problems: list[str] = []
    evidence = (
        "ofed_info -s, /usr/lib/systemd/system/openibd.service, "
        "/etc/infiniband/openib.conf"
    )
    assert software(host, problems).stacks == (RdmaStack(name, version, evidence),)
    assert problems == []


def test_a_stack_that_says_nothing_of_use(host):
    host.mlnx_ofed("?")
    problems: list[str] = []
    (stack,) = software(host, problems).stacks
    assert (stack.name, stack.version) == ("MLNX_OFED or DOCA", None)
    assert problems == ["ofed_info -s printed no version: '?'"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("extra/mlnx-ofa_kernel/compat/mlx_compat.ko", "MLNX_OFED or DOCA"),
        ("weak-updates/mlnx-ofa_kernel/compat/mlx_compat.ko.xz", "MLNX_OFED or DOCA"),
        ("updates/dkms/mlx_compat.ko.zst", "MLNX_OFED or DOCA"),
        ("extra/ifs-kernel-updates/hfi1.ko", "Omni-Path IFS"),
        ("extra/opxs-kernel-updates/hfi1.ko.xz", "Omni-Path OPXS"),
    ],
)
def test_stacks_that_only_modules_show(host, path, name):
    host.module_files("kernel/drivers/infiniband/core/ib_core.ko.xz", path)
    assert software(host).stacks == (RdmaStack(name, None, path),)


@pytest.mark.parametrize(
    "path", ["/etc/init.d/openibd", "/etc/infiniband/info", "/usr/src/ofa_kernel/x"]
)
def test_stacks_that_only_files_show(host, path):
    host.write(path, "x")
    (stack,) = software(host).stacks
    assert stack.name == "MLNX_OFED or DOCA"
    assert path.startswith(stack.evidence)


def test_tools_that_the_distribution_has_too_are_no_stack(host):
    host.write("/etc/opa/opaff.xml", "x")
    host.write("/etc/opa-fm/opafm.xml", "x")
    host.module_files("kernel/drivers/infiniband/hw/hfi1/hfi1.ko.xz")
    assert software(host).stacks == ()
