# SPDX-License-Identifier: GPL-2.0-or-later
"""Ask the server of each mount one question that no cache can answer, and look for the
signs that tell why a server does not answer, or answers late.

The question is the lookup of a name that cannot exist: a new random name each time, so
that neither the attributes nor the negative entries that the kernel keeps apply. That
is one call to the server (LOOKUP); with Linux 6.12 an ACCESS before it, because it
keeps none for a process of another user than its parent's (nfs_access_login_time in
fs/nfs/dir.c). A child process asks it, because a call to a dead
server cannot be ended: the kernel may keep the caller in an uninterruptible wait. The
parent waits for an answer until the deadline, then kills the child and forgets it. The
child is a fork without exec, which costs a millisecond; it has no file, lock or
terminal of the parent, and works in ``/``.

Signs are only looked for if a mount is in trouble: this host's route and port, a TCP
connection to the server's NFS port with a call that does nothing, and, if the server
does not answer, an RDMA connection to its listener. Each ends at its deadline. The
kernel of the server answers a TCP connection, not its NFS threads: the time of the
answer is that of the path. The call needs a thread, and so does an RDMA connection to a
Linux server (svc_rdma_accept in net/sunrpc/xprtrdma/svc_rdma_transport.c).
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import re
import select
import signal
import socket
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, NoReturn, Optional

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.facts.model import Facts, Route
from ovirt_rdma.host.paths import PROBES, is_vdsms
from ovirt_rdma.host.system.files import write_atomically
from ovirt_rdma.host.system.json_codec import Records, json_value
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.signals import close_files, default_signals
from ovirt_rdma.host.system.tree import VDSM_GID, VDSM_UID, seconds_after_boot, start_of
from ovirt_rdma.storage.readiness import (
    NOT_READY,
    Network,
    Step,
    local_steps,
    ports_behind,
    read_local,
)

PROBE_S = 2.0
# Children at the same time: a fork of each for hundreds of mounts would take memory.
AT_ONCE = 32
BLOCK = 4096
# Seconds for AT_ONCE of them to answer one by one, and a tenth of that for each: a
# server that is well needs milliseconds.
_SOUND_S = 1.0
# A killed child is gone at once, unless it waits in the kernel.
_GONE_S = 0.05
_MOST_DOMAINS = 20
# An export has a few entries; one of a file server may have millions.
_MOST_ENTRIES = 1000
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ANSWER_BYTES = 4096


@dataclass(frozen=True)
class Answer:
    """What the server of a mount answered.

    - ``seconds``: until the answer to the lookup; None without an answer
    - ``error``: the errno's name, if the call failed otherwise than ENOENT: ``ESTALE``
    - ``read_s``, ``read_error``: the same for the read; both None if there was none,
      as there was no file to read
    - ``late``: there was no answer to the lookup until the deadline; ``read_late``:
      to the lookup there was, to the read not, which began in the first half
    - ``stuck_s``: seconds since an earlier question, whose child still waits in the
      kernel, so that it was not asked again
    - ``problem``: why nothing could be asked; "" if it could
    """

    seconds: Optional[float] = None
    error: Optional[str] = None
    read_s: Optional[float] = None
    read_error: Optional[str] = None
    late: bool = False
    read_late: bool = False
    stuck_s: Optional[float] = None
    problem: str = ""


Work = Callable[[str, bool], "Iterable[dict[str, Any]]"]
"""What a child does; yields fields of its Answer, the lookup's first."""


def ask_server(mountpoint: str, read: bool = False) -> Iterator[dict[str, Any]]:
    """Look up the name, then read 4 KiB without the page cache if ``read``; yield
    fields of an Answer. May never end. Runs in the child.
    """
    if is_vdsms(mountpoint) and os.geteuid() == 0:
        # A server maps root to nobody (root_squash).
        os.setgroups([])
        os.setgid(VDSM_GID)
        os.setuid(VDSM_UID)
    begun = time.monotonic()
    fields = _timed("seconds", "error", lambda: _look_up(mountpoint))
    yield fields
    if not read or fields["error"] is not None:
        return
    path = monitored_file(mountpoint)
    # A read that begins late says nothing if it is not done at the deadline.
    if path is not None and time.monotonic() - begun < PROBE_S / 2:
        yield {"read_late": True}
        yield {
            **_timed("read_s", "read_error", lambda: read_block(path)),
            "read_late": False,
        }


def _timed(seconds: str, error: str, work: Callable[[], None]) -> dict[str, Any]:
    begun = time.monotonic()
    failed = None
    try:
        work()
    except OSError as problem:
        failed = errno.errorcode.get(problem.errno or 0, str(problem.errno))
    return {seconds: time.monotonic() - begun, error: failed}


def _look_up(mountpoint: str) -> None:
    try:
        os.lstat(f"{mountpoint}/.ovirt-rdma-{os.urandom(12).hex()}")
    except FileNotFoundError:
        return
    except PermissionError:
        # The kernel keeps the server's answer to ACCESS, so this may be that. STATFS
        # is never kept (fs/nfs/super.c, nfs_statfs) and needs no permission.
        os.statvfs(mountpoint)
        raise


def monitored_file(mountpoint: str) -> Optional[str]:
    """Return the file of a storage domain that is safe to read; None if there is none.

    VDSM itself reads 4 KiB of dom_md/metadata with O_DIRECT every 10 s (VDSM,
    storage/check.py, DirectioChecker; fileSD.py, getMonitoringPath). The leases of
    sanlock are other files (ids, leases), which are not opened.
    """
    with contextlib.suppress(OSError), os.scandir(mountpoint) as entries:
        first = (entry.name for entry, _ in zip(entries, range(_MOST_ENTRIES)))
        names = (name for name in first if _UUID.fullmatch(name))
        for name, _ in zip(names, range(_MOST_DOMAINS)):
            path = f"{mountpoint}/{name}/dom_md/metadata"
            with contextlib.suppress(OSError):
                if stat.S_ISREG(os.lstat(path).st_mode):
                    return path
    return None


def read_block(path: str) -> None:
    """Read 4 KiB from the server, not from the page cache. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        # O_DIRECT needs memory that begins at a page.
        with mmap.mmap(-1, BLOCK) as block:
            os.preadv(descriptor, [block], 0)
    finally:
        os.close(descriptor)


class Child:
    """A child process: a fork without exec, which has nothing of its parent but a
    ``pipe``, and sends the fields that ``work`` yields. Raises OSError without one.
    """

    def __init__(self, work: Callable[[], Iterable[dict[str, Any]]]) -> None:
        self.data, self.closed = b"", False
        self.pipe, writer = os.pipe()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _be_child(writer, work)
        except OSError:
            os.close(self.pipe)
            raise
        finally:
            os.close(writer)
        os.set_blocking(self.pipe, False)

    def read(self) -> None:
        """Take what it has sent; ``closed`` at the end. Raises BlockingIOError."""
        part = os.read(self.pipe, _ANSWER_BYTES)
        self.data += part
        self.closed = not part

    @property
    def answered(self) -> bool:
        """Whether it has sent the first fields: of the answer to the lookup."""
        return b"\n" in self.data

    @property
    def fields(self) -> dict[str, Any]:
        """All fields so far; what follows the last end of a line was cut off. Raises
        ValueError, or TypeError.
        """
        found: dict[str, Any] = {}
        for line in self.data.split(b"\n")[:-1]:
            found.update(json.loads(line))
        return found


@dataclass(frozen=True)
class _Left:
    """A child that could not be killed: what it asks, and when it was started, in clock
    ticks after boot.
    """

    mountpoint: str
    reads: bool
    started: int


_RECORDS = Records("the record of a probe")


class Probes:
    """Asks for many mounts at the same time, from one thread.

    A mount whose earlier child still waits in the kernel is not asked the same again:
    a mount has one such child for the lookup at most, and one for the read, also of
    other processes. These find it by a record in ``folder``: a file of root's with the
    name of the process id, for any user may give a process any name.
    """

    def __init__(
        self,
        work: Work = ask_server,
        folder: Optional[str] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work, self._clock = work, clock
        self._folder = PROBES if folder is None else folder
        # The children of this process that did not end when they were killed, by pid.
        self._left: dict[int, _Left] = {}

    def ask(
        self,
        mountpoints: Sequence[str],
        *,
        read: bool = False,
        timeout_s: float = PROBE_S,
    ) -> dict[str, Answer]:
        """Return the answer for each mount point, within ``timeout_s`` and _SOUND_S
        seconds for each AT_ONCE of them.
        """
        stuck = self._stuck()
        answers = {
            place: Answer(late=True, stuck_s=stuck[place, False])
            for place in mountpoints
            if (place, False) in stuck
        }
        free = [
            (place, read and (place, True) not in stuck)
            for place in mountpoints
            if place not in answers
        ]
        for first in range(0, len(free), AT_ONCE):
            answers.update(self._ask_some(free[first : first + AT_ONCE], timeout_s))
        for place, reads in free:
            if read and not reads and not answers[place].late:
                answers[place] = replace(
                    answers[place], read_late=True, stuck_s=stuck[place, True]
                )
        return answers

    def _ask_some(
        self, questions: Iterable[tuple[str, bool]], timeout_s: float
    ) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        children: dict[str, Child] = {}
        until = time.monotonic() + _SOUND_S
        try:
            for place, read in questions:
                try:
                    child = children[place] = Child(partial(self._work, place, read))
                except OSError as error:
                    why = f"no process could be started: {error.strerror}"
                    answers[place] = Answer(problem=why)
                    continue
                # While all is well, there is one child at a time: each takes memory.
                patience = min(_SOUND_S / 10, until - time.monotonic())
                _gather({place: child}, max(0.0, patience), time.monotonic)
            _gather(children, timeout_s, self._clock)
        finally:
            self._end(children)
        for mountpoint, child in children.items():
            answers[mountpoint] = _answer_of(child)
        return answers

    def _end(self, children: dict[str, Child]) -> None:
        """Kill and reap the children; those that do not end are left alone."""
        left = dict(children)
        for child in children.values():
            os.close(child.pipe)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        deadline = time.monotonic() + _GONE_S
        while left and time.monotonic() < deadline:
            left = {m: child for m, child in left.items() if not reaped(child.pid)}
            time.sleep(0.001 if left else 0)
        for place, child in left.items():
            started = start_of(child.pid)
            if started is not None:
                self._left[child.pid] = _Left(place, child.answered, started)
                self._record(child.pid)

    def _record(self, pid: int) -> None:
        # Without a record, as without root, only this process knows of it.
        folder = Path(self._folder)
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = json.dumps(asdict(self._left[pid])).encode("ascii")
            write_atomically(folder / str(pid), content, 0o600)

    def _stuck(self) -> dict[tuple[str, bool], float]:
        """Return since how many seconds children wait, by their mount point and whether
        they read. Records of those that have ended are removed.
        """
        found: dict[tuple[str, bool], float] = {}
        for pid, left in {**_records(self._folder), **self._left}.items():
            ended = pid in self._left and reaped(pid)
            if ended or start_of(pid) != left.started:
                self._left.pop(pid, None)
                with contextlib.suppress(OSError):
                    (Path(self._folder) / str(pid)).unlink()
                continue
            begun_s = left.started / os.sysconf("SC_CLK_TCK")
            age_s = seconds_after_boot() - begun_s
            key = (left.mountpoint, left.reads)
            found[key] = max(age_s, found.get(key, 0.0))
        return found


def _gather(
    children: Mapping[str, Child], timeout_s: float, clock: Callable[[], float]
) -> None:
    """Read what the children write, until all have ended or the deadline."""
    waiting = {child.pipe: child for child in children.values()}
    poll = select.poll()
    for pipe in waiting:
        poll.register(pipe, select.POLLIN)
    deadline = clock() + timeout_s
    while waiting:
        left = deadline - clock()
        ready = poll.poll(max(0.0, left) * 1000)
        for pipe, _ in ready:
            waiting[pipe].read()
            if waiting[pipe].closed:
                waiting.pop(pipe)
                poll.unregister(pipe)
        if left <= 0 and not ready:
            return


def _be_child(writer: int, work: Callable[[], Iterable[dict[str, Any]]]) -> NoReturn:
    """Ask, write the answer and end; never returns."""
    try:
        default_signals()
        os.setsid()
        os.chdir("/")
        close_files(writer)
        try:
            for fields in work():
                _write(writer, fields)
        except Exception as error:  # noqa: BLE001  (the parent says it)
            _write(writer, {"problem": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _write(writer: int, fields: dict[str, Any]) -> None:
    os.write(writer, json.dumps(fields).encode("ascii") + b"\n")


def _answer_of(child: Child) -> Answer:
    """Return the answer that a child wrote until it ended, or the deadline."""
    if not child.answered and not child.closed:
        return Answer(late=True)
    if not child.answered:
        return Answer(problem="the process that asked the server ended without answer")
    try:
        answer = Answer(**child.fields)
    except (ValueError, TypeError):
        return Answer(problem="the process that asked the server wrote no answer")
    if child.closed and answer.read_late:
        return Answer(problem="the process that asked the server ended in the read")
    return answer


def reaped(pid: int) -> bool:
    """Whether the child has ended; never waits. False for another one's child."""
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        # That of an earlier process of the daemon: /proc says if it is there.
        return False


def _records(folder: str) -> dict[int, _Left]:
    """Return the children that processes have left, by pid."""
    found = {}
    with contextlib.suppress(OSError):
        for path in Path(folder).iterdir():
            with contextlib.suppress(OSError, ValueError):
                left = _RECORDS.read(_Left, json_value(read_file(path, _ANSWER_BYTES)))
                found[int(path.name)] = left
    return found


# The GIDs of a port's own addresses are the first of its table.
_FIRST_GIDS = 16
KNOCK_S = 1.5
LISTENER_S = 2.0
# The RDMA listener is asked by a program, whose start would delay a TCP answer that is
# on its way; after this time none is, and both are waited for together.
ALONE_S = 0.3
# Servers asked at the same time: each needs a thread and, for RDMA, a process.
_AT_ONCE = 8
# The number of NFS among the programs of RPC (RFC 7530).
_NFS = 100003

# How the server's TCP port answered.
ACCEPTS, REFUSES, SILENT, UNREACHABLE = "accepts", "refuses", "silent", "unreachable"
# No machine answered to the address: ARP and its like, on this host or the last router
# (net/ipv4/arp.c, arp_error_report; EHOSTUNREACH). Or a firewall rejects: EHOSTUNREACH
# too (icmp_err_convert in net/ipv4/icmp.c), EACCES (tab_unreach in net/ipv6/icmp.c).
ABSENT = "absent, or rejected"
# operstate of a netdev: Linux, Documentation/networking/operstates.rst.
_CARRIER = {"up": True, "down": False, "lowerlayerdown": False}
# States of a port with a link, until the subnet manager has set it up
# (drivers/infiniband/core/sysfs.c, state_show).
_NO_SM = {"INIT", "ARMED"}
_RESULTS = {
    errno.ECONNREFUSED: REFUSES,
    errno.ECONNRESET: REFUSES,
    errno.ETIMEDOUT: SILENT,
    errno.EINPROGRESS: SILENT,
    errno.EAGAIN: SILENT,
    errno.EHOSTUNREACH: ABSENT,
    errno.EACCES: ABSENT,
}


@dataclass(frozen=True)
class Knock:
    """The answer to a TCP connection: ACCEPTS, REFUSES, SILENT, ABSENT or UNREACHABLE
    (this host's kernel or a router says so), and the seconds until it came.

    ``replied``: whether an NFS thread answered a call within the time; None: unknown
    """

    result: str
    seconds: float
    replied: Optional[bool] = None


@dataclass(frozen=True)
class ServerSigns:
    """What was seen of one server.

    - ``steps``: the readiness of this host: module, route, port
    - ``netdev``: by which it is reached; ``carrier``: of that; None if unknown
    - ``devices``: the RDMA ports that lead to it: device and port number
    - ``infiniband``: whether one of them is an InfiniBand port
    - ``ports_down``: the RDMA ports of this host that are not ACTIVE: ``mlx5_0/1 is
      DOWN``; ``waits_for_sm``: the link of one is up, but no subnet manager set it up
    - ``tcp``: its NFS port; ``listener``: its RDMA listener, None if it was not asked:
      for a TCP mount, or a server that answers
    """

    steps: tuple[Step, ...]
    tcp: Knock
    listener: Optional[Step] = None
    netdev: Optional[str] = None
    carrier: Optional[bool] = None
    devices: tuple[tuple[str, int], ...] = ()
    infiniband: bool = False
    ports_down: tuple[str, ...] = ()
    waits_for_sm: bool = False


def knock(address: str, port: int, timeout_s: float = KNOCK_S) -> Knock:
    """Connect to the TCP port of an NFS server and call it; say how the connection was
    answered, and how soon, and whether the call was.
    """
    begun = time.monotonic()
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as connected:
            seconds = time.monotonic() - begun
            replied = _replies(connected, begun + timeout_s)
            return Knock(ACCEPTS, seconds, replied)
    except socket.timeout:
        result = SILENT
    except OSError as error:
        result = _RESULTS.get(error.errno or 0, UNREACHABLE)
    return Knock(result, time.monotonic() - begun)


def _replies(connected: socket.socket, until: float) -> Optional[bool]:
    """Whether NFS answers procedure NULL, which needs no rights; None if the connection
    ends before. A server without NFS 4 answers too, with an error (RFC 5531).
    """
    number = os.urandom(4)
    call = number + struct.pack(">9I", 0, 2, _NFS, 4, 0, 0, 0, 0, 0)
    # TCP has records: the last fragment, its length.
    expected, received = number + struct.pack(">I", 1), b""
    try:
        connected.sendall(struct.pack(">I", 1 << 31 | len(call)) + call)
        while len(received) < 4 + len(expected):
            left = until - time.monotonic()
            if left <= 0:
                return False
            connected.settimeout(left)
            more = connected.recv(64)
            if not more:
                return None
            received += more
    except socket.timeout:
        return False
    except OSError:
        return None
    return received[4 : 4 + len(expected)] == expected or None


def signs_of(
    servers: Mapping[str, tuple[int, Optional[int]]], reader: HostReader
) -> dict[str, ServerSigns]:
    """Return the signs of each server, by its address; all are asked at the same time.
    ``servers`` has their ports: of TCP, and of RDMA, None if that listener tells
    nothing, as for a TCP mount, or a server that answers.

    Reads the facts of this host once. Raises nothing for what a host or a server has.
    """
    if not servers:
        return {}
    routes = {address: reader.route(address) for address in servers}
    facts = read_local(reader, _FIRST_GIDS)
    devices = facts.rdma_devices
    if devices and not all(
        ports_behind(devices, facts.netdevs, route)
        for route in routes.values()
        if route
    ):
        facts = replace(facts, rdma_devices=reader.rdma_devices())
    with ThreadPoolExecutor(min(_AT_ONCE, len(servers))) as threads:
        found = {
            address: threads.submit(_signs, address, *ports, facts, routes[address])
            for address, ports in servers.items()
        }
        return {address: one.result() for address, one in found.items()}


def _signs(
    address: str,
    tcp_port: int,
    rdma_port: Optional[int],
    facts: Facts,
    route: Optional[Route],
) -> ServerSigns:
    steps = local_steps(facts, route)
    netdev = route.netdev if route else None
    ports = ports_behind(facts.rdma_devices, facts.netdevs, route)
    down = [
        (device, port)
        for device in facts.rdma_devices
        for port in device.ports
        if not port.is_active
    ]
    state = next((n.operstate for n in facts.netdevs if n.name == netdev), "")
    listener = None
    with ThreadPoolExecutor(1) as other:
        knocking = other.submit(knock, address, tcp_port, KNOCK_S)
        wait([knocking], ALONE_S)
        # Without a route or a port there is nobody to ask.
        if rdma_port and all(step.verdict != NOT_READY for step in steps):
            ask = Network().rdma_listener
            listener = ask(address, rdma_port, LISTENER_S)
        tcp = knocking.result()
    return ServerSigns(
        steps,
        tcp,
        listener,
        netdev,
        _CARRIER.get(state),
        tuple((device.name, port.number) for device, port in ports),
        any(port.is_infiniband for _, port in ports),
        tuple(f"{device.name}/{port.number} is {port.state}" for device, port in down),
        any(port.is_infiniband and port.state in _NO_SM for _, port in down),
    )
