# SPDX-License-Identifier: GPL-2.0-or-later
"""``gate status``: what keeps hosts without the add-on out of a cluster."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import Optional

from ovirt_rdma.cli.engine_session import opened
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.gate import DOCS, FEATURE, Gate, gates, read_features
from ovirt_rdma.engine_sdk_tools.names import data_center_named


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
