# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the SSH host key that a hypervisor must present: the one that the engine knows.

The engine stores a host's key when it is added, and reports it as ``ssh.public_key``,
with ``ssh.fingerprint`` (HostMapper). Hosts that were added before engine 4.4 have only
a fingerprint. A key is never trusted just because the host presents it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, NamedTuple, Optional, Union

from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled, run_command

# The key types to request from a host of which only the fingerprint is known. The
# engine computes it from whichever key the host presented.
_SCAN_TYPES = "rsa,ecdsa,ed25519"
_SCAN_TIMEOUT_S = 10

# ssh must request the type of the known key, even if its configuration prefers others.
# RSA keys sign with SHA-2: EL9 refuses SHA-1 (RFC 8332).
_ALGORITHMS = {"ssh-rsa": "rsa-sha2-512,rsa-sha2-256"}
_FETCH_AGAIN = "let the engine fetch its key again (Edit Host, SSH public key)"
_KEY_TYPE = re.compile(r"ssh-rsa|ssh-ed25519|ecdsa-sha2-nistp(256|384|521)")


class HostKey(NamedTuple):
    """A public key as in known_hosts: ``ssh-rsa`` and base64."""

    type: str
    base64: str

    @property
    def algorithms(self) -> str:
        """The value of ssh's HostKeyAlgorithms that requests this key."""
        return _ALGORITHMS.get(self.type, self.type)


class KeyProblem(NamedTuple):
    """The reason not to connect to a host, and the fix."""

    sentence: str
    fix: str


@dataclass(frozen=True)
class KnownKeys:
    """``keys`` and ``problems`` by the host's name in the engine.

    For a host in neither, the engine reports no key: it is verified with the operator's
    own known_hosts.
    """

    keys: Mapping[str, HostKey]
    problems: Mapping[str, KeyProblem]


# Takes (port, addresses), returns the output of ssh-keyscan; raises CommandFailed.
Scan = Callable[[int, Sequence[str]], str]


def known_keys(hosts: Iterable[Host], scan: Optional[Scan] = None) -> KnownKeys:
    """Return the keys that the engine knows of ``hosts``.

    If it reports only a fingerprint, ``scan`` asks the host for its keys; only a key
    with this fingerprint is used.
    """
    scan = scan or keyscan
    keys: dict[str, HostKey] = {}
    problems: dict[str, KeyProblem] = {}
    to_scan: dict[int, list[Host]] = {}
    for host in hosts:
        key = read_key(host.public_key)
        if key:
            keys[host.name] = key
        elif host.fingerprint:
            to_scan.setdefault(host.port, []).append(host)
        elif host.public_key:
            problems[host.name] = KeyProblem(
                f"the engine's host key of {host.name} is not a public key",
                _FETCH_AGAIN,
            )
    for port, several in sorted(to_scan.items()):
        try:
            shown = scanned(scan(port, [host.address for host in several]))
        except CommandFailed as failed:
            sentence = f"ssh-keyscan failed: {failed}"
            fix = "run ssh-keyscan by hand"
            if isinstance(failed, NotInstalled):
                fix = "install the package openssh-clients"
            for host in several:
                problems[host.name] = KeyProblem(sentence, fix)
            continue
        for host in several:
            result = _with_fingerprint(host, shown.get(host.address, ()))
            if isinstance(result, HostKey):
                keys[host.name] = result
            else:
                problems[host.name] = result
    return KnownKeys(keys, problems)


def known_hosts_text(keys: Mapping[str, HostKey]) -> str:
    """Return a known_hosts file with ``keys`` by HostKeyAlias."""
    return "".join(f"{alias} {key.type} {key.base64}\n" for alias, key in keys.items())


def read_key(text: Optional[str]) -> Optional[HostKey]:
    """Return the key in the engine's text (type, base64, optionally a comment).

    None if there is no key, or not of a type that hosts use.
    """
    parts = (text or "").split()
    if len(parts) < 2 or not _KEY_TYPE.fullmatch(parts[0]):
        return None
    # The key itself begins with its type, after the length of that (RFC 4253, 6.6).
    name = parts[0].encode("ascii")
    begin = len(name).to_bytes(4, "big") + name
    blob = _decoded(parts[1])
    if blob is None or not blob.startswith(begin) or len(blob) == len(begin):
        return None
    return HostKey(parts[0], parts[1])


def scanned(text: str) -> dict[str, tuple[HostKey, ...]]:
    """Return the keys in the output of ssh-keyscan, by the given address."""
    keys: dict[str, tuple[HostKey, ...]] = {}
    for line in text.splitlines():
        address, _, rest = line.partition(" ")
        key = read_key(rest)
        if key is None:
            continue
        bracketed = re.fullmatch(r"\[(.*)\]:\d+", address)
        address = bracketed.group(1) if bracketed else address
        keys[address] = (*keys.get(address, ()), key)
    return keys


def keyscan(port: int, addresses: Sequence[str]) -> str:
    """Ask many hosts for their keys; each has 10 s to answer. See :data:`Scan`."""
    # ssh-keyscan asks about a hundred in parallel, and exits with 1 if none answered.
    limit = _SCAN_TIMEOUT_S * (2 + len(addresses) // 50)
    command = ["ssh-keyscan", "-T", str(_SCAN_TIMEOUT_S), "-p", str(port)]
    try:
        return run_command([*command, "-t", _SCAN_TYPES, "--", *addresses], limit)
    except CommandFailed as failed:
        if failed.returncode == 1:
            return ""
        raise


def has_fingerprint(key: HostKey, fingerprint: str) -> Optional[bool]:
    """Return whether ``key`` has the engine's fingerprint: ``SHA256:`` and base64, or
    the MD5 of earlier engines in hexadecimal digits. None if it has neither form.
    """
    blob = _decoded(key.base64) or b""
    text = fingerprint.strip()
    kind, _, rest = text.partition(":")
    if kind.upper() in ("SHA256", "SHA-256"):
        digest = base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii")
        return digest.rstrip("=") == rest.rstrip("=")
    pairs = (rest if kind.upper() == "MD5" else text).lower()
    if re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){15}", pairs):
        digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
        return digest == pairs.replace(":", "")
    return None


def _with_fingerprint(
    host: Host, shown: Sequence[HostKey]
) -> Union[HostKey, KeyProblem]:
    fingerprint = host.fingerprint or ""
    if not shown:
        return KeyProblem(
            f"{host.name} presented no SSH host key on {host.address} port {host.port}",
            "check that the host is up, and that its sshd can be reached from here",
        )
    verdicts = {key: has_fingerprint(key, fingerprint) for key in shown}
    for key, verdict in verdicts.items():
        if verdict:
            return key
    if None in verdicts.values():
        return KeyProblem(
            f"the engine's fingerprint of {host.name} has an unknown form: "
            f"{fingerprint}",
            _FETCH_AGAIN,
        )
    return KeyProblem(
        f"{host.name} does not present the host key that the engine knows: none of its "
        f"keys has the fingerprint {fingerprint}",
        f"find out why: it may be another machine; if it was reinstalled: "
        f"{_FETCH_AGAIN}",
    )


def _decoded(text: str) -> Optional[bytes]:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
