# SPDX-License-Identifier: GPL-2.0-or-later
"""Write a host with many RDMA devices: ``python -m bench.large_host FOLDER N``.

The host is a folder, made with the tests' own fake hosts, so that every file has the
kernel's form. The output of the host's tools is in files beside it, for
:mod:`bench.large_host_run`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from support.fakes.fake_hosts import NFS_MODULES, RDMA_MODULES
from support.fakes.fake_root import FakeRoot, Pci

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.facts.model import to_json
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled

# The host of issue 4: 16 devices with two ports each, 128 P_Keys per port, and 508 VFs,
# 31 or 32 per adapter; adapters of smaller hosts have the same number.
PORTS, PKEYS = 2, 128
VFS_OF_FOUR = (32, 32, 32, 31)
TABLE = 128

# Differs from the host on every port.
POLICY = """\
version: 1
host:
  interfaces:
    - match: {link_layer: infiniband}
      transport_mode: auto
      mtu: auto
      tso: auto
      pkey_children: ["0x8003"]
"""


def main(arguments: Sequence[str]) -> None:
    """Write the host of ``FOLDER N``."""
    folder, devices = arguments
    write(Path(folder), int(devices))


def write(folder: Path, devices: int) -> None:
    """Write ``root``, ``tools.json`` and ``facts.json`` into ``folder``."""
    host = large_host(folder / "root", devices)
    policy = parse_policy(POLICY, "policy.yaml").policy
    store(policy, "policy.yaml", under(host.path, POLICY_JSON))
    (folder / "tools").mkdir()
    answers: list[list[object]] = []

    def recorded(argv: Sequence[str]) -> str:
        error: str | None = None
        code: int | None = None
        try:
            text = host.runner(argv)
        except NotInstalled:
            raise
        except CommandFailed as failure:
            error, code, text = str(failure), failure.returncode, ""
        file = folder / "tools" / str(len(answers))
        file.write_text(text, encoding="utf-8")
        answers.append([list(argv), str(file), error, code])
        return host.runner(argv)

    facts = HostReader(host.path, recorded).facts()
    if facts.problems:
        raise AssertionError(f"the host cannot be read: {facts.problems}")
    (folder / "tools.json").write_text(json.dumps(answers), encoding="ascii")
    (folder / "facts.json").write_text(to_json(facts), encoding="ascii")


def large_host(path: Path, devices: int) -> FakeRoot:
    """Return a host with ``devices`` HCAs and their VFs."""
    host = FakeRoot(path)
    host.modules(
        loaded=(*NFS_MODULES, *RDMA_MODULES, "mlx4_core", "mlx4_ib", "ib_ipoib"),
        available=("mlx5_core", "mlx5_ib", "ib_srp", "ib_iser"),
    )
    host.network_manager()
    for number in range(devices):
        hca = Pci(f"0000:{number + 4:02x}:00.0", "0x15b3", "0x1003", "mlx4_core")
        host.adapter(hca, "0x028000", max_vfs=63)
        _add_vfs(host, hca, number)
        name = f"mlx4_{number}"
        host.rdma_device(name, firmware="2.42.5000", pci=hca)
        host.rdma_identity(name, "0", "MT4099", "MT_1090120019")
        for port in range(1, PORTS + 1):
            host.mlx4_port(hca, port, "ib")
            _add_port(host, hca, number, port)
    return host


def _add_vfs(host: FakeRoot, hca: Pci, number: int) -> None:
    # With netdevs, as before VMs get them.
    vfs = VFS_OF_FOUR[number % len(VFS_OF_FOUR)]
    for vf, function in enumerate(
        host.virtual_functions(hca, vfs, "0x1004", driver="mlx4_core")
    ):
        host.netdev(f"ens{number}v{vf}", pci=function)


def _add_port(host: FakeRoot, hca: Pci, number: int, port: int) -> None:
    device, name = f"mlx4_{number}", f"ib{number * PORTS + port - 1}"
    guid = f"0002:c903:00fb:{number:02x}0{port}"
    host.rdma_port(device, port, table_size=TABLE)
    host.gid(device, port, 0, f"fe80:0000:0000:0000:{guid}")
    pkeys = ["0xffff", *(f"0x{0x8000 + key:04x}" for key in range(1, PKEYS))]
    host.fabric_port(device, port, lid=number * PORTS + port, pkeys=pkeys)
    host.ib_mtus(device, port, 4096, 4096)
    address = f"10.{number}.{port}.2/24"
    host.ipoib(name, port, hca, guid, addresses=(address,))
    host.nm_device(name)
    host.nm_profile(name, interface_name=name, active_on=name)
    for pkey in ("0x8001", "0x8002"):
        host.nm_device(host.pkey_child(name, pkey))


if __name__ == "__main__":
    main(sys.argv[1:])
