# SPDX-License-Identifier: GPL-2.0-or-later
"""Broken configuration files of modules, kernel, udev and systemd: reading them never
raises, and their valid parts are used.

``make fuzz`` runs many more examples.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.mutation import mutated

from ovirt_rdma.host.collect.software import (
    load_lines,
    modprobe_lines,
    module_paths,
    parameter_lines,
    parameters_of,
    read_distribution,
    read_kernel_config,
    read_rdma_stacks,
    read_software,
    read_udev_lines,
    read_units,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.model import CONCERNED, Facts, Modules
from ovirt_rdma.host.system.tree import FileTree

PIECES = st.sampled_from(
    ["\n", "\\\n", "\\", " ", "\t", "\r", "\0", "\udcff", "#", ";", "=", '"', "'", "==",
     "|", "{", "}", ".", ",", ":", "/", "mlx4_core", "rpcrdma", "off", "\n\n"]
) | st.text(max_size=4)  # fmt: skip

MODPROBE = [
    "# ConnectX\noptions mlx4_core log_num_mtt=24 \\\n  port_type_array=1,1\n",
    "blacklist ib-ipoib\nalias mlx4_en off\nsoftdep nfsd post: rpcrdma\n",
    "install mlx4_core /sbin/modprobe -i mlx4_core && /usr/libexec/mlx4-setup.sh\n",
]
LOADS = ["; comment\n# comment\nib_ipoib\n  nvme-rdma\n\nxprtrdma\n"]
COMMAND_LINES = [
    'BOOT_IMAGE=/vmlinuz ro "mlx5_core.dyndbg=file x.c +p" mlx4_core.msi_x=0 quiet\n',
    "modprobe.blacklist=ib_ipoib,nouveau module_blacklist=mlx4_en modules_load=ib_srp",
]
UDEV = [
    'ACTION=="add", SUBSYSTEM=="net", ATTR{type}=="32", \\\n  ATTR{mode}="connected"\n',
    'KERNEL=="ib*|eth*", RUN+="/sbin/ethtool -K $name tso off"\n',
]
SOFTWARE = [
    'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n'
    'PLATFORM_ID="platform:el9"\n',
    'CONFIG_INFINIBAND=m\n# CONFIG_MLX4_CORE_GEN2 is not set\nCONFIG_LOCALVERSION=""\n',
    "Id=rdma-hw.target\nLoadState=loaded\nActiveState=active\nUnitFileState=static\n\n"
    "Id=opensm.service\nLoadState=not-found\nActiveState=inactive\n",
    "kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz: kernel/net/sunrpc/sunrpc.ko.xz\n"
    "extra/mlnx-ofa_kernel/compat/mlx_compat.ko:\n",
    "OFED-internal-25.01-0.6.0:",
]
BYTES = ("utf-8", "surrogateescape")


class OneFile(FileTree):
    """A host on which each file has the same text."""

    def __init__(self, text):
        super().__init__("/nowhere")
        self.bytes = text.encode(*BYTES)

    def data(self, path, problems=None):
        return self.bytes

    def is_folder(self, path):
        return True


@given(mutated(MODPROBE, PIECES), mutated(LOADS, PIECES))
def test_module_files_with_odd_lines_keep_the_good_ones(modprobe, loads):
    lines = [*modprobe_lines("x", f"{modprobe}\n\nblacklist mlx4_en\n")]
    last = lines[-1]
    assert (last.command, last.module, last.text) == ("blacklist", "mlx4_en", "")
    assert [line.line for line in lines] == sorted({line.line for line in lines})
    loaded = [*load_lines("x", f"{loads}\nrpcrdma\n")]
    assert loaded[-1].module == "rpcrdma"
    assert all(0 < line.line <= loads.count("\n") + 2 for line in loaded)
    parts = Modules(modprobe_lines=tuple(lines), load_lines=tuple(loaded))
    facts = Facts(modules=parts)
    assert model.from_json_dict(model.to_json_dict(facts), "here") == facts


@given(mutated(SOFTWARE, PIECES), mutated(SOFTWARE, PIECES))
def test_odd_files_and_answers_are_software_that_can_be_read_back(text, said):
    problems = []
    tools = Tools(lambda argv: said)
    facts = Facts(software=read_software(OneFile(text), tools, "6.1", problems))
    assert model.from_json_dict(model.to_json_dict(facts), "here") == facts
    assert all(sentence.isprintable() for sentence in problems)


@given(mutated(COMMAND_LINES, PIECES))
def test_odd_command_lines_give_options_of_known_modules_only(text):
    lines, _ = parameter_lines(parameters_of(text))
    assert all(line.module in CONCERNED for line in lines)
    assert all(line.text in text for line in lines)
    facts = Facts(modules=Modules(modprobe_lines=tuple(lines)))
    assert model.from_json_dict(model.to_json_dict(facts), "here") == facts


@given(mutated(UDEV, PIECES))
def test_odd_udev_rules_keep_the_good_one(text):
    good = 'SUBSYSTEM=="net", ATTR{mode}="connected"'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "etc/udev/rules.d/1.rules")
        path.parent.mkdir(parents=True)
        path.write_bytes(f"{text}\n\n\n{good}\n".encode(*BYTES))
        *others, last = read_udev_lines(FileTree(folder), [])
    assert (last.line, last.text) == (text.count("\n") + 4, good)
    assert all("ATTR{mode}" in line.text for line in others)


@given(mutated(SOFTWARE, PIECES))
def test_odd_files_and_answers_keep_the_good_line(text):
    tree = OneFile(f"{text}\nPLATFORM_ID=platform:el10\n")
    assert read_distribution(tree, []) == "el10"
    tree = OneFile(f"{text}\nCONFIG_SUNRPC_XPRT_RDMA=m\n")
    found = read_kernel_config(tree, "6.1", [])
    assert ("SUNRPC_XPRT_RDMA", "m") in [(o.name, o.value) for o in found]
    assert len({option.name for option in found}) == len(found)
    good = "Id=vdsmd.service\nLoadState=loaded\n"
    *_, unit = read_units(tree, Tools(lambda argv: f"{text}\n\n{good}"), [])
    assert (unit.name, unit.load) == ("vdsmd.service", "loaded")


@given(mutated(SOFTWARE, PIECES), mutated(SOFTWARE, PIECES))
def test_odd_stacks_are_said_to_be_one(text, said):
    tree = OneFile(f"{text}\nupdates/dkms/rdma_cm.ko:\n")
    assert module_paths(tree.bytes)["rdma_cm"] == "updates/dkms/rdma_cm.ko"
    problems = []
    stacks = read_rdma_stacks(tree, Tools(lambda argv: said), "6.1", problems)
    assert all(sentence.isprintable() for sentence in problems)
    assert all(stack.evidence for stack in stacks)
