# SPDX-License-Identifier: GPL-2.0-or-later
"""What is there of a domain that is asked for, as an earlier run leaves it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.asked_transport import nfs_export
from ovirt_rdma.engine_sdk_tools.engine_facts import (
    DataCenter,
    Domain,
    Engine,
    StorageConnection,
    status_words,
)
from ovirt_rdma.host.export import Export

# Statuses of a domain that is active, or will be by itself.
_UNDER_WAY = ("active", "locked", "activating", "unknown", None)


def domain_there(
    engine: Engine, name: str, row: StorageConnection, center: DataCenter
) -> tuple[Optional[Domain], list[str]]:
    """Return what is there of the domain from an earlier run, or what is against the
    name.
    """
    found = next((d for d in engine.domains if d.name == name), None)
    if found is None:
        return None, []
    its = found.connection
    wanted = replace(row, id=its.id if its else "")
    same = its is not None and replace(its, timeo=None, retrans=None) == wanted
    if not same or found.type != "data":
        has = f" ({its.export}, {its.mount_options or 'no options'})" if its else ""
        return None, [
            f"there is a domain {name} already{has}; choose another name, or change "
            f"it: ovirt-rdma domain convert {name}"
        ]
    if found.data_center not in (None, center.id):
        return None, [f"the domain {name} is attached to another data center"]
    if found.data_center is not None and found.status not in _UNDER_WAY:
        shown = status_words(found.status)
        return None, [f"the domain {name} is there and {shown}: activate it"]
    return found, []


def left_over(
    engine: Engine, export: Export, row: StorageConnection
) -> tuple[StorageConnection, list[str]]:
    """Return the row with the id of a connection without a domain, as a run that was
    interrupted leaves it, or why that one cannot be used.
    """
    used = {d.connection.id for d in engine.domains if d.connection is not None}
    for one in engine.connections:
        its = nfs_export(one)
        if one.id in used or its is None or str(its) != str(export):
            continue
        if one == replace(row, id=one.id):
            return one, []
        return row, [
            f"the engine has a connection to {one.export} without a domain, with "
            f"{one.nfs_version or 'no version'} and "
            f"{one.mount_options or 'no mount options'}: remove it first (id {one.id})"
        ]
    return row, []
