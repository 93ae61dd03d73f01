# SPDX-License-Identifier: GPL-2.0-or-later
"""``hosts list``, ``hosts check`` and ``gate status``.

``gate status``: what keeps hosts without the add-on out of a cluster.

``hosts list`` and ``hosts check``.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.cli.engine.matrix import show_matrix
from ovirt_rdma.cli.engine.session import asked, door_of, opened, own_policy, say_no_way
from ovirt_rdma.cli.output import Screen
from ovirt_rdma.engine_sdk_tools.fleet import check as hosts_check
from ovirt_rdma.engine_sdk_tools.fleet.feature_gate import (
    DOCS,
    FEATURE,
    Gate,
    gates,
    read_features,
)
from ovirt_rdma.engine_sdk_tools.hosts.hooks import (
    INSTALLED,
    NAME,
    POINTS,
    Checksums,
    checksums_of,
)
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, UNKNOWN
from ovirt_rdma.engine_sdk_tools.model import Engine, Host, status_label
from ovirt_rdma.engine_sdk_tools.names import data_center_named, hosts_named
from ovirt_rdma.engine_sdk_tools.reader import read_engine


def status(words: Namespace, screen: Screen) -> int:
    """Show the gate of each cluster."""
    with opened(words) as session:
        engine = read_engine(session, hooks=True)
        features = read_features(session, engine)
    found = gates(engine, features)
    if words.datacenter is not None:
        center = data_center_named(engine, words.datacenter).id
        inside = {c.name for c in engine.clusters if c.data_center == center}
        found = tuple(gate for gate in found if gate.cluster in inside)
    if not screen.for_people:
        screen.document(
            "gate-status",
            {"feature": FEATURE, "clusters": [asdict(gate) for gate in found]},
        )
        return 0
    if not found:
        screen.line("There is no cluster here.")
        return 0
    screen.table(
        ("CLUSTER", "LEVEL", "REGISTERED", "ENABLED", "HOSTS WITH THE HOOK"),
        [
            (
                gate.cluster,
                gate.level or "-",
                _yes(gate.registered),
                _yes(gate.enabled),
                f"{len(gate.hooked)} of {len(gate.hosts)}",
            )
            for gate in found
        ],
    )
    for gate in found:
        screen.text(f"{gate.cluster}: {gate.next or 'hosts are held to it'}.")
    _caution(found, screen)
    return 0


def _caution(found: tuple[Gate, ...], screen: Screen) -> None:
    if any(gate.enabled for gate in found):
        screen.text(
            "The engine forgets it at any change of the cluster through its API, also "
            f"by Ansible: look here again after one ({DOCS})."
        )


def _yes(known: Optional[bool]) -> str:
    return "unknown" if known is None else ("yes" if known else "no")


_HEADINGS = (
    "HOST",
    "ADDRESS",
    "DATA CENTER",
    "CLUSTER",
    "STATUS",
    "VMS",
    "HOOKS",
    "IPOIB",
)


def show(words: Namespace, screen: Screen) -> int:
    """List the hosts as the engine knows them."""
    with opened(words) as session:
        engine = read_engine(session, nics=True, hooks=True)
    hosts = hosts_named(engine, (), words.datacenter)
    if not screen.for_people:
        screen.document(
            "hosts-list",
            {
                "hosts": [_document(engine, host) for host in hosts],
                "problems": list(engine.problems),
            },
        )
        return 0
    for sentence in engine.problems:
        screen.message(f"note: {sentence}")
    if not hosts:
        screen.line("The engine has no host here.")
        return 0
    screen.table(_HEADINGS, [_cells(engine, host) for host in hosts])
    return 0


def check(words: Namespace, screen: Screen) -> int:
    """Show the readiness of hosts; 3 where a check failed or is not known."""
    policy = own_policy(words)
    with opened(words) as session:
        engine = read_engine(session, hooks=True)
    hosts = hosts_named(engine, words.names, words.datacenter)
    door = door_of(words, engine)
    say_no_way(door, screen)
    wanted = hosts_check.Wanted(policy[0].policy if policy else None, our_hooks())
    rows = [
        hosts_check.row_of(
            host, report, wanted, hosts_check.connections_of(engine, host)
        )
        for host, report in asked(hosts, door, screen)
    ]
    matrix = hosts_check.check(engine, rows, wanted)
    show_matrix(screen, matrix)
    return 3 if matrix.worst in (FAIL, UNKNOWN) else 0


def our_hooks() -> Checksums:
    """Return the checksums of the hooks that are installed here, or lie in the tree
    that this runs from.
    """
    spec = find_spec("ovirt_rdma.vdsm_hooks")
    beside = spec.submodule_search_locations if spec else None
    return checksums_of([Path(INSTALLED), *map(Path, beside or ())])


def _cells(engine: Engine, host: Host) -> list[str]:
    there = _document(engine, host)
    return [
        host.name,
        host.address,
        there["data_center"] or "-",
        there["cluster"] or "-",
        status_label(host.status) + (" (SPM)" if there["spm"] else ""),
        str(host.vms),
        f"{len(there['hooks'])} of {len(POINTS)}",
        ", ".join(nic["name"] for nic in there["ipoib_nics"]) or "-",
    ]


def _document(engine: Engine, host: Host) -> dict[str, Any]:
    cluster = next((c for c in engine.clusters if c.id == host.cluster), None)
    centers = {one.id: one.name for one in engine.data_centers}
    return {
        "name": host.name,
        "id": host.id,
        "address": host.address,
        "data_center": centers.get((cluster.data_center or "") if cluster else ""),
        "cluster": cluster.name if cluster else None,
        "status": host.status,
        "spm": host.spm == "spm",
        "vms": host.vms,
        "hosted_engine": host.hosted_engine,
        "hooks": [hook.event for hook in host.hooks or () if hook.name == NAME],
        "ipoib_nics": [
            {"name": nic.name, "mtu": nic.mtu, "status": nic.status, "mac": nic.mac}
            for nic in host.nics or ()
            if nic.infiniband
        ],
    }
