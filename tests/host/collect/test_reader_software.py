# SPDX-License-Identifier: GPL-2.0-or-later
"""Installed and configured software: distribution, packages, kernel, units, stacks."""

from __future__ import annotations

import pytest
from support.fakes.fake_processes import VDSM, run_process
from support.fakes.fake_root import EL9_KERNEL

from ovirt_rdma.host.collect.software import (
    COMMAND,
    UNITS,
    SELinux,
    read_selinux,
    read_software,
    read_udev_lines,
    read_units,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.model import (
    KernelOption,
    OwnFile,
    RdmaStack,
    Software,
    UdevLine,
    Unit,
)
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.files import (
    MODPROBE,
    MODULES_LOAD,
    foreign_reason,
    own_text,
)
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor


def software(host, problems=None):
    """The software that is read; only the prepared commands may be run."""
    problems = [] if problems is None else problems
    tools = Tools(host.runner, str(host.path))
    return read_software(FileTree(host.path), tools, EL9_KERNEL, problems)


def test_a_host_with_nothing_of_it(host, problems):
    for path in ("usr/lib/os-release", "proc/cmdline"):
        (host.path / path).unlink()
    assert software(host, problems) == Software()
    assert problems == [
        "the distribution is unknown: there is no /etc/os-release or "
        "/usr/lib/os-release"
    ]
    assert not [argv for argv in host.runner.ran if argv[0] == "systemctl"]


def test_a_tree_that_only_looks_like_a_host_runs_nothing(host, problems):
    (host.path / "run/systemd/system").mkdir(parents=True)
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
    contexts = {"supervdsmd": context, "vdsmd": context}
    assert read_selinux(FileTree(host.path)) == SELinux(False, contexts)
    (host.path / "sys/fs/selinux/enforce").unlink()
    assert read_selinux(FileTree(host.path)) is None


# Distribution


@pytest.mark.parametrize("name", ["el9", "el10", "debian12"])
def test_distributions(host, name):
    host.distribution(name)
    assert software(host).distribution == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ID='debian'\nVERSION_ID=13", "debian13"),
        ("ID=debian", "debian"),
        ("ID=ol\nPLATFORM_ID=platform:el9\nVERSION_ID=9.3", "el9"),
        ("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=24.04", "ubuntu24.04"),
        ("ID=rhel\nVERSION_ID=x", "rhelx"),
        ('ID="fedora"\nPLATFORM_ID="platform:f40"\nVERSION_ID=40', "fedora40"),
        (b'\n# x\nID=rocky\nA="b\n\xff\nPLATFORM_ID=a b\n', "rocky"),
        ("NAME=Linux", None),
    ],
)
def test_the_administrators_os_release_wins(host, text, name, problems):
    host.write("/etc/os-release", text)
    assert software(host, problems).distribution == name
    assert problems == []


# Packages


def test_versions_of_rpm(host, problems):
    host.package("vdsm", "4.50.5.1")
    found = software(host, problems)
    assert (found.vdsm_version, found.rdma_core) == ("4.50.5.1", None)
    host.package("rdma-core", "46.0")
    assert software(host).rdma_core == "46.0"
    assert problems == []


def test_an_rpm_database_that_is_broken(host, problems):
    host.package("vdsm", "4.50.5.1")
    words = "error: cannot open Packages database in /var/lib/rpm"
    host.runner.answer(r"rpm -q --qf %{VERSION}\n vdsm", CommandFailed(words, 1))
    assert software(host, problems).vdsm_version is None
    assert problems == [rf"rpm -q --qf %{{VERSION}}\n vdsm failed: {words}"]


# Kernel configuration


def test_symbols_that_matter_set_and_not_set(host, problems):
    host.kernel_config(
        "MLX4_CORE_GEN2",
        "XFS_FS",
        INFINIBAND="m",
        NFS_V4="y",
        LOCALVERSION='""',
        DCB='"odd"',
    )
    assert software(host, problems).kernel_config == (
        KernelOption("DCB", "odd"),
        KernelOption("INFINIBAND", "m"),
        KernelOption("MLX4_CORE_GEN2", "n"),
        KernelOption("NFS_V4", "y"),
    )
    assert problems == []


def test_a_configuration_without_any_of_ours_is_one(host):
    host.kernel_config(XFS_FS="m")
    assert software(host).kernel_config == ()


def test_a_garbled_configuration_gives_way_to_the_one_beside_the_modules(
    host, problems
):
    host.write(f"/boot/config-{EL9_KERNEL}", b"\xff\x00CONFIG\n")
    host.write(f"/lib/modules/{EL9_KERNEL}/config", "CONFIG_INFINIBAND=m")
    assert software(host, problems).kernel_config == (KernelOption("INFINIBAND", "m"),)
    assert problems == [f"/boot/config-{EL9_KERNEL} is not a kernel configuration"]


# Units


def test_units_that_are_there_and_not(host, problems):
    host.unit("rdma-hw.target", enabled="static")
    host.unit("vdsmd.service", active="failed")
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


def test_a_systemctl_that_does_not_answer(host, problems):
    host.unit("vdsmd.service")
    host.runner.answer(" ".join(COMMAND), CommandFailed("Failed to connect to bus"))
    assert software(host, problems).units == ()
    (problem,) = problems
    assert problem.endswith("failed: Failed to connect to bus")


def test_odd_blocks_of_systemctl(host, problems):
    (host.path / "run/systemd/system").mkdir(parents=True)
    text = "Id=a.service\nLoadState=loaded\nx\n\nLoadState=masked\n\nId=b.service\n"
    units = read_units(FileTree(host.path), Tools(lambda argv: text), problems)
    assert units == (Unit("a.service", "loaded", ""), Unit("b.service", "", ""))
    assert problems == []


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
def test_stacks_that_say_what_they_are(host, said, name, version, problems):
    host.mlnx_ofed(said)
    evidence = (
        "ofed_info -s, /usr/lib/systemd/system/openibd.service, "
        "/etc/infiniband/openib.conf"
    )
    assert software(host, problems).stacks == (RdmaStack(name, version, evidence),)
    assert problems == []


@pytest.mark.parametrize(
    ("module", "path", "evidence"),
    [
        ("extra/mlnx-ofa_kernel/compat/mlx_compat.ko", "", ""),
        ("weak-updates/mlnx-ofa_kernel/compat/mlx_compat.ko.xz", "", ""),
        ("updates/dkms/mlx_compat.ko.zst", "", ""),
        ("", "/etc/init.d/openibd", ""),
        ("", "/etc/infiniband/info", ""),
        ("", "/usr/src/ofa_kernel/x", "/usr/src/ofa_kernel"),
        # The distribution has them too.
        ("", "/etc/opa/opaff.xml", None),
        ("", "/etc/opa-fm/opafm.xml", None),
        ("kernel/drivers/infiniband/hw/hfi1/hfi1.ko.xz", "", None),
    ],
)
def test_stacks_that_only_modules_or_files_show(host, module, path, evidence):
    host.module_files("kernel/drivers/infiniband/core/ib_core.ko.xz", module)
    if path:
        host.write(path, "x")
    stack = RdmaStack("MLNX_OFED or DOCA", None, evidence or module or path)
    assert software(host).stacks == (() if evidence is None else (stack,))


def test_a_stack_that_says_nothing_of_use(host, problems):
    host.mlnx_ofed("?")
    (stack,) = software(host, problems).stacks
    assert (stack.name, stack.version) == ("MLNX_OFED or DOCA", None)
    assert problems == ["ofed_info -s printed no version: '?'"]


# Udev rules that set a transport mode

ADDED = 'ACTION=="add", SUBSYSTEM=="net"'
MODE = f'{ADDED}, ATTR{{type}}=="32", ATTR{{mode}}="connected"'


def udev_lines(host, problems=None):
    """The lines that are read from the host's rules."""
    return read_udev_lines(FileTree(host.path), [] if problems is None else problems)


@pytest.mark.parametrize(
    ("rule", "sets"),
    [
        (MODE, True),
        ('KERNEL=="ib*", ATTR{mode}:="connected"', True),
        (f'{ADDED}, ATTR{{mode}} = e"connected\\n"', True),
        # udev ignores it: the prefix i is for matches.
        (f'{ADDED}, ATTR{{mode}}=i"connected"', False),
        (f'{ADDED}, ATTR{{mode}}=="connected", NAME="ib0"', False),
        (f'{ADDED}, ATTR{{mode}}!="connected"', False),
        (f'{ADDED}, ATTR{{mtu}}="9000"', False),
        ('SUBSYSTEM=="block", ATTR{mode}="1"', False),
        ('SUBSYSTEM!="net", ATTR{mode}="1"', False),
        (f'{ADDED}, ATTR{{queue/mode}}="x"', False),
        (f'{ADDED}, ENV{{mode}}="connected"', False),
        (f"#{MODE}", False),
        ("ATTR{mode}", False),
    ],
)
def test_rules_that_set_a_mode_and_that_do_not(host, rule, sets):
    host.udev_rules("x", "", rule)
    line = UdevLine("/etc/udev/rules.d/x.rules", 2, rule)
    assert udev_lines(host) == ((line,) if sets else ())


def test_places_order_and_folders(host, problems):
    host.udev_rules("80-b", MODE, folder="/usr/lib")
    host.udev_rules("80-b", "# off", MODE.replace("connected", "datagram"))
    host.udev_rules("70-a", "", MODE, folder="/run")
    host.udev_rules("90-c", MODE, folder="/lib")
    host.write("/etc/udev/rules.d/60-x.rules.bak", MODE)
    (host.path / "etc/udev/rules.d/90-c.rules").symlink_to("/dev/null")
    assert udev_lines(host, problems) == (
        UdevLine("/run/udev/rules.d/70-a.rules", 2, MODE),
        UdevLine(
            "/etc/udev/rules.d/80-b.rules", 2, MODE.replace("connected", "datagram")
        ),
    )
    assert problems == []


def test_a_rule_over_several_lines_is_at_its_first(host):
    host.udev_rules(
        "x", 'A="1", \\', '  B="2"', "", 'C="3", \\', 'ATTR{mode}="datagram"'
    )
    (line,) = udev_lines(host)
    assert (line.line, line.text) == (4, 'C="3", ATTR{mode}="datagram"')


def test_a_file_that_cannot_be_read_hides_no_other(host, problems):
    host.unreadable("/etc/udev/rules.d/10-x.rules")
    host.write("/etc/udev/rules.d/20-y.rules", b"\xff\x00\n" + MODE.encode() + b"\n")
    assert udev_lines(host, problems) == (
        UdevLine("/etc/udev/rules.d/20-y.rules", 2, MODE),
    )
    assert problems == ["/etc/udev/rules.d/10-x.rules is a folder, so it is ignored"]


# Our files


def test_own_files_as_they_are(host):
    assert software(host).own_files == ()
    text = own_text(["nvme_rdma"])
    host.write(MODULES_LOAD, text.encode())
    host.write(MODPROBE, b"\n options mlx4_core a=1 \xff\n\n")
    assert software(host).own_files == (
        OwnFile(MODPROBE, "\n options mlx4_core a=1 \\xff\n\n"),
        OwnFile(MODULES_LOAD, text),
    )


def test_an_own_file_that_cannot_be_read(host, problems):
    host.unreadable(MODULES_LOAD)
    assert software(host, problems).own_files == (OwnFile(MODULES_LOAD, None),)
    assert any(MODULES_LOAD in problem for problem in problems)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (own_text([]), ""),
        (own_text(["nvme_rdma"]), ""),
        ("# ovirt-rdma revision 0\nnvme_rdma\n", ""),  # any number
        (own_text(["nvme_rdma"]) + "# mine\n", "left alone"),
        ("# mine\n", "left alone"),
        ("nvme_rdma\n" + own_text([]), "is not from ovirt-rdma"),
        ("", "is not from ovirt-rdma"),
        (None, "cannot be read"),
    ],
)
def test_whose_a_file_is(text, words):
    found = foreign_reason(MODULES_LOAD, text)
    assert words in found
    assert bool(found) == bool(words)
