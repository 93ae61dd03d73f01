# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy as the text of an nfsmount.conf(5) file, or why it cannot be one. Pure.

This is the mode for sites that want nothing of ours inside vdsmd: mount.nfs itself
adds ``Proto=rdma`` and ``Retry=0`` to what VDSM passes for an export's mount point.
It reads sections by mount point, letter for letter, knows no patterns and no second
try, and leaves every option alone that VDSM passes already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Callable

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.nfsmount_conf_options import option_lines
from ovirt_rdma.host.paths import VDSM_MOUNTS
from ovirt_rdma.host.policy import (
    DEFAULT_PORT,
    PREFER_RDMA,
    REQUIRE_RDMA,
    TCP,
    NfsRule,
    Policy,
    is_glob,
    network_of,
    rule_for,
)
from ovirt_rdma.host.problem import Problem

Resolver = Callable[[str], tuple[str, ...]]
"""Gives a server name's addresses, none where it does not resolve."""


class NfsmountRefused(Problem):
    """The policy, or the host, does not fit this mode; nothing was changed."""

    exit_code = 4


@dataclass(frozen=True)
class Section:
    """One export: where VDSM mounts it, and its lines, ``("Proto", "rdma")`` first."""

    export: Export
    rule: NfsRule
    lines: tuple[str, ...]

    @property
    def mount_point(self) -> str:
        """VDSM's local path of the export."""
        return local_path(self.export)


@dataclass(frozen=True)
class Rendered:
    """The sections, and sentences about what they mean on this host."""

    sections: tuple[Section, ...]
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The file's text below its header."""
        return "".join(
            f'\n# {section.rule.title}\n[ MountPoint "{section.mount_point}" ]\n'
            + "".join(f"{line}\n" for line in section.lines)
            for section in self.sections
        )


def local_path(export: Export) -> str:
    """Return where VDSM mounts ``export`` (fileUtils.transformPath)."""
    return f"{VDSM_MOUNTS}/{str(export).replace('_', '__').replace('/', '_')}"


def render(policy: Policy, resolve: Resolver) -> Rendered:
    """Return the sections for the exports that ``policy`` mounts over RDMA.

    Port 20049 is not written: it is the kernel's own default for RDMA
    (fs/nfs/fs_context.c, nfs_fs_context_validate, in Linux 5.8 already). Only server
    names are given to ``resolve``: to choose ``rdma`` or ``rdma6``.
    Raises NfsmountRefused with a line for everything that this mode cannot do.
    """
    mistakes: list[str] = []
    sections: dict[str, Section] = {}
    for rule in policy.nfs.rules:
        if rule.transport == TCP:
            continue
        found = list(_rule_mistakes(rule))
        mistakes += found
        if found:
            continue
        export = Export.parse(f"{_bracketed(rule.server)}:{rule.path}")
        winner = rule_for(policy, export)
        if winner is None or winner.rule is not rule:
            continue  # an earlier rule has it
        proto, why = _proto(export, resolve)
        if why:
            mistakes.append(f"{rule.title}: {why}")
            continue
        section = Section(export, rule, _lines(rule, proto))
        # mount.nfs compares mount points without regard to case.
        other = sections.setdefault(section.mount_point.lower(), section)
        if other is not section:
            mistakes.append(
                f"{rule.title}: {_clash(section, other)}; rename one of the exports, "
                "or remove one of the rules"
            )
    if mistakes:
        raise NfsmountRefused(
            "\n".join(mistakes), "change the policy, or use --mode vdsmd"
        )
    rendered = tuple(sections.values())
    return Rendered(rendered, tuple(_notes(policy, rendered)))


def _rule_mistakes(rule: NfsRule) -> Iterator[str]:
    title = rule.title
    if rule.transport == PREFER_RDMA:
        yield (
            f"{title}: says {PREFER_RDMA}, and in this mode nothing falls back to TCP; "
            f"say {REQUIRE_RDMA}, or remove the rule"
        )
    if is_glob(rule.path) or is_glob(rule.server) or "/" in rule.server:
        yield (
            f"{title}: names server {rule.server} and path {rule.path}, and this mode "
            "knows no patterns; write one server and one path as the engine has them, "
            "a rule for each export"
        )
    elif ":" in rule.server:
        yield (
            f"{title}: names the IPv6 address {rule.server}, and nfsmount.conf cannot "
            "write its mount point, in which a bracket ends the name; give the server "
            "a host name, and use that in the storage connection and in this rule"
        )
    elif set(rule.path) & set(']"'):
        yield (
            f"{title}: nfsmount.conf cannot write the path {rule.path}; rename the "
            "export"
        )
    for why in option_lines(rule.options).mistakes:
        yield f"{title}: {why}; remove it"


def _clash(section: Section, other: Section) -> str:
    if section.mount_point == other.mount_point:
        return (
            f"VDSM mounts {section.export} and {other.export} at the same place, "
            f"{section.mount_point}"
        )
    return (
        f"mount.nfs cannot tell {section.export} from {other.export}, because "
        "nfsmount.conf ignores case"
    )


def _bracketed(server: str) -> str:
    return f"[{server}]" if ":" in server else server


def _proto(export: Export, resolve: Resolver) -> tuple[str, str]:
    """Return ``rdma`` or ``rdma6``, or why there is neither.

    A name with addresses of both families gets the first: mount.nfs then looks for
    the name's IPv4 addresses only.
    """
    if export.address is not None:
        return "rdma", ""
    networks = [network_of(address) for address in resolve(export.server)]
    versions = {network.version for network in networks if network is not None}
    if not versions:
        return "", (
            f"the name {export.server} does not resolve here, so that it cannot be "
            "told whether to mount over IPv4 or IPv6; correct the name, or DNS"
        )
    return ("rdma" if 4 in versions else "rdma6"), ""


def _lines(rule: NfsRule, proto: str) -> tuple[str, ...]:
    lines = [f"Proto={proto}"]
    if rule.port != DEFAULT_PORT:
        lines.append(f"Port={rule.port}")
    return (*lines, "Retry=0", *option_lines(rule.options).lines)


def _notes(policy: Policy, sections: tuple[Section, ...]) -> Iterator[str]:
    with_port = [s for s in sections if s.rule.port != DEFAULT_PORT]
    if with_port:
        yield (
            f"{_exports(with_port)}: the file gives the port, so a storage connection "
            "with proto=tcp cannot be mounted: it would use that port over TCP"
        )
    if len(with_port) < len(sections):
        without = [s for s in sections if s not in with_port]
        yield (
            f"{_exports(without)}: a storage connection with proto=tcp is still "
            "mounted over TCP; one with tcp alone is mounted over RDMA"
        )
    for section in sections:
        if section.export.address is None:
            family = "IPv6" if "Proto=rdma6" in section.lines else "IPv4"
            yield f"{section.export}: the server's name is used over {family} only"
    for rule in policy.nfs.rules:
        if rule.transport == TCP:
            yield (
                f"{rule.title}: in this mode {TCP} writes nothing into the file, and a "
                "storage connection that asks for RDMA gets RDMA"
            )


def _exports(sections: list[Section]) -> str:
    return ", ".join(str(section.export) for section in sections)
