# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the transport and the mount options of an export, with a reason, and explain
a failed mount. Pure.

The options chosen here replace the engine's extra options. VDSM's own class still adds
its defaults, timeo, retrans, version and nolock; timeo and retrans are raised in what
it gets for them, so that no option is given twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.export import (
    DEFAULT_RETRANS,
    DEFAULT_TIMEOUT,
    PORT,
    RDMA,
    TRANSPORT,
    MountOptions,
    kind_of,
    netid_for,
)
from ovirt_rdma.host.policy.model import (
    DEFAULT_PORT,
    PREFER_RDMA,
    TCP,
    NfsRule,
    RuleMatch,
)
from ovirt_rdma.storage.readiness import NOT_READY, UNKNOWN, Readiness

STOCK = "stock"
NFS_TCP_PORT = 2049
RPCBIND_PORT = 111


@dataclass(frozen=True)
class Attempt:
    """One way to mount: ``transport`` and the extra options that VDSM should use.

    ``for_paths``: the engine's timeo and retrans are raised to VDSM's own.
    """

    transport: str
    extra_options: str
    for_paths: bool = False


@dataclass(frozen=True)
class Choice:
    """The attempts to make, and why.

    ``first`` is None if the export is refused. ``fallback`` is tried if ``first``
    fails because RDMA does not work. ``degraded_by`` says why ``first`` is already a
    fallback; it is empty if it is not. ``fix`` is what would solve that or tell more.
    ``notes`` name the engine's options that are ignored, and what paths change.
    """

    first: Optional[Attempt]
    fallback: Optional[Attempt]
    reason: str
    degraded_by: str = ""
    fix: str = ""
    notes: tuple[str, ...] = ()

    @property
    def degraded(self) -> bool:
        """Whether ``first`` is already a fallback."""
        return bool(self.degraded_by)


# The engine's usual values, 30 and 2, fail I/O after 9 s; moving a connection may take
# as long. With VDSM's own it is 40 s.
_LONGER = (
    f"timeo is at least {DEFAULT_TIMEOUT} and retrans {DEFAULT_RETRANS}, because the "
    "rule has paths: I/O then fails after 40 s or later, and not while a connection is "
    "moved"
)
_NOT_IPV6 = (
    "the server's address is IPv6, so no connection is moved between the rule's paths"
)


def choose(
    match: Optional[RuleMatch],
    engine: MountOptions,
    readiness: Optional[Readiness] = None,
    version: Optional[str] = None,
    *,
    rdma_ipv6: bool = False,
    tcp_ipv6: Optional[bool] = False,
) -> Choice:
    """Choose how an export is mounted.

    ``match`` is the policy's winning rule. Without one (None) the options of the
    ``engine`` are used unchanged. ``readiness`` is None if it does not matter: without
    a rule, or for a rule that says TCP. ``version`` is the engine's: ``"3"``,
    ``"4.2"``; None for automatic. ``rdma_ipv6`` and ``tcp_ipv6``: whether the server's
    address is IPv6; None if that is unknown: mount then finds out by itself.

    Raises OptionsProblem if the engine's port is not a number.
    """
    if match is None:
        stock = Attempt(STOCK, str(engine))
        return Choice(stock, None, "no rule names this export: stock")
    rule = match.rule
    notes = overridden(rule, engine)
    by_rule = f"{rule.title} says {rule.transport} ({match.reason})"
    if rule.transport == TCP:
        options = tcp_options(rule, engine, tcp_ipv6, patient=True)
        return Choice(Attempt(TCP, options), None, by_rule, notes=notes)
    if readiness is None:
        raise ValueError(f"{rule.title} says {rule.transport}: give the readiness")
    tcp = Attempt(TCP, tcp_options(rule, engine, tcp_ipv6))
    rdma = Attempt(RDMA, rdma_options(rule, engine, rdma_ipv6, version))
    prefers = rule.transport == PREFER_RDMA
    if readiness.verdict == NOT_READY:
        return Choice(
            tcp if prefers else None,
            None,
            f"{by_rule}, but {readiness.reason}",
            degraded_by=readiness.reason if prefers else "",
            fix=readiness.fix,
            notes=notes,
        )
    if readiness.verdict == UNKNOWN:
        by_rule += f"; readiness is unknown ({readiness.reason}), the mount is tried"
    if rule.paths and rdma_ipv6:
        notes += (_NOT_IPV6,)
    elif rule.paths:
        rdma = replace(rdma, for_paths=True)
        notes += (_LONGER,)
    return Choice(
        rdma, tcp if prefers else None, by_rule, fix=readiness.fix, notes=notes
    )


def stock_warnings(options: MountOptions) -> tuple[str, ...]:
    """Return what is wrong with the engine's options for an export that no rule names:
    VDSM passes them to mount unchanged, and mount does not report conflicts.
    """
    warnings = [*options.conflicts()]
    if options.wants_rdma:
        # nfs(5), retry=: two minutes for a mount in the foreground.
        warnings.append(
            "RDMA without a rule: readiness is not checked, there is no fallback, and "
            "without retry=0 a server that does not listen blocks the mount for two "
            "minutes"
        )
    return tuple(warnings)


def rdma_options(
    rule: NfsRule, engine: MountOptions, ipv6: bool, version: Optional[str] = None
) -> str:
    """Return the extra options of an RDMA mount; ``version`` is the engine's.

    The rule's options win over the engine's. ``proto=rdma6`` for IPv6, because
    ``rdma`` means IPv4 to mount.nfs; always the port, because a ``Port=`` in
    nfsmount.conf(5) would replace a missing one; ``retry=0``, because a refused mount
    otherwise blocks for two minutes (nfs(5), retry=).
    """
    netid = netid_for(RDMA, ipv6=ipv6)
    # What a kind that the rule names requires comes before all others' options.
    kind = kind_of(rule.server_kind)
    engine = MountOptions.parse(kind.options if kind else "").merged(engine)
    if rule.paths and not ipv6:
        engine = _for_paths(len(rule.paths), version).merged(engine)
    return _merged(rule, engine, f"proto={netid},port={rule.port},retry=0")


def _for_paths(count: int, version: Optional[str]) -> MountOptions:
    """Return the option for a connection on each of ``count`` paths.

    From NFS 4.1 on, the daemon has the kernel add one for each other address, which
    proves whose it is, and max_connect allows that (fs/nfs/nfs4client.c,
    nfs4_set_client; client.c, nfs_init_server, has no use for it). nconnect would make
    more to the first one, and Linux before 6.9 ignores it for NFS 4 over RDMA.
    """
    name = "nconnect" if version in ("3", "4.0") else "max_connect"
    return MountOptions.parse(f"{name}={count}")


def tcp_options(
    rule: NfsRule, engine: MountOptions, ipv6: Optional[bool], *, patient: bool = False
) -> str:
    """Return the extra options of a TCP mount, without a port for RDMA.

    A port among the engine's options is kept only if it is one for TCP. If the family
    is unknown (``ipv6`` is None), no protocol is set, because ``tcp`` means IPv4 to
    mount.nfs. ``patient``: mount.nfs tries as long as with stock VDSM, two minutes or
    the engine's ``retry=`` (nfs(5)), as a rule with TCP requires. A fallback has
    already used part of the engine's time, and its server has just answered.
    """
    port = _tcp_port(rule, engine)
    options = [] if port is None else [f"port={port}"]
    if ipv6 is not None:
        options.append(f"proto={netid_for(TCP, ipv6=ipv6)}")
    if not patient:
        options.append("retry=0")
    return _merged(rule, engine, ",".join(options))


def tcp_service_port(
    rule: NfsRule, engine: MountOptions, version: Optional[str]
) -> int:
    """Return the TCP port that must answer before a TCP mount can work.

    NFS 3 asks rpcbind first, unless the ports of both its protocols are given (nfs(5),
    port and mountport); NFS 4 uses the NFS port (RFC 7530 section 3.1).
    """
    mountport = engine.last("mountport")
    port = _tcp_port(rule, engine)
    if version == "3" and not (port and mountport):
        return RPCBIND_PORT
    return port or NFS_TCP_PORT


def overridden(rule: NfsRule, engine: MountOptions) -> tuple[str, ...]:
    """Return which of the engine's options the rule overrides, and which conflict."""
    notes = [f"engine's options: {conflict}" for conflict in engine.conflicts()]
    wants_rdma = rule.transport != TCP
    transport, port = engine.last(TRANSPORT), engine.last(PORT)
    ignored = []
    if transport and engine.wants_rdma != wants_rdma:
        ignored.append((transport, f"says {rule.transport}"))
    if port and wants_rdma and engine.port != rule.port:
        ignored.append((port, f"says port={rule.port}"))
    subjects = MountOptions.parse(rule.options).subjects()
    for option in engine.normalised().items:
        if option.subject in subjects:
            ignored.append((option, "sets its own"))
    return (
        *notes,
        *(
            f"the engine's {one.text} is ignored: the rule {why}"
            for one, why in ignored
        ),
    )


def _merged(rule: NfsRule, engine: MountOptions, transport: str) -> str:
    chosen = MountOptions.parse(rule.options).merged(MountOptions.parse(transport))
    return str(engine.without(TRANSPORT, PORT).merged(chosen))


def _tcp_port(rule: NfsRule, engine: MountOptions) -> Optional[int]:
    if engine.wants_rdma or engine.port in (rule.port, DEFAULT_PORT):
        return None
    return engine.port
