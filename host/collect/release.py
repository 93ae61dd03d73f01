# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the distribution, the kernel's configuration and the versions of packages.

The distribution is in os-release(5). rpm knows the versions, or dpkg if rpm does not.
Of the running kernel's configuration only symbols for RDMA and NFS are read.
"""

from __future__ import annotations

import re
import shlex
import zlib
from collections.abc import Sequence
from typing import Optional

from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.model import KernelOption
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree

RUNNING = "/proc/config.gz"
# A configuration of Linux 6.12 has 0.3 MB.
MAX_BYTES = 8 << 20

# drivers/infiniband, drivers/net/ethernet/mellanox, net/sunrpc, fs/nfs, fs/configfs
# and net/dcb in Linux 6.12; without CONFIG_.
_CORE = "INFINIBAND INFINIBAND_USER_ACCESS INFINIBAND_USER_MAD CONFIGFS_FS DCB"
_IPOIB = "INFINIBAND_IPOIB INFINIBAND_IPOIB_CM MLX5_CORE_IPOIB"
_MELLANOX = "MLX4_CORE MLX4_CORE_GEN2 MLX4_INFINIBAND MLX5_CORE MLX5_INFINIBAND"
_OTHERS = "HFI1 QIB MTHCA IRDMA BNXT_RE CXGB4 QEDR OCRDMA USNIC VMWARE_PVRDMA"
_SOFT = "RDMA_RXE RDMA_SIW"
_NFS = "SUNRPC_XPRT_RDMA NFS_FS NFS_V3 NFS_V4"
_BLOCK = "INFINIBAND_SRP INFINIBAND_ISER NVME_RDMA"
SYMBOLS = frozenset(f"{_CORE} {_IPOIB} {_MELLANOX} {_SOFT} {_NFS} {_BLOCK}".split()) | {
    f"INFINIBAND_{name}" for name in _OTHERS.split()
}

_SET = re.compile(r"^CONFIG_(\w+)=(.*)$", re.MULTILINE | re.ASCII)
_NOT_SET = re.compile(r"^# CONFIG_(\w+) is not set$", re.MULTILINE | re.ASCII)


def read_kernel_config(
    tree: FileTree, release: str, problems: list[str]
) -> Optional[tuple[KernelOption, ...]]:
    """Return the symbols in SYMBOLS, sorted; None if there is no configuration of the
    kernel ``release``.

    A symbol that is missing in the result is missing in the configuration: this kernel
    does not have it, or one of its dependencies is not set.
    """
    for path in (
        f"/boot/config-{release}",
        f"/lib/modules/{release}/config",  # EL, and images without their own /boot
        f"/usr/lib/modules/{release}/config",
        RUNNING,
    ):
        data = tree.data(path)
        if data is None:
            continue
        if path == RUNNING:
            data = _unpacked(path, data, problems)
        options = parse_kernel_config(data or b"")
        if options is not None:
            return options
        if data is not None:
            problems.append(f"{path} is not a kernel configuration")
    return None


def parse_kernel_config(data: bytes) -> Optional[tuple[KernelOption, ...]]:
    """Return the symbols in SYMBOLS; None if ``data`` has no symbols at all."""
    text = data[:MAX_BYTES].decode("utf-8", "surrogateescape")
    values = dict.fromkeys(_NOT_SET.findall(text), "n")
    values.update(_SET.findall(text))
    if not values:
        return None
    return tuple(
        KernelOption(name, values[name].strip().strip('"'))
        for name in sorted(SYMBOLS & values.keys())
    )


def _unpacked(path: str, data: bytes, problems: list[str]) -> Optional[bytes]:
    """Unpack gzip, up to MAX_BYTES."""
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        unpacked = stream.decompress(data, MAX_BYTES)
    except zlib.error as e:
        problems.append(f"{path} cannot be unpacked: {e}")
        return None
    if not stream.eof:
        too_large = len(unpacked) >= MAX_BYTES
        reason = "it is far too large" if too_large else "it ends too early"
        problems.append(f"{path} cannot be unpacked: {reason}")
        return None
    return unpacked


FILES = ("/etc/os-release", "/usr/lib/os-release")

_EL_PLATFORM = re.compile(r"platform:(el\d{1,3})")
_EL_FAMILY = frozenset(("rhel", "centos"))
_MAJOR = re.compile(r"\d{1,3}")


def read_distribution(tree: FileTree, problems: list[str]) -> Optional[str]:
    """Return ``el9`` (also for its rebuilds and oVirt Node), ``fc40`` or ``debian12``.

    ``debian`` without a version is Debian testing. None if there is no os-release.
    """
    for path in FILES:
        data = tree.data(path)
        if data is not None:
            fields = parse_os_release(path, data, problems)
            return distribution(fields) or None
    problems.append(f"the distribution is unknown: there is no {' or '.join(FILES)}")
    return None


def parse_os_release(path: str, data: bytes, problems: list[str]) -> dict[str, str]:
    """Return the assignments, unquoted as in a shell; other lines get a sentence."""
    fields = {}
    text = data.decode("utf-8", "surrogateescape")
    for number, line in enumerate(text.split("\n"), 1):
        plain = line.strip()
        if not plain or plain.startswith("#"):
            continue
        key, is_assignment, value = plain.partition("=")
        try:
            words = shlex.split(value)
        except ValueError:  # a quote that is not closed
            words = ["", ""]
        if is_assignment and key.isidentifier() and len(words) < 2:
            fields[key] = "".join(words)
        else:
            problems.append(
                f"{path} line {number} is not an assignment: {plain[:60]!a}"
            )
    return fields


def distribution(fields: dict[str, str]) -> str:
    """Return the name for the fields of an os-release; empty without ``ID``.

    CentOS Stream, RHEL and their rebuilds have ``PLATFORM_ID=platform:el9``; Fedora has
    another form.
    """
    platform = _EL_PLATFORM.fullmatch(fields.get("PLATFORM_ID", ""))
    if platform:
        return platform.group(1)
    own, version = fields.get("ID", ""), fields.get("VERSION_ID", "")
    major = _MAJOR.match(version)
    if major and _EL_FAMILY & {own, *fields.get("ID_LIKE", "").split()}:
        return f"el{major.group()}"
    return f"{'fc' if own == 'fedora' else own}{version}" if own else ""


# Both exit with 1 for a package that is not installed. rpm prints that on stdout; other
# errors are on stderr.
_NOT_INSTALLED = 1
_RPM_WORDS = "exit status 1"
_DPKG_WORDS = "no packages found matching"


def package_version(tools: Tools, package: str, problems: list[str]) -> Optional[str]:
    """Return the version such as ``4.50.5.1``, without the distribution's part; None if
    the package is not installed, or there is no package tool.
    """
    return _rpm(tools, package, problems) or _dpkg(tools, package, problems)


def _rpm(tools: Tools, package: str, problems: list[str]) -> Optional[str]:
    argv = ["rpm", "-q", "--qf", r"%{VERSION}\n", package]
    lines = _answer(tools, argv, _RPM_WORDS, problems).split()
    return lines[0] if lines else None


def _dpkg(tools: Tools, package: str, problems: list[str]) -> Optional[str]:
    """Ask dpkg, which may also list a removed package whose configuration is kept."""
    argv = ["dpkg-query", "-W", "-f", r"${db:Status-Status}/${Version}\n", package]
    for line in _answer(tools, argv, _DPKG_WORDS, problems).split():
        status, _, version = line.partition("/")
        if status == "installed":  # epoch:upstream-revision, deb-version(7)
            return version.rpartition(":")[2].rpartition("-")[0] or version
    return None


def _answer(
    tools: Tools, argv: Sequence[str], not_installed: str, problems: list[str]
) -> str:
    try:
        text = tools.text(argv, problems, optional=True, raised_status=_NOT_INSTALLED)
    except CommandFailed as no:
        if not_installed not in str(no):
            problems.append(f"{' '.join(argv)} failed: {no}")
        return ""
    return text or ""
