# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the state of the systemd units that concern RDMA, with one command."""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.model import Unit
from ovirt_rdma.host.paths import METRICS_UNIT, PARTITIONS_UNIT
from ovirt_rdma.host.system.tree import FileTree

# Units of rdma-core; opa.conf and the others are in /etc/rdma/modules.
_LOADED_FOR = ("rdma", "infiniband", "roce", "iwarp", "opa")
# opensm in EL and Debian, opensm in MLNX_OFED, and Omni-Path's fabric manager.
SUBNET_MANAGERS = ("opensm.service", "opensmd.service", "opafm.service")
UNITS = (
    "rdma-hw.target",
    *(f"rdma-load-modules@{name}.service" for name in _LOADED_FOR),
    "rdma-ndd.service",
    "srp_daemon.service",
    "openibd.service",
    *SUBNET_MANAGERS,
    "NetworkManager.service",
    "vdsmd.service",
    PARTITIONS_UNIT,
    METRICS_UNIT,
)

_PROPERTIES = "Id,LoadState,ActiveState,UnitFileState"
COMMAND = ("systemctl", "show", "--no-pager", "-p", _PROPERTIES, *UNITS)
# sd_booted(3): exists only if systemd is the init.
_BOOTED = "/run/systemd/system"


def read_units(tree: FileTree, tools: Tools, problems: list[str]) -> tuple[Unit, ...]:
    """Return UNITS in their order, missing ones as ``not-found``; an empty tuple if
    systemd is not running or systemctl fails.
    """
    if not tree.is_folder(_BOOTED):
        return ()
    text = tools.text(COMMAND, problems, optional=True)
    return () if text is None else parse_units(text, problems)


def parse_units(text: str, problems: list[str]) -> tuple[Unit, ...]:
    """Read blocks of ``Property=value`` lines, separated by empty lines.

    systemctl leaves out empty properties. A block without an id gets a sentence.
    """
    units = []
    for block in text.strip().split("\n\n"):
        lines = (line.partition("=") for line in block.split("\n"))
        fields = {name.strip(): value.strip() for name, _, value in lines}
        if fields.get("Id"):
            units.append(
                Unit(
                    fields["Id"],
                    fields.get("LoadState", ""),
                    fields.get("ActiveState", ""),
                    fields.get("UnitFileState", ""),
                )
            )
        else:
            problems.append(
                f"systemctl show printed a unit without an id: {block[:60]!a}"
            )
    return tuple(units)


def subnet_manager(units: tuple[Unit, ...]) -> Optional[str]:
    """Return the unit of the subnet manager that is running on this host, or None."""
    for unit in units:
        if unit.name in SUBNET_MANAGERS and unit.active == "active":
            return unit.name
    return None
