# SPDX-License-Identifier: GPL-2.0-or-later
"""Read installed software: our files, boot time, RDMA stacks, udev rules, fapolicyd.

The boot time is in /proc/uptime and /proc/stat. The RDMA stacks are those of vendors,
which replace the distribution's. Lines of udev(7) rules are reported if they set a
property of IPoIB netdevs; they are read as in systemd's src/udev/udev-rules.c.

fapolicyd(8) decides on each execve and open. With its default rules a script may run
only if it is trusted: owned by an RPM or listed in a trust file (fapolicyd 1.0.2 to
2.0.1, rules.d/42-trusted-elf.rules, 70-trusted-lang.rules, 90-deny-execute.rules).
``fapolicyd-cli --dump-db`` prints the trusted files, one line per file with source,
path, size and digest (src/cli/fapolicyd-cli.c, do_dump_db).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from typing import Optional

from ovirt_rdma.host.collect.modules import module_paths
from ovirt_rdma.host.collect.release import (
    package_version,
    read_distribution,
    read_kernel_config,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.collect.units import read_units, subnet_manager
from ovirt_rdma.host.collect.vdsm_processes import read_selinux
from ovirt_rdma.host.facts.devices import ARPHRD_INFINIBAND
from ovirt_rdma.host.facts.model import OwnFile, RdmaStack, Software, UdevLine
from ovirt_rdma.host.system.conf_folders import conf_texts, folders_named
from ovirt_rdma.host.system.own_files import OWN_FILES
from ovirt_rdma.host.system.tree import FileTree, Problems

_UPTIME = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\b.*")
_BOOTED_AT = re.compile(r"^btime (\d{1,12})$", re.MULTILINE)


def read_uptime(tree: FileTree, problems: list[str]) -> float:
    """Return the seconds since boot; 0.0 if they cannot be read."""
    path = "/proc/uptime"
    text = tree.text(path, problems)
    if text is None:
        return 0.0
    match = _UPTIME.fullmatch(text)
    if not match:
        problems.append(f"{path} reads {text!a}, not two numbers")
        return 0.0
    return float(match.group(1))


def read_booted_at(tree: FileTree, problems: list[str]) -> Optional[int]:
    """Return when the host booted, in seconds since 1970, UTC; None if it cannot be
    read. ``btime`` changes when the clock is set.
    """
    path = "/proc/stat"
    text = tree.text(path, problems)
    if text is None:
        return None
    match = _BOOTED_AT.search(text)
    if not match:
        problems.append(f"{path} has no btime")
        return None
    return int(match.group(1))


def read_own_files(tree: FileTree, problems: list[str]) -> tuple[OwnFile, ...]:
    """Return those of OWN_FILES that exist, with their text."""
    files = []
    for path in OWN_FILES:
        folder, _, name = path.rpartition("/")
        if name not in tree.names(folder):
            continue
        data = tree.data(path, problems)
        text = None if data is None else data.decode("utf-8", "backslashreplace")
        files.append(OwnFile(path, text))
    return tuple(files)


MLNX_OFED = "MLNX_OFED"
DOCA = "DOCA"
EITHER = "MLNX_OFED or DOCA"

OFED_INFO = ("ofed_info", "-s")
# MLNX_OFED_LINUX-23.10-5.1.4.0: in MLNX_OFED, OFED-internal-25.01-0.6.0: in DOCA.
_OFED = re.compile(r"(\S+?)-(\d[\w.-]*):?")
_OFED_NAMES = {"MLNX_OFED_LINUX": MLNX_OFED, "OFED-internal": DOCA}

# No kernel has it, and NVIDIA's modules need it.
_OFED_MODULE = "mlx_compat"
_OFED_FILES = (
    "/usr/lib/systemd/system/openibd.service",
    "/etc/systemd/system/openibd.service",
    "/etc/init.d/openibd",
    "/etc/infiniband/openib.conf",
    "/etc/infiniband/info",
    "/usr/src/ofa_kernel",
)
# Folders of Intel's and Cornelis Networks' hfi1 and related modules. EL also has their
# tools and fabric manager, with /etc/opa.
_OPA = {
    "ifs-kernel-updates": "Omni-Path IFS",
    "opxs-kernel-updates": "Omni-Path OPXS",
}


def read_rdma_stacks(
    tree: FileTree, tools: Tools, release: str, problems: list[str]
) -> tuple[RdmaStack, ...]:
    """Return the vendors' stacks on a host with the running kernel ``release``.

    Without ``ofed_info`` MLNX_OFED and DOCA cannot be distinguished, and have no
    version. Files that remain after a removal are found too; ``evidence`` names them.
    """
    folder = f"/lib/modules/{release}"
    paths = module_paths(tree.data(f"{folder}/modules.dep") or b"", folder)
    stacks = [_ofed(tree, tools, paths.get(_OFED_MODULE), problems)]
    for updates, name in _OPA.items():
        shown = [path for path in paths.values() if updates in path.split("/")]
        stacks.append(RdmaStack(name, None, min(shown)) if shown else None)
    return tuple(stack for stack in stacks if stack)


def _ofed(
    tree: FileTree, tools: Tools, module: Optional[str], problems: list[str]
) -> Optional[RdmaStack]:
    evidence = [module] if module else []
    evidence += [path for path in _OFED_FILES if tree.real_path(path)]
    name, version = EITHER, None
    text = (tools.text(OFED_INFO, problems, optional=True) or "").strip()
    if text:
        match = _OFED.fullmatch(text[:200])
        if match:
            name = _OFED_NAMES.get(match.group(1), match.group(1))
            version = match.group(2)
        else:
            problems.append(f"ofed_info -s printed no version: {text[:60]!a}")
        evidence.insert(0, " ".join(OFED_INFO))
    return RdmaStack(name, version, ", ".join(evidence)) if evidence else None


# key{attribute} operator "value"; e and i may precede the quote.
_TOKEN = re.compile(
    r'\b(\w+)(?:\{([^}"]*)\})?\s*(==|!=|\+=|-=|:=|=)\s*[ei]{0,2}"((?:[^"\\]|\\.)*)"'
)
# UDEV_LINE_SIZE: udev ignores longer lines.
_MAX_RULE = 16384
_ASSIGNS = ("=", "+=", ":=")
_ATTRIBUTES = ("mode", "mtu")
# Programs and files in RUN that concern us.
_PROGRAM = re.compile(r"\bethtool\b|/mode\b|\bmtu\b")
# Names of systemd and the kernel for netdevs other than IPoIB
# (systemd.net-naming-scheme(7)).
_OTHER_NETDEVS = ("en", "eth", "wl", "ww")


def read_udev_lines(tree: FileTree, problems: list[str]) -> tuple[UdevLine, ...]:
    """Return the lines in the order in which udev reads them."""
    lines: list[UdevLine] = []
    files = conf_texts(tree, folders_named("udev/rules.d"), ".rules", problems)
    for path, text in files:
        lines += (
            UdevLine(path, number, rule)
            for number, rule in rules_of(text)
            if sets_ipoib(rule)
        )
    return tuple(lines)


def rules_of(text: str) -> Iterator[tuple[int, str]]:
    r"""Yield each rule with the number of its first line; ``\`` at the end of a line
    joins the next one.

    Comments are ignored, even within a rule. So is a rule that is not complete at the
    end of the file.
    """
    start = 0
    parts: list[str] = []
    lines = text.split("\n")
    if not lines[-1]:  # after the end of the last line
        lines.pop()
    for number, line in enumerate(lines, 1):
        plain = line.lstrip()
        if plain.startswith("#"):
            continue
        start = start if parts else number
        parts.append(plain.rstrip("\r"))
        if parts[-1].endswith("\\"):
            parts[-1] = parts[-1][:-1]
            continue
        rule = "".join(parts).strip()
        if rule and len(rule) < _MAX_RULE:
            yield start, rule
        parts = []


def sets_ipoib(rule: str) -> bool:
    """Whether a rule sets mode or MTU, or runs ethtool or a program that does, and can
    match IPoIB netdevs.

    A GOTO before the rule, which could skip it, is ignored.
    """
    tokens = _TOKEN.findall(rule)
    return any(_sets(*token) for token in tokens) and all(
        _may_be_ipoib(*token) for token in tokens
    )


def _sets(key: str, attribute: str, operator: str, value: str) -> bool:
    if operator not in _ASSIGNS:
        return False
    if key == "ATTR":
        return attribute in _ATTRIBUTES
    return key == "RUN" and bool(_PROGRAM.search(value))


def _may_be_ipoib(key: str, attribute: str, operator: str, value: str) -> bool:
    """Whether a token can match IPoIB netdevs, judged by subsystem, type and the names
    of other netdevs.
    """
    if operator not in ("==", "!="):
        return True
    patterns = value.split("|")
    if key == "KERNEL" and operator == "==":
        return not all(pattern.startswith(_OTHER_NETDEVS) for pattern in patterns)
    if key == "SUBSYSTEM":
        own = "net"
    elif key == "ATTR" and attribute == "type":
        own = str(ARPHRD_INFINIBAND)
    else:
        return True
    matches = any(fnmatch.fnmatchcase(own, pattern) for pattern in patterns)
    return matches == (operator == "==")


_CONF = "/etc/fapolicyd/fapolicyd.conf"
# In permissive mode refusals are only logged.
_PERMISSIVE = re.compile(rb"^[ \t]*permissive[ \t]*=[ \t]*1[ \t]*$", re.MULTILINE)
ACTIVE = ("systemctl", "show", "-p", "ActiveState", "--value", "fapolicyd.service")
DUMP = ("fapolicyd-cli", "--dump-db")


def refused_programs(
    tree: FileTree, tools: Tools, programs: Sequence[str], problems: Problems = None
) -> tuple[str, ...]:
    """Return the ``programs`` that fapolicyd does not trust; none if it is not running,
    only logs, or cannot be queried.

    Rules of admins that allow more are ignored.
    """
    conf = tree.data(_CONF)
    if conf is None or _PERMISSIVE.search(conf):
        return ()
    if (tools.text(ACTIVE, problems, optional=True) or "").strip() != "active":
        return ()
    dump = tools.text(DUMP, problems, optional=True)
    if dump is None:
        return ()
    lines = (line.partition(" ")[2] for line in dump.splitlines())
    trusted = {line.rsplit(" ", 2)[0] for line in lines}
    return tuple(program for program in programs if program not in trusted)


def read_software(
    tree: FileTree, tools: Tools, release: str, problems: list[str]
) -> Software:
    """Return the installed software, for the running kernel ``release``.

    Every tool is optional: without it the facts that need it are None or empty.
    """
    units = read_units(tree, tools, problems)
    return Software(
        distribution=read_distribution(tree, problems),
        vdsm_version=package_version(tools, "vdsm", problems),
        rdma_core=package_version(tools, "rdma-core", problems),
        stacks=read_rdma_stacks(tree, tools, release, problems),
        kernel_config=read_kernel_config(tree, release, problems),
        units=units,
        udev_lines=read_udev_lines(tree, problems),
        subnet_manager=subnet_manager(units),
        own_files=read_own_files(tree, problems),
        selinux=read_selinux(tree),
    )
