# SPDX-License-Identifier: GPL-2.0-or-later
"""Simulate mount(8), umount(8) and the kernel's mount table for tests.

Every server answers on tcp 2049 and rdma 20049 until a test says otherwise.
Rules of mount.nfs and the kernel, as measured in the lab (nfs-utils 2.6.2, Linux
6.1) or, for bare ``tcp`` and IPv6, read in nfs-utils (nfs_nfs_proto_family):

* the last of ``proto=X``, ``rdma``, ``tcp``, ``udp`` wins; none means tcp;
* a TCP mount with the RDMA port is refused, and the reverse;
* a named transport fits IPv6 only as ``proto=rdma6`` or ``proto=tcp6``, and IPv4
  only without the 6; ``rdma6`` without ``proto=`` is no option;
* an NFS 4 mount uses the connection, and so the transport, of an existing mount with
  the same minor version and address;
* mounts with ``retry=0`` and mounts that would be tried for two minutes both fail at
  once: compare the options in ``mounts``.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from support.storage import nfs_mount_text as text

REFUSED = b"mount.nfs: Connection refused\n"
ACCESS_DENIED = b"mount.nfs: access denied by server while mounting"
NO_SUCH_PATH = b"reason given by server: No such file or directory"
WRONG_OPTION = b"mount.nfs: an incorrect mount option was specified\n"

_WRONG_FAMILY = (
    b"mount.nfs: Failed to resolve server %s: Address family for hostname not"
    b" supported\n"
)

_Failure = tuple[int, bytes]


@dataclass(frozen=True)
class MountCall:
    """One run of mount(8); ``protocol`` is ``tcp``, ``udp`` or ``rdma``."""

    spec: str
    file: str
    options: Optional[str]
    vfstype: Optional[str]

    @property
    def server(self) -> str:
        return text.split_spec(self.spec)[0]

    @property
    def protocol(self) -> str:
        return (text.named_transport(self.options or "") or "tcp").rstrip("6")


@dataclass(frozen=True)
class UmountCall:
    """One run of umount(8)."""

    file: str
    force: bool
    lazy: bool


@dataclass
class _Answer:
    """What a server does on a protocol (None: on all), at most ``times`` times."""

    server: str
    protocol: Optional[str]
    rc: int = 0
    err: bytes = b""
    times: Optional[int] = None
    gate: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)

    def fits(self, call: MountCall) -> bool:
        return (
            self.server == call.server
            and self.protocol in (None, call.protocol)
            and (self.times is None or self.times > 0)
        )


class FakeKernel:
    """The mount table below ``root``/proc and the servers that tests describe.

    ``mounts`` and ``umounts`` list all requests, also those that failed.
    ``addresses`` resolves server names; an unlisted name is 192.0.2.10.
    """

    def __init__(self, root: Path, mount_error: type[Exception]) -> None:
        self.root = root
        self.mounts: list[MountCall] = []
        self.umounts: list[UmountCall] = []
        self.addresses: dict[str, str] = {}
        self._error: Any = mount_error
        self._answers: list[_Answer] = []
        self._holds: list[_Answer] = []
        self._ports: dict[tuple[str, str], int] = {}
        self._access: dict[str, OSError] = {}
        self._table: list[text.ShownMount] = []
        self._detached: list[text.ShownMount] = []
        self._lock = threading.Lock()
        self._called = threading.Condition(self._lock)
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/mounts").symlink_to("self/mounts")
        self._show()

    @property
    def proc_mounts(self) -> Path:
        return self.root / "proc/mounts"

    # For tests: the state of servers

    def fail(
        self,
        server: str,
        protocol: Optional[str] = None,
        err: bytes = REFUSED,
        rc: int = 32,
        times: Optional[int] = None,
    ) -> None:
        """Let mounts from ``server`` over ``protocol`` fail, ``times`` times."""
        self._answers.append(_Answer(server, protocol, rc, err, times))

    def listen(self, server: str, protocol: str, port: int) -> None:
        """Move the server's listener for ``protocol`` to another port."""
        self._ports[server, protocol] = port

    @contextmanager
    def hold(
        self, server: str, protocol: Optional[str] = None
    ) -> Iterator[threading.Event]:
        """Let mounts from ``server`` hang until the block ends.

        Yields an event that is set once a mount hangs.
        """
        held = _Answer(server, protocol)
        self._holds.append(held)
        try:
            yield held.reached
        finally:
            self._holds.remove(held)
            held.gate.set()

    def wait_for_mounts(self, count: int) -> None:
        """Return once mount(8) was called ``count`` times in all; 60 s at most."""
        with self._lock:
            assert self._called.wait_for(lambda: len(self.mounts) >= count, 60)

    def deny_access(self, spec: str, error: Optional[OSError] = None) -> None:
        """Let VDSM's access check fail on this mount: with ``error``, or because vdsm
        has no permission.
        """
        self._access[spec] = error or PermissionError(spec)

    def mount_before(self, spec: str, file: str, options: str) -> None:
        """Add an NFS mount to the table that existed before the test."""
        Path(file).mkdir(parents=True, exist_ok=True)
        call = MountCall(spec, file, options, "nfs")
        with self._lock:
            self._add(call)

    def detach(self, file: str) -> None:
        """Unmount like ``umount -l`` of a mount in use: its connection stays."""
        with self._lock:
            self._detached += [m for m in self._table if m.file == file]
            self._table = [m for m in self._table if m.file != file]
            self._show()

    def pass_time(self, seconds: int) -> None:
        """Let the existing mounts grow older."""
        with self._lock:
            self._table = [replace(m, age_s=m.age_s + seconds) for m in self._table]
            self._show()

    # For tests: the mount table

    def mounted(self) -> list[tuple[str, str]]:
        """Return the existing mounts, as (spec, protocol shown)."""
        with self._lock:
            return [(e.spec, e.protocol) for e in self._table]

    def access_error(self, file: str) -> Optional[OSError]:
        """Return the error of the access check on the mount at ``file``, if any."""
        with self._lock:
            seen = [e.spec for e in self._table if e.file == file]
        assert seen, f"access check on {file}, where nothing is mounted"
        return self._access.get(seen[-1])

    # Called by VDSM

    def mount(
        self,
        fs_spec: str,
        fs_file: str,
        mntOpts: Optional[str] = None,
        vfstype: Optional[str] = None,
        cgroup: Optional[str] = None,
    ) -> None:
        """Stand in for ``vdsm.storage.mount._mount``."""
        assert cgroup is None, "an NFS mount needs no cgroup"
        call = MountCall(fs_spec, fs_file, mntOpts, vfstype)
        with self._lock:
            self.mounts.append(call)
            self._called.notify_all()
        for hold in [hold for hold in self._holds if hold.fits(call)]:
            hold.reached.set()
            assert hold.gate.wait(60), f"nothing released {call}"
        with self._lock:
            failure = self._failure(call)
            if failure is None:
                self._add(call)
                return
        rc, err = failure
        command = ["/usr/bin/mount", "-t", vfstype, "-o", mntOpts, fs_spec, fs_file]
        raise self._error(command, rc, b"", err)

    def umount(
        self,
        fs_file: str,
        force: bool = False,
        lazy: bool = False,
        freeloop: bool = False,
    ) -> None:
        """Stand in for ``vdsm.storage.mount._umount``."""
        assert not freeloop, "an NFS mount has no loop device"
        with self._lock:
            self.umounts.append(UmountCall(fs_file, force, lazy))
            found = [e for e in self._table if e.file == fs_file]
            if found:
                last = len(self._table) - 1 - self._table[::-1].index(found[-1])
                del self._table[last]
                self._show()
                return
        flags = ["-f"] * force + ["-l"] * lazy
        err = f"umount: {fs_file}: not mounted.\n".encode()
        raise self._error(["/usr/bin/umount", *flags, fs_file], 32, b"", err)

    def _failure(self, call: MountCall) -> Optional[_Failure]:
        if not Path(call.file).is_dir():
            missing = f"mount.nfs: mount point {call.file} does not exist\n"
            return 32, missing.encode()
        for answer in self._answers:
            if answer.fits(call):
                if answer.times is not None:
                    answer.times -= 1
                return answer.rc, answer.err
        options = call.options or ""
        named = text.named_transport(options)
        bare_with_6 = {"tcp6", "udp6", "rdma6"} & set(options.split(","))
        if named not in (None, *text.TRANSPORTS) or bare_with_6:
            return 32, WRONG_OPTION
        is_v6 = self._address(call.server).version == 6
        if named and is_v6 != named.endswith("6"):
            return 32, _WRONG_FAMILY % call.server.encode()
        standard = text.STANDARD_PORT[call.protocol]
        wanted = int(text.last_value(options, "port") or standard)
        if wanted != self._ports.get((call.server, call.protocol), standard):
            return 32, REFUSED
        return None

    def _address(self, server: str) -> Any:
        return ipaddress.ip_address(
            self.addresses.get(server, server if _is_address(server) else "192.0.2.10")
        )

    def _add(self, call: MountCall) -> None:
        address = self._address(call.server)
        protocol = call.protocol + ("6" if address.version == 6 else "")
        options = call.options or ""
        fresh = text.shown(call.spec, call.file, options, protocol, str(address))
        for standing in (*self._table, *self._detached):
            if fresh.connection and fresh.connection == standing.connection:
                protocol = standing.protocol
                fresh = text.shown(
                    call.spec, call.file, options, protocol, str(address)
                )
                break
        self._table.append(fresh)
        self._show()

    def _show(self) -> None:
        table = self._table
        proc = self.root / "proc/self"
        _replace(proc / "mounts", "".join(m.mounts_line() for m in table))
        info = [m.mountinfo_line(number) for number, m in enumerate(table)]
        _replace(proc / "mountinfo", "".join(info))
        _replace(proc / "mountstats", "".join(m.mountstats_block() for m in table))


def _replace(path: Path, content: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(content, encoding="utf-8", errors="surrogateescape")
    fresh.replace(path)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
