# SPDX-License-Identifier: GPL-2.0-or-later
"""Asking the servers of many exports at once, and which of them may be mounted next."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from ovirt_rdma.storage.named_export import NamedExport

SERVERS_AT_ONCE = 16

log = logging.getLogger("storage.ovirt_rdma")


def as_answered(exports: Sequence[NamedExport]) -> Iterator[list[NamedExport]]:
    """Ask all servers of ``exports``; give a server's exports once it has answered.

    Those of one server and rule share the answers and come together. The others are
    still being asked meanwhile, so that nobody waits for answers that only others
    need. Those for which no RDMA is asked come first, to be asked and of several that
    have answered; those whose mount may take minutes come last of all. Raises
    RuntimeError where no thread can be had.
    """
    groups: dict[object, list[NamedExport]] = {}
    for export in exports:
        groups.setdefault((export.export.server, export.rule), []).append(export)
    if not groups:
        return
    last = []
    # There may be more than threads, and RDMA's answers take long: a port settles.
    in_turn = sorted(groups.values(), key=lambda group: group[0].needs_readiness)
    with ThreadPoolExecutor(min(SERVERS_AT_ONCE, len(groups))) as pool:
        asked = {pool.submit(_ask_for_all_of, group): group for group in in_turn}
        while asked:
            answered = wait(asked, return_when=FIRST_COMPLETED).done
            group = asked.pop(next(one for one in asked if one in answered))
            if any(export.may_take_minutes for export in group):
                last.append(group)
            else:
                yield group
    yield from last


def _ask_for_all_of(exports: Sequence[NamedExport]) -> None:
    try:
        server = exports[0].ask_server()
        for export in exports:
            export.ask_ahead(server)
    except Exception:
        # Each asks for itself then, and meets that again.
        log.exception("Asking the server of %s beforehand failed", exports[0].export)
