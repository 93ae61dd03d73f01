# SPDX-License-Identifier: GPL-2.0-or-later
"""The policy that tests of the changing commands apply to a host with a ConnectX-3."""

from __future__ import annotations

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
