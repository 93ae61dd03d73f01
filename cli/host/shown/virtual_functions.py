# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the table of ``facts`` about virtual functions."""

from __future__ import annotations

from ovirt_rdma.cli.host.shown.devices import Section, known, number
from ovirt_rdma.host.facts.model import Facts

_MOST_VFS = 32


def virtual_functions(facts: Facts) -> Section:
    """Return the first VFs of each PF, and what the PF has set for them."""
    return Section(
        "virtual functions",
        (
            "PF",
            "VF",
            "PCI ADDRESS",
            "DRIVER",
            "NODE GUID",
            "PORT GUID",
            "LINK",
            "NETDEV",
        ),
        [
            (
                adapter.pci.address,
                number(vf.number),
                vf.address,
                vf.driver or "none",
                vf.node_guid,
                known(*(port.guid for port in vf.ports)),
                vf.link_state,
                vf.netdev,
            )
            for adapter in facts.adapters
            for vf in adapter.virtual_functions[:_MOST_VFS]
        ],
    )
