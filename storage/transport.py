# SPDX-License-Identifier: GPL-2.0-or-later
"""Which transport an export gets, with which options, and why. Pure.

The options chosen here take the place of the engine's extra options; VDSM's own
class still puts its defaults, timeo, retrans, version and nolock around them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.policy.model import (
    DEFAULT_PORT,
    PREFER_RDMA,
    TCP,
    NfsRule,
    RuleMatch,
)
from ovirt_rdma.storage.mount_options import PORT, TRANSPORT, MountOptions
from ovirt_rdma.storage.readiness import NOT_READY, UNKNOWN, Readiness

STOCK = "stock"
RDMA = "rdma"
NFS_TCP_PORT = 2049
RPCBIND_PORT = 111


@dataclass(frozen=True)
class Attempt:
    """One way to mount: ``transport`` and the extra options that VDSM is to use."""

    transport: str
    extra_options: str


@dataclass(frozen=True)
class Choice:
    """What to try, and why.

    ``first`` is None when the export is refused; ``fallback`` is tried when
    ``first`` fails for want of RDMA. ``degraded_by`` says why ``first`` is already
    the second best, and is empty where it is not; ``fix`` is what would mend that,
    or would tell more. ``notes`` say what of the engine's options was set aside.
    """

    first: Optional[Attempt]
    fallback: Optional[Attempt]
    reason: str
    degraded_by: str = ""
    fix: str = ""
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether nothing may be tried."""
        return self.first is None

    @property
    def degraded(self) -> bool:
        """Whether ``first`` is already the second best."""
        return bool(self.degraded_by)


@dataclass(frozen=True)
class Families:
    """Whether the server's address is IPv6, for RDMA and for TCP.

    ``tcp_ipv6`` is None where that is not known: mount finds out by itself then.
    """

    rdma_ipv6: bool = False
    tcp_ipv6: Optional[bool] = False


def choose(
    match: Optional[RuleMatch],
    engine_options: str,
    families: Families,
    readiness: Optional[Readiness],
) -> Choice:
    """Choose how an export gets mounted.

    ``match`` is the policy's winning rule, None when no rule names the export:
    then the engine's options pass untouched, whatever they say. ``readiness`` is
    None where it does not matter: without a rule, or for one that says TCP.

    Raises OptionsProblem where the engine's port is no number.
    """
    if match is None:
        return Choice(
            Attempt(STOCK, engine_options), None, "no rule names this export: stock"
        )
    rule = match.rule
    notes = overridden(rule, engine_options)
    by_rule = f"{rule.title} says {rule.transport} ({match.reason})"
    if rule.transport == TCP:
        options = tcp_options(rule, engine_options, families.tcp_ipv6, patient=True)
        return Choice(Attempt(TCP, options), None, by_rule, notes=notes)
    tcp = Attempt(TCP, tcp_options(rule, engine_options, families.tcp_ipv6))
    if readiness is None:
        raise ValueError(f"{rule.title} says {rule.transport}, and nobody asked")
    rdma = Attempt(RDMA, rdma_options(rule, engine_options, families.rdma_ipv6))
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
        by_rule += f"; readiness is unknown ({readiness.reason}), so the mount decides"
    return Choice(
        rdma, tcp if prefers else None, by_rule, fix=readiness.fix, notes=notes
    )


def rdma_options(rule: NfsRule, engine_options: str, ipv6: bool) -> str:
    """Return the extra options of an RDMA mount.

    The rule's options go over the engine's. ``proto=rdma6`` for IPv6, because
    ``rdma`` means IPv4 to mount.nfs; the port always, because a ``Port=`` of
    nfsmount.conf(5) fills in what is not said; ``retry=0``, because a refused mount
    otherwise blocks for two minutes (nfs(5), retry=).
    """
    netid = "rdma6" if ipv6 else "rdma"
    return _merged(rule, engine_options, f"proto={netid},port={rule.port},retry=0")


def tcp_options(
    rule: NfsRule, engine_options: str, ipv6: Optional[bool], *, patient: bool = False
) -> str:
    """Return the extra options of a TCP mount, without a port for RDMA.

    A port among the engine's options stays only where it is one for TCP. Without
    a known family no protocol is named, because ``tcp`` means IPv4 to mount.nfs.
    ``patient``: mount.nfs tries as long as with stock VDSM, two minutes or what the
    engine says (nfs(5), retry=). A rule that says TCP asks for nothing else; a
    fallback has had part of the engine's time, and its server answered just now.
    """
    port = _tcp_port(rule, engine_options)
    words = [] if port is None else [f"port={port}"]
    if ipv6 is not None:
        words.append("proto=tcp6" if ipv6 else "proto=tcp")
    if not patient:
        words.append("retry=0")
    return _merged(rule, engine_options, ",".join(words))


def tcp_service_port(rule: NfsRule, engine_options: str, version: Optional[str]) -> int:
    """Return the TCP port that must answer before a TCP mount can work.

    NFS 3 asks rpcbind first, unless the ports of both its protocols are given (nfs(5),
    port and mountport); 4 goes to the NFS port (RFC 7530 section 3.1).
    """
    mountport = MountOptions.parse(engine_options).last("mountport")
    port = _tcp_port(rule, engine_options)
    if version == "3" and not (port and mountport):
        return RPCBIND_PORT
    return port or NFS_TCP_PORT


def overridden(rule: NfsRule, engine_options: str) -> tuple[str, ...]:
    """Say which of the engine's options the rule sets aside, and which clash."""
    engine = MountOptions.parse(engine_options)
    notes = [f"engine's options: {conflict}" for conflict in engine.conflicts()]
    netid = engine.netid
    wants_rdma = rule.transport != TCP
    if netid is not None and engine.wants_rdma != wants_rdma:
        notes.append(
            f"the engine's {_text(engine, TRANSPORT)} is set aside: "
            f"the rule says {rule.transport}"
        )
    if wants_rdma and engine.port is not None and engine.port != rule.port:
        notes.append(
            f"the engine's {_text(engine, PORT)} is set aside: "
            f"the rule says port={rule.port}"
        )
    rule_subjects = MountOptions.parse(rule.options).subjects()
    for option in engine.normalised().items:
        if option.subject in rule_subjects:
            notes.append(
                f"the engine's {option.text} is set aside: the rule sets its own"
            )
    return tuple(notes)


def _merged(rule: NfsRule, engine_options: str, transport: str) -> str:
    engine = MountOptions.parse(engine_options).without(TRANSPORT, PORT)
    chosen = MountOptions.parse(rule.options).merged(MountOptions.parse(transport))
    return str(engine.merged(chosen))


def _tcp_port(rule: NfsRule, engine_options: str) -> Optional[int]:
    engine = MountOptions.parse(engine_options)
    if engine.wants_rdma or engine.port in (rule.port, DEFAULT_PORT):
        return None
    return engine.port


def _text(options: MountOptions, subject: str) -> str:
    option = options.last(subject)
    return option.text if option else ""
