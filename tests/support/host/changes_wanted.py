# SPDX-License-Identifier: GPL-2.0-or-later
"""The policy that tests of the changing commands apply to a host with a ConnectX-3."""

from __future__ import annotations

import pytest

from ovirt_rdma.cli.host import runs
from support.killed import Killed

POLICY = """\
version: 1
host:
  interfaces:
    - match: {link_layer: infiniband}
      transport_mode: connected
      mtu: auto
  module_options:
    mlx4_core: {log_mtts_per_seg: 5}
"""
MODES = "/sys/class/net/{}/mode"


def modes(host) -> list[str]:
    """Return the transport modes of a host's two netdevs."""
    return [host.fake.text(name, "mode") for name in ("ib0", "ib1")]


def killed_apply(host) -> None:
    """Let apply die while it sets the mode of ib1."""
    whole = host.fake.effects

    def dying(root):
        effects = whole()
        do = effects.do

        def die(act):
            if "ib1" in act.changes[0].target:
                raise Killed
            do(act)

        effects.do = die
        return effects

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "host_effects", dying)
        with pytest.raises(Killed):
            host("apply")
