# SPDX-License-Identifier: GPL-2.0-or-later
"""VDSM's NFS connection class with our transport; servers asked in parallel.

Asking the servers of many exports at once, and which of them may be mounted next.

The NFS connection class that takes the place of VDSM's own.

A subclass of the running VDSM's NFSConnection. For an export that no rule names
it does nothing of its own: same options, same errors, same timing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import chain
from typing import Any, Optional, Protocol

from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.policy.model import Policy, rule_for
from ovirt_rdma.storage.vdsm.compat import Vdsm
from ovirt_rdma.storage.vdsm.context import ConnectRefused, Shared
from ovirt_rdma.storage.vdsm.managed_export import NamedExport

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


# VDSM's code for an export that is mounted and may not be used
# (StorageServerAccessPermissionError); VDSM itself is uid and gid 36.
_ACCESS_REFUSED = 469
_LET_VDSM_IN = (
    "on the server give the exported directory to VDSM: chown 36:36, chmod 755; and "
    "check that the export does not map uid or gid 36 to others"
)


class PolicyInForce(Protocol):
    """Where the policy comes from; never raises."""

    def current(self) -> Policy:
        """Return the policy in force now."""


def connection_class(vdsm: Vdsm, policy: PolicyInForce, shared: Shared) -> type[Any]:
    """Make the class to register for ``"nfs"`` in the running ``vdsm``."""
    stock_class: Any = vdsm.nfs_connection
    reported_error: Any = vdsm.reported_error

    class NfsConnectFailed(reported_error):  # type: ignore[misc]
        """An export that a rule names could not be mounted (477, with the reason)."""

        def __init__(self, sentence: str) -> None:
            super().__init__()
            self.msg = sentence

        def __str__(self) -> str:
            return str(self.msg)

    class NFSConnection(stock_class):  # type: ignore[misc]
        """VDSM's NFSConnection, with the policy's say for the exports it names."""

        def __init__(  # noqa: PLR0917
            self,
            id: str,
            export: str,
            timeout: int = 100,
            retrans: int = 3,
            version: Optional[str] = None,
            extraOptions: str = "",
        ) -> None:
            arguments = {
                "id": id,
                "export": export,
                "timeout": timeout,
                "retrans": retrans,
                "version": version,
                "extraOptions": extraOptions,
            }
            # Stock first: what it raises, stock VDSM raises too.
            super().__init__(**arguments)
            self._stock_arguments = arguments
            self._named = _named(export, extraOptions, version, policy, shared)

        def connect(self) -> None:
            """Connect if not connected, as the policy says.

            Raises what stock VDSM raises; for an export that a rule names, a
            failure is VDSM's storage MountError (477) with the reason, unless it has
            a code of its own, as the access check's 469 has.
            """
            if self._named is None:
                super().connect()
                return
            try:
                self._named.connect(_Stock(self))
            except ConnectRefused as refused:
                raise NfsConnectFailed(str(refused)) from refused
            except Exception as error:
                if getattr(error, "code", None) == _ACCESS_REFUSED:
                    log.warning(
                        "%s: mounted, but its permissions keep VDSM out; fix: %s",
                        self._named.export,
                        _LET_VDSM_IN,
                    )
                # What has no code of its own would reach the engine as 100.
                if hasattr(error, "code"):
                    raise
                raise NfsConnectFailed(f"{self._named.export}: {error}") from error

        def disconnect(self) -> None:
            """Unmount as stock VDSM does, but not while another call mounts it."""
            if self._named is None:
                super().disconnect()
            else:
                self._named.disconnect(_Stock(self))

        @classmethod
        def connect_all(cls, connections: list[Any]) -> list[tuple[Any, int]]:
            """Connect all; nobody waits for answers that only others need.

            First what is stock or mounted, then server by server, as they answer; one
            mount at a time, as stock VDSM. The results are in the order of
            ``connections``, as stock VDSM's.
            """
            at_once: list[Any] = []
            waiting: list[Any] = []
            for con in connections:
                (waiting if _has_to_ask(con) else at_once).append(con)
            statuses = {}
            for group in chain([at_once], _as_answered(waiting)):
                for con, status in super().connect_all(group):
                    statuses[id(con)] = status
            return [(con, statuses[id(con)]) for con in connections]

    class _Stock:
        """The stock behaviour of one connection, as a named export needs it."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection

        @property
        def local_path(self) -> str:
            path: str = self._connection._mountCon._getLocalPath()
            return path

        def is_mounted(self) -> bool:
            return bool(self._connection.isConnected())

        def use(self, extra_options: str) -> None:
            arguments = dict(self._connection._stock_arguments)
            arguments["extraOptions"] = extra_options
            stock_class.__init__(self._connection, **arguments)

        def mount(self) -> Optional[bytes]:
            try:
                stock_class.connect(self._connection)
            except vdsm.mount_error as error:
                return _stderr(error)
            return None

        def unmount(self) -> None:
            stock_class.disconnect(self._connection)

    return NFSConnection


def _has_to_ask(connection: Any) -> bool:
    """Whether a server must be asked before ``connection`` can be connected."""
    try:
        named = getattr(connection, "_named", None)
        return named is not None and not connection.isConnected()
    except Exception:  # noqa: BLE001
        # Its own connect() meets that again, and reports it for itself alone.
        return False


def _as_answered(connections: list[Any]) -> Iterator[list[Any]]:
    """Give the connections whose servers have answered, until none is left."""
    left = {id(connection._named): connection for connection in connections}
    try:
        for exports in as_answered([con._named for con in connections]):
            yield [left.pop(id(export)) for export in exports]
    except Exception:
        log.exception("Asking the servers beforehand failed; going on")
    yield list(left.values())


def _named(
    text: str,
    engine_options: str,
    version: Optional[str],
    policy: PolicyInForce,
    shared: Shared,
) -> Optional[NamedExport]:
    """Return the export with its rule, or None where it is to stay stock."""
    try:
        in_force = policy.current()
        if not in_force.nfs.rules:
            return None
        export = Export.parse(text)
        match = rule_for(in_force, export)
        if match is None:
            return None
        return NamedExport(export, match, engine_options, version, shared)
    except ExportProblem as problem:
        log.warning(
            "%s: no rule can name it, so it is mounted as stock VDSM does; fix: %s",
            problem,
            problem.fix,
        )
        return None
    except Exception:
        log.exception("Looking up a rule for %r failed; it stays stock", text)
        return None


def _stderr(error: Exception) -> bytes:
    text = getattr(error, "err", b"")
    return text if isinstance(text, bytes) else str(text).encode()
