# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a hypervisor guest with VDSM, our package and two IPoIB netdevs.

VDSM's own runner (the double's, or that of VDSM_SOURCE) calls the hooks, with the user
and the data of VDSM.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Optional

from changed_host import JOURNAL, ChangedHost
from support.host.hook_host import network, setup

from lab import vdsm_packages
from lab.guest import Guest
from lab.infiniband import InfiniBand, PciFunction
from ovirt_rdma.host.collect import software as units

# The first ConnectX, on which TSO must be off: a live change.
FABRIC = InfiniBand(hcas=2, pci=PciFunction(driver="mlx4_core"))
POLICY = """\
version: 1
nfs:
  rules:
    - {name: data, server: 10.97.0.1, transport: require-rdma}
host:
  interfaces:
    - name: storage
      match: {link_layer: infiniband}
      transport_mode: connected
      tso: auto
"""
TSO = {"ib0": "tx-tcp-segmentation: on", "ib1": "tx-tcp-segmentation: on"}
# As supervdsmd, vdsmd and ExecStartPre call it. vdsmd's own folder has a sitecustomize.
_CALL = """
import json, sys, time
from vdsm.common import exception, hooks
answers = []
for data in json.load(sys.stdin):
    started = time.monotonic()
    error = None
    try:
        call = getattr(hooks, sys.argv[1])
        after = call() if data is None else call(data)
    except exception.HookError as refused:
        after, error = data, str(refused)
    answers.append([after, error, time.monotonic() - started])
print(json.dumps(answers))
"""
_VDSMS = {"PYTHONPATH": "/usr/libexec/vdsm"}
_POINTS = "/usr/lib/python3/dist-packages/ovirt_rdma/vdsm_hooks/main.py"
# Seconds for each hook, instead of 10 and 20: emulation is some ten times as slow.
PATIENT, BOUNDED = 90.0, 60.0


@dataclass(frozen=True)
class Called:
    """VDSM's results: the data, the refusal, and how long it waited."""

    data: Any
    refused: Optional[str]
    seconds: float


@dataclass
class HookedHost(ChangedHost):
    """The same with VDSM."""

    def calls(self, point: str, data: list[Any], *, uid: int = 0) -> list[Called]:
        """Let VDSM run its hooks at ``point``, for each of ``data``."""
        command = ["/usr/bin/python3", "-c", _CALL, point]
        result = self.guest.run(
            command,
            timeout=60 + PATIENT * len(data),
            input=json.dumps(data),
            uid=uid,
            environment=_VDSMS,
            check=True,
        )
        # VDSM's own log lines go to stderr.
        return [Called(*answer) for answer in json.loads(result.stdout)]

    def call(self, point: str, data: Any = None, *, uid: int = 0) -> Called:
        """Let VDSM run its hooks at ``point`` for one piece of data."""
        [called] = self.calls(point, [data], uid=uid)
        return called

    def ask(self, *requests: Any) -> list[Optional[str]]:
        """Let VDSM run the hooks before network setups, which must not change them;
        return the refusals.
        """
        called = self.calls("before_network_setup", list(requests))
        assert [one.data for one in called] == list(requests)
        return [one.refused for one in called]

    def limit(self, seconds: float) -> None:
        """Set the time limit of every hook."""
        change = rf's/^\( *"[a-z_]*": \)[0-9.]*,$/\1{seconds},/'
        self.said(
            f"sed -i {shlex.quote(change)} {_POINTS}; grep -q {seconds}, {_POINTS}"
        )

    def mode(self, netdev: str = "ib0") -> str:
        return self.said(f"cat /sys/class/net/{netdev}/mode")

    def tso(self) -> dict[str, str]:
        """Return TSO of each netdev, as ethtool shows it."""
        line = "ethtool -k {} | grep -o 'tx-tcp-segmentation: [a-z]*'"
        return {one: self.said(line.format(one)) for one in TSO}

    def has_logged(self, *sentences: str) -> None:
        """Wait until the hooks have written this text to syslog."""
        for sentence in sentences:
            words = f"journalctl -o cat -t ovirt-rdma | grep -qF '{sentence}'"
            self.wait_until(words)

    def is_untouched(self) -> bool:
        """Whether no hook has begun a run."""
        return self.guest.run(["test", "-e", JOURNAL]).exit_code == 1


@contextmanager
def hooked_host(policy: str = POLICY) -> Iterator[HookedHost]:
    """Boot a guest with FABRIC, VDSM and our package.

    ``policy`` is loaded; the add-on is not enabled, and nothing is applied.
    """
    with Guest("hypervisor", systemd=True) as guest:
        vdsm_packages.install(guest)
        host = HookedHost(guest)
        host.load_policy(policy)
        host.limit(PATIENT)
        FABRIC.load(guest)
        # Under emulation systemd's first answer takes longer than our timeout.
        guest.run(units.COMMAND)
        yield host


def asking(mode: str, nic: str = "ib0", **more: Any) -> dict[str, Any]:
    """Return a network setup that requests an IPoIB mode."""
    return setup({"storage": network(nic, custom={"ipoib_mode": mode}, **more)})
