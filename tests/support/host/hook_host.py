# SPDX-License-Identifier: GPL-2.0-or-later
"""A fake root with our hooks installed; tests run them as VDSM does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ovirt_rdma.host
import ovirt_rdma.vdsm_hooks
from ovirt_rdma.host.paths import CAPS_JSON, ENABLED, POLICY_JSON, under
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.host.services.enablement import marker_text

ENTRIES = Path(ovirt_rdma.vdsm_hooks.__file__).parent
NAME = "50_ovirt_rdma"
HOOKS = "/usr/libexec/vdsm/hooks"
POINTS = (
    "before_vdsm_start",
    "before_network_setup",
    "after_network_setup",
    "after_get_caps",
)
SHEBANG = "#!/usr/bin/python3 -IS\n"
# The tests' own Python without its virtual environment, as on a hypervisor.
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PYTHON = f"{sys.base_prefix}/bin/python{_VERSION}"
_PACKAGES = f"{sys.base_prefix}/lib/python{_VERSION}/site-packages"


class HookHost:
    """Files below ``root``. The hooks run with the tests' Python, and find the package
    where RPM would install it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        for point in POINTS:
            self.install(point)
        package = self.package
        package.mkdir(parents=True)
        for room in (ovirt_rdma.host, ovirt_rdma.vdsm_hooks):
            folder = Path(room.__file__).parent
            (package / room.__name__.rpartition(".")[2]).symlink_to(folder)

    @property
    def package(self) -> Path:
        return under(self.root, f"{_PACKAGES}/ovirt_rdma")

    @property
    def hooks(self) -> Path:
        return under(self.root, HOOKS)

    def entry(self, point: str) -> Path:
        return self.hooks / point / NAME

    def install(self, point: str) -> None:
        """Install a point's hook."""
        text = (ENTRIES / point / NAME).read_text(encoding="utf-8")
        assert text.startswith(SHEBANG)
        entry = self.entry(point)
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(text.replace(SHEBANG, f"#!{PYTHON} -IS\n", 1))
        entry.chmod(0o755)

    def only(self, point: str) -> None:
        """Install only the hook of that point, so that nothing else can answer."""
        for other in POINTS:
            if other != point:
                self.entry(other).unlink()

    def write(self, path: str, text: str) -> Path:
        found = under(self.root, path)
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text(text)
        return found

    def enable(self, mode: str = "host") -> None:
        self.write(ENABLED, marker_text(mode))

    def load(self, policy) -> None:
        store(policy, "p.yaml", under(self.root, POLICY_JSON))

    def caps(self, *features: str) -> None:
        content = {"schema_version": 1, "additionalFeatures": list(features)}
        self.write(CAPS_JSON, json.dumps(content))

    def ethernet(self, name: str, mtu: int = 1500) -> None:
        self._netdev(name, "1", mtu)

    def ipoib(self, name: str, mode: str = "datagram", mtu: int = 2044) -> None:
        self._netdev(name, "32", mtu)
        self.write(f"/sys/class/net/{name}/mode", f"{mode}\n")

    def bond(self, name: str, mode: str, *members: str) -> None:
        self._netdev(name, "32", 2044)
        self.write(f"/sys/class/net/{name}/bonding/mode", f"{mode} 1\n")
        for member in members:
            link = under(self.root, f"/sys/class/net/{name}/lower_{member}")
            link.symlink_to(f"../{member}")

    def replace_module(self, module: str, text: str) -> None:
        """Replace a module of the package vdsm_hooks by ``text``."""
        found = self._own_room("vdsm_hooks") / module
        found.unlink()
        found.write_text(text)

    def without_rooms(self, *names: str) -> None:
        """Remove these packages of the package host; importing one then fails."""
        for name in names:
            (self._own_room("host") / name).unlink()

    def _own_room(self, name: str) -> Path:
        """Return the folder of a package, which has links to the checkout's files."""
        room = self.package / name
        if room.is_symlink():
            target = room.resolve()
            room.unlink()
            room.mkdir()
            for file in target.iterdir():
                (room / file.name).symlink_to(file)
        return room

    def work(self, body: str) -> None:
        """Replace the work of before_network_setup by the statements ``body``."""
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        start = "import os, signal, subprocess, sys, time\n"
        answer = "from ovirt_rdma.vdsm_hooks.main import STOP, Answer\n"
        self.replace_module(
            "network.py", f"{start}{answer}def before_network_setup(root):\n{lines}"
        )

    def limit(self, point: str, seconds: float) -> None:
        """Reduce the timeout of a point's hook."""
        text = (ENTRIES / "main.py").read_text(encoding="utf-8")
        line = f'    "{point}": '
        head, _, tail = text.partition(line)
        assert tail
        tail = tail[tail.index(",") :]
        self.replace_module("main.py", f"{head}{line}{seconds}{tail}")

    def _netdev(self, name: str, kind: str, mtu: int) -> None:
        self.write(f"/sys/class/net/{name}/type", f"{kind}\n")
        self.write(f"/sys/class/net/{name}/mtu", f"{mtu}\n")


def setup(networks=None, bondings=None, **options):
    """Return the JSON that VDSM passes to the network hooks (network/api.py)."""
    return {
        "request": {
            "networks": networks or {},
            "bondings": bondings or {},
            "options": {"connectivityCheck": "true", **options},
        }
    }


def network(nic=None, **more):
    """Return a non-VM network as VDSM's canonicalize.py leaves it."""
    found = {
        "bridged": False,
        "mtu": 1500,
        "switch": "legacy",
        "bootproto": "none",
        "dhcpv6": False,
        "ipv6autoconf": False,
        "defaultRoute": False,
        "nameservers": [],
    }
    if nic:
        found["nic"] = nic
    return {**found, **more}
