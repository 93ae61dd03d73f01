# SPDX-License-Identifier: GPL-2.0-or-later
"""Asking the servers of many exports at once, before the exports are connected."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ovirt_rdma.storage.named_export import NamedExport

SERVERS_AT_ONCE = 16


def ask_all(exports: Sequence[NamedExport]) -> None:
    """Ask all servers of ``exports``; those of one server and rule share the answers.

    Takes as long as the slowest server, as long as there are no more servers than
    SERVERS_AT_ONCE. Raises what asking raises.
    """
    groups: dict[object, list[NamedExport]] = {}
    for export in exports:
        groups.setdefault((export.export.server, export.rule), []).append(export)
    if not groups:
        return
    with ThreadPoolExecutor(min(SERVERS_AT_ONCE, len(groups))) as pool:
        list(pool.map(_ask_for_all_of, groups.values()))


def _ask_for_all_of(exports: Sequence[NamedExport]) -> None:
    server = exports[0].ask_server()
    for export in exports:
        export.ask_ahead(server)
