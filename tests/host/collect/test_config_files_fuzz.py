# SPDX-License-Identifier: GPL-2.0-or-later
"""Broken configuration files of modules, kernel, udev and systemd: reading them never
raises, and their valid parts are used.

``make fuzz`` runs many more examples.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.mutation import mutated

from ovirt_rdma.host.collect.software import load_lines, modprobe_lines, read_software
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.model import Facts, Modules
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
