# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the NFS connection class that replaces VDSM's own.

It is a subclass of the running VDSM's NFSConnection. For an export that no rule names
it changes nothing: same options, same errors, same timing. The servers of several
exports are asked in parallel. The class uses only the parts of VDSM that
:func:`check` checks; VDSM 4.50.0.13 and later pass.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain
from typing import Any, Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import Export, ExportProblem, MountOptions
from ovirt_rdma.host.policy.model import Policy, rule_for
from ovirt_rdma.storage.vdsm.export import (
    ConnectRefused,
    NamedExport,
    Shared,
    StockConnection,
)

CONSTRUCTOR = ("id", "export", "timeout", "retrans", "version", "extraOptions")
DEFAULT_OPTIONS = frozenset(("soft", "nosharecache"))
# The engine's code for "Problem while trying to mount target".
MOUNT_FAILED = 477


class UnknownShape(Problem):
    """The running VDSM is not supported; ``difference`` is a complete clause."""

    def __init__(self, difference: str) -> None:
        super().__init__(
            "vdsm-unsupported",
            f"ovirt-rdma does not support this VDSM: {difference}",
            "update ovirt-rdma, or run: ovirt-rdma-host disable",
        )


@dataclass(frozen=True)
class Vdsm:
    """Names of the running VDSM: the class, the registry and two exceptions.

    ``mount_error`` is raised if mount(8) fails and has its standard error in ``err``;
    ``reported_error`` reaches the engine as code 477.
    """

    nfs_connection: Any
    connection_types: dict[str, Any]
    mount_error: type[Exception]
    reported_error: type[Exception]


def load() -> Vdsm:
    """Import VDSM's storage modules and check them.

    Raises UnknownShape, and every error of the import.
    """
    server = importlib.import_module("vdsm.storage.storageServer")
    mount = importlib.import_module("vdsm.storage.mount")
    exception = importlib.import_module("vdsm.storage.exception")
    try:
        vdsm = Vdsm(
            nfs_connection=server.NFSConnection,
            connection_types=server.ConnectionFactory.registeredConnectionTypes,
            mount_error=mount.MountError,
            reported_error=exception.MountError,
        )
    except AttributeError as error:
        raise UnknownShape(f"a name is missing ({error})") from error
    check(vdsm)
    return vdsm


def load_main() -> Callable[[], Any]:
    """Import VDSM's daemon and return its main function."""
    daemon = importlib.import_module("vdsm.vdsmd")
    main: Optional[Callable[[], Any]] = getattr(daemon, "main", None)
    if main is None:
        raise UnknownShape("vdsm.vdsmd has no main()")
    return main


def check(vdsm: Vdsm) -> None:
    """Raise UnknownShape for the first part that is not as expected."""
    stock: Any = vdsm.nfs_connection
    parameters = tuple(inspect.signature(stock).parameters)
    if parameters != CONSTRUCTOR:
        raise UnknownShape(f"NFSConnection takes {parameters}, not {CONSTRUCTOR}")
    if frozenset(stock.DEFAULT_OPTIONS) != DEFAULT_OPTIONS:
        raise UnknownShape(f"NFSConnection's defaults are {stock.DEFAULT_OPTIONS}")
    registered: Any = vdsm.connection_types.get("nfs")
    if registered is not stock:
        raise UnknownShape("the registered nfs connection is not NFSConnection")
    for name in ("connect", "isConnected", "disconnect", "connect_all"):
        if not callable(getattr(stock, name, None)):
            raise UnknownShape(f"NFSConnection has no {name}()")
    code = getattr(vdsm.reported_error, "code", None)
    if code != MOUNT_FAILED:
        raise UnknownShape(f"exception.MountError has code {code}, not {MOUNT_FAILED}")
    sample = stock(id="guard", export="192.0.2.1:/guard", version="4.2")
    mount_connection = getattr(sample, "_mountCon", None)
    for name in ("options", "remotePath", "vfsType", "_getLocalPath"):
        if not hasattr(mount_connection, name):
            raise UnknownShape(f"NFSConnection's mount connection has no {name}")


SERVERS_AT_ONCE = 16

log = logging.getLogger("storage.ovirt_rdma")


def in_order_of_answers(exports: Sequence[NamedExport]) -> Iterator[list[NamedExport]]:
    """Ask all servers of ``exports``; yield the exports of a server after its answer.

    Exports with the same server and rule share the answers and come together. Other
    servers are still being asked meanwhile, so that no export waits for answers that
    it does not need. Exports without RDMA are asked first, and come first of several
    that have answered; those whose mount may take minutes come last. Raises
    RuntimeError if no thread can be started.
    """
    groups: dict[object, list[NamedExport]] = {}
    for export in exports:
        groups.setdefault((export.export.server, export.rule), []).append(export)
    if not groups:
        return
    last = []
    # There may be more groups than threads, and RDMA's answers take long: ports settle.
    in_turn = sorted(groups.values(), key=lambda group: group[0].needs_readiness)
    with ThreadPoolExecutor(min(SERVERS_AT_ONCE, len(groups))) as pool:
        asked = {pool.submit(_ask_for_all_of, group): group for group in in_turn}
        while asked:
            answered = wait(asked, return_when=FIRST_COMPLETED).done
            group = asked.pop(next(future for future in asked if future in answered))
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
        # Each export then asks for itself, and reports the error again.
        log.exception("Asking the server of %s in advance failed", exports[0].export)


# VDSM's code for an export that could be mounted but that VDSM must not access
# (StorageServerAccessPermissionError); stock unmounts it then (storageServer.py,
# MountConnection.connect). VDSM itself has uid and gid 36.
_ACCESS_REFUSED = 469
_GIVE_ACCESS = (
    "on the server give the exported directory to VDSM: chown 36:36, chmod 755; and "
    "check that the export does not map uid or gid 36 to others"
)


def connection_class(
    vdsm: Vdsm, policy: Callable[[], Policy], shared: Shared
) -> type[Any]:
    """Make the class to register for ``"nfs"`` in the running ``vdsm``. ``policy``
    returns the policy in force now, and never raises.
    """
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
        """VDSM's NFSConnection; the policy decides for the exports that it names."""

        def __init__(  # noqa: PLR0917
            self,
            id: str,
            export: str,
            timeout: int = 100,
            retrans: int = 3,
            version: Optional[str] = None,
            extraOptions: str = "",
        ) -> None:
            values = (id, export, timeout, retrans, version, extraOptions)
            arguments = dict(zip(CONSTRUCTOR, values))
            # The stock constructor first: its errors are those of stock VDSM.
            super().__init__(**arguments)
            self._stock_arguments = arguments
            self._named = _named(export, extraOptions, version, policy, shared)

        def connect(self) -> None:
            """Connect as the policy says, if not connected.

            Raises the errors of stock VDSM. For an export that a rule names, a failure
            is VDSM's storage MountError (477) with the reason, unless it has its own
            code, such as 469 of the access check.
            """
            if self._named is None:
                super().connect()
                return
            try:
                self._named.connect(stock(self))
            except ConnectRefused as refused:
                raise NfsConnectFailed(str(refused)) from refused
            except Exception as error:
                if getattr(error, "code", None) == _ACCESS_REFUSED:
                    log.warning(
                        "%s: VDSM has no permission to access it, so it was unmounted "
                        "again; fix: %s",
                        self._named.export,
                        _GIVE_ACCESS,
                    )
                # An error without its own code would reach the engine as 100.
                if hasattr(error, "code"):
                    raise
                raise NfsConnectFailed(f"{self._named.export}: {error}") from error

        def disconnect(self) -> None:
            """Unmount as stock VDSM does, but not while another call mounts."""
            if self._named is None:
                super().disconnect()
            else:
                self._named.disconnect(stock(self))

        @classmethod
        def connect_all(cls, connections: list[Any]) -> list[tuple[Any, int]]:
            """Connect all; no connection waits for answers that it does not need.

            Connections that are stock or mounted come first, then those of one server
            after the other, as they answer; one mount at a time, as in stock VDSM. The
            results are in the order of ``connections``, as in stock VDSM.
            """
            at_once: list[Any] = []
            waiting: list[Any] = []
            for con in connections:
                (waiting if _has_to_ask(con) else at_once).append(con)
            statuses = {}
            for group in chain([at_once], _grouped_by_answer(waiting)):
                for con, status in super().connect_all(group):
                    statuses[id(con)] = status
            return [(con, statuses[id(con)]) for con in connections]

    def stock(connection: Any) -> StockConnection:
        return StockConnection(connection, stock_class, vdsm.mount_error)

    return NFSConnection


def _has_to_ask(connection: Any) -> bool:
    """Whether a server must be asked before ``connection`` can be connected."""
    try:
        named = getattr(connection, "_named", None)
        return named is not None and not connection.isConnected()
    except Exception:  # noqa: BLE001
        # Its own connect() raises this again, for this connection only.
        return False


def _grouped_by_answer(connections: list[Any]) -> Iterator[list[Any]]:
    """Yield the connections whose servers have answered, until none is left."""
    left = {id(connection._named): connection for connection in connections}
    try:
        for exports in in_order_of_answers([con._named for con in connections]):
            yield [left.pop(id(export)) for export in exports]
    except Exception:
        log.exception("Asking the servers in advance failed; continuing without")
    yield list(left.values())


def _named(
    text: str,
    engine_options: str,
    version: Optional[str],
    policy: Callable[[], Policy],
    shared: Shared,
) -> Optional[NamedExport]:
    """Return the export with its rule; None if it is mounted as stock VDSM does."""
    try:
        in_force = policy()
        if not in_force.nfs.rules:
            return None
        export = Export.parse(text)
        match = rule_for(in_force, export)
        if match is None:
            return None
        engine = MountOptions.parse(engine_options)
        return NamedExport(export, match, engine, version, shared)
    except ExportProblem as problem:
        log.warning(
            "%s: no rule can name it, so it is mounted as stock VDSM does; fix: %s",
            problem,
            problem.fix,
        )
        return None
    except Exception:
        log.exception(
            "Finding the rule for %r failed; it is mounted as stock VDSM does", text
        )
        return None
