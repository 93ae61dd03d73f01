# SPDX-License-Identifier: GPL-2.0-or-later
"""Move connections to another address, and prove whose address it is.

The write to ``dstaddr`` waits for the lock of the connection (XPRT_LOCKED), which is
free while it is connected. While the kernel tries to connect it holds the lock, and
hands it from one request to the next: a write that waits may wait without end, as only
some of the places that free the lock wake it (net/sunrpc/xprt.c, xprt_clear_locked). So
each write is a process that is killed and started again, often, to find the lock
free; and the *lever* makes the attempts fail at once, after which the kernel
leaves the lock for 3 s (net/sunrpc/clnt.c, call_connect_status): a route
``unreachable`` to the old address, and false neighbours. One, of an address that nobody
has, lets an address resolution that is under way look at the route now and not after
5 s (drivers/infiniband/core/addr.c, netevent_callback); for RoCE, one of the old
address ends an RDMA connect that is beyond it (cma.c, cma_netevent_callback), and none
connects to that one: a resolution looks at the route first (addr.c, addr_resolve). All
is removed again in any case, and after a kill by :func:`undo_levers`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, NoReturn, Optional, Union

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.statistics import SWITCHES
from ovirt_rdma.host.export import RDMA, TCP, Export
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.facts.statistics import option_value
from ovirt_rdma.host.paths import PATHS_LEVER, is_vdsms, under
from ovirt_rdma.host.system.commands import CommandFailed, Runner, run_command
from ovirt_rdma.host.system.files import write_public
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.signals import default_signals
from ovirt_rdma.host.system.tree import VDSM_GID, VDSM_UID
from ovirt_rdma.storage.health.signs import Child, reaped
from ovirt_rdma.storage.paths.server import FOREIGN, Key, Link
from ovirt_rdma.storage.transport import NFS_TCP_PORT

# The versions of NFS with which the kernel gives a client more connections.
_TRUNKING = ("4.1", "4.2")
# A write to a connection that is connected takes no time, unless a request that is
# being sent has the lock in that moment: then it is not woken either.
QUICK_S = 0.4
# Longer each time: on a busy host a process may not get to its write at once.
_TRY_S, _LONGEST_TRY_S = 0.1, 0.5
# All attempts of a connection have failed once within this time (5 s of address
# resolution, RDMA_RESOLVE_TIMEOUT), and its requests have 40 s.
LEVER_S = 8.0
_AGAIN_S = 1.0
# Marks of the lever: a routing protocol that nobody has (rt_protos of iproute2), and
# MAC addresses that no adapter has (locally administered).
_PROTOCOL = "186"
_FALSE_MAC = "02:00:00:00:00:0{}"
# An address of documentation (RFC 5737), to which nobody has a neighbour.
_NOBODY = "192.0.2.186"
# InfiniBand's hardware addresses are longer (20 bytes, include/linux/if_infiniband.h).
_LONGER = ":00" * 14
_DSTADDR = "dstaddr"
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG = 1


class _Write:
    """A process that writes an address to the ``dstaddr`` of a connection that has the
    address ``source``; ``folder``: the connection's.
    """

    def __init__(self, folder: Path, source: str, address: str) -> None:
        self._address, self._gone, self._folder = address, 0, -1
        try:
            # The numbers in names are given again. A folder that is open is the same
            # connection's for ever: nothing is in it once that is gone.
            self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            now = _read_at(self._folder)
            self._gone = 0 if now in (source, "") else errno.ESTALE
        except OSError as error:
            self._gone = error.errno or errno.ENOENT
        self.begin()

    def begin(self) -> None:
        if not self._gone:
            parent = os.getpid()
            self._pid = os.fork()
            if self._pid == 0:
                _write_and_end(self._folder, self._address, parent)

    def ended(self) -> Optional[int]:
        """Return the errno, 0 if it was written; None while it waits."""
        if self._gone:
            return self._gone
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return None
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 4  # EINTR

    def kill(self) -> Optional[int]:
        """End it; return its errno if it had ended, and None if it was killed."""
        if self._gone:
            return self._gone
        os.kill(self._pid, signal.SIGKILL)
        for _ in range(100):
            ended = self.ended()
            if ended is not None:
                return None if ended == 4 else ended
            time.sleep(0.001)
        return None  # It waits in the kernel, and ends by itself.

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)


def _read_at(folder: int) -> str:
    descriptor = os.open(_DSTADDR, _READ, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        return (file.read() or b"").decode("ascii", "replace").strip("\0\n")


def _write_and_end(folder: int, address: str, parent: int) -> NoReturn:
    code = 255
    try:
        # It may wait for minutes: nobody would know of the address that it writes then.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(code)
        default_signals()
        os.setsid()
        descriptor = os.open(_DSTADDR, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
        os.write(descriptor, address.encode("ascii"))
        code = 0
    except OSError as error:
        code = error.errno or 255
    finally:
        os._exit(code)


class Lever:
    """Makes connecting to ``address`` fail while it is pulled."""

    def __init__(self, root: str, address: str, link: Link, run: Runner) -> None:
        self._root, self._address, self._link, self._run = root, address, link, run
        self._turn = 0

    @contextlib.contextmanager
    def pulled(self) -> Iterator[Lever]:
        """Pull it for a block of ``with``; what fails in between undoes it too."""
        marker = under(self._root, PATHS_LEVER)
        before = read_file(marker).decode() if marker.exists() else ""
        write_public(marker, f"{before}{self._address} {self._link.netdev}\n")
        # Levers share a neighbour, which has to change once the last route is there.
        self._turn = len(before.splitlines())
        try:
            with contextlib.suppress(CommandFailed):
                self._run(["ip", "route", "add", *_route(self._address)])
            self.again()
            yield self
        finally:
            undo_levers(self._root, self._run)

    def again(self) -> None:
        """End the attempts that are under way now."""
        self._turn = self._turn % 9 + 1
        with contextlib.suppress(CommandFailed):
            self._be_false(_NOBODY)
        if not self._link.is_ethernet:
            return
        with contextlib.suppress(CommandFailed):
            shown = self._run(_neighbour("show", self._address, self._link.netdev))
            # An operator's own stays.
            if "PERMANENT" not in shown or _FALSE_MAC[:-2] in shown:
                self._be_false(self._address)

    def _be_false(self, address: str) -> None:
        # Another one each time: only what changes is an event.
        mac = _FALSE_MAC.format(self._turn)
        mac += "" if self._link.is_ethernet else _LONGER
        place = _neighbour("replace", address, self._link.netdev)
        self._run([*place, "lladdr", mac, "nud", "permanent"])


def _neighbour(verb: str, address: str, netdev: str) -> list[str]:
    return ["ip", "-4", "neigh", verb, address, "dev", netdev]


def _route(address: str) -> list[str]:
    # The table that is asked first, before rules and routes of the operator.
    return ["unreachable", f"{address}/32", "table", "local", "proto", _PROTOCOL]


def undo_levers(root: Union[str, Path], run: Runner = run_command) -> list[str]:
    """Undo what levers have left on the host below ``root``; return sentences
    about what could not be.
    """
    marker = under(root, PATHS_LEVER)
    if not marker.exists():
        return []
    left = []
    for line in dict.fromkeys(read_file(marker).decode().splitlines()):
        address, _, netdev = line.partition(" ")
        with contextlib.suppress(CommandFailed):
            run(["ip", "route", "del", *_route(address)])
        routes = ""
        try:
            routes = run(["ip", "route", "show", "type", *_route(address)])
        except CommandFailed as error:
            left.append(f"a route to {address} may be left: {error}")
        if routes.strip():
            command = " ".join(["ip", "route", "del", *_route(address)])
            left.append(f"{address} is still unreachable; fix: {command}")
        for neighbour in (address, _NOBODY):
            left += _undo_neighbour(neighbour, netdev, run)
    if not left:
        marker.unlink()
    return left


def _undo_neighbour(address: str, netdev: str, run: Runner) -> list[str]:
    shown, delete = "", _neighbour("del", address, netdev)
    try:
        shown = run(_neighbour("show", address, netdev))
        if _FALSE_MAC[:-2] in shown:
            run(delete)
            shown = ""
    except CommandFailed as error:
        # A netdev that is gone has no neighbours.
        if error.returncode is None and not shown:
            return [f"a false neighbour of {address} may be left: {error}"]
    if _FALSE_MAC[:-2] in shown:
        return [f"{address} has a false neighbour; fix: {' '.join(delete)}"]
    return []


class Target(NamedTuple):
    """Where a connection will go, the lever that frees it, None if none may, the
    address that it has, and whether the kernel has its lock for an attempt to connect.
    """

    address: str
    lever: Optional[Lever]
    source: str
    is_locked: bool = False


def move(
    root: Union[str, Path],
    wanted: Mapping[Key, Target],
    clock: Callable[[], float] = time.monotonic,
) -> dict[Key, str]:
    """Move connections of the host below ``root``; return for each one "", or why it
    was not moved. Takes QUICK_S and LEVER_S at most.
    """
    writes = {
        key: _Write(under(root, f"{SWITCHES}/{'/'.join(key)}"), to.source, to.address)
        for key, to in wanted.items()
    }
    late = "the kernel does not take another address while it tries to connect"
    done: dict[Key, str] = {}
    try:
        begun, patience = clock(), _TRY_S
        _gather(writes, done, patience, clock)
        locked = all(wanted[key].is_locked for key in writes if key not in done)
        while len(done) < len(writes) and clock() - begun < QUICK_S and not locked:
            _restart(writes, done)
            patience = min(_LONGEST_TRY_S, patience * 1.5)
            _gather(writes, done, patience, clock)
        for key in wanted:
            if wanted[key].lever is None and _is_cut_off(key, writes, done):
                done[key] = late
        if len(done) < len(writes):
            with contextlib.ExitStack() as stack:
                pulled = [
                    stack.enter_context(one.pulled())
                    for one in {wanted[k].lever for k in wanted if k not in done}
                    if one
                ]
                begun = again = clock()
                while len(done) < len(writes) and clock() - begun < LEVER_S:
                    if clock() - again >= _AGAIN_S:
                        again = clock()
                        for one in pulled:
                            one.again()
                    _restart(writes, done)
                    patience = min(_LONGEST_TRY_S, patience * 1.5)
                    _gather(writes, done, patience, clock)
    finally:
        for key, write in writes.items():
            _is_cut_off(key, writes, done)
            write.close()
    return {key: done.get(key, late) for key in wanted}


def _restart(writes: Mapping[Key, _Write], done: dict[Key, str]) -> None:
    for key, write in writes.items():
        if _is_cut_off(key, writes, done):
            write.begin()


def _is_cut_off(key: Key, writes: Mapping[Key, _Write], done: dict[Key, str]) -> bool:
    """End a write that has not ended; return whether it was one, and note the result of
    one that has.
    """
    if key in done:
        return False
    ended = writes[key].kill()
    if ended is not None:
        done[key] = os.strerror(ended) if ended else ""
    return ended is None


def _gather(
    writes: Mapping[Key, _Write],
    done: dict[Key, str],
    seconds: float,
    clock: Callable[[], float],
) -> None:
    deadline = clock() + seconds
    while len(done) < len(writes) and clock() < deadline:
        for key, write in writes.items():
            ended = write.ended() if key not in done else None
            if ended is not None:
                done[key] = os.strerror(ended) if ended else ""
        time.sleep(0.005)


# include/uapi/linux/sched.h, sys/mount.h
_CLONE_NEWNS, _MS_REC, _MS_SLAVE, _AT_FDCWD = 0x00020000, 0x4000, 1 << 19, -100
_HANDLE_BYTES = 128
_MOST_NAMES = 16
PROOF_S, PROOF_PLACE = 20.0, Path("/run/ovirt-rdma/proof")


def prove_address(paths: Container[str], mount: NfsMount, address: str) -> str:
    """Mount the export of ``mount`` by an ``address`` of ``paths``, its server's, and
    unmount it; return "", or why the address is not proven to be the same server's.

    The file handles must be the same for a client of its own (:func:`_asked`). With
    NFS 4.1 and later, another address is then mounted as the mount itself: the
    kernel finds out whether it is the server that it has a client of, gives that a
    connection to the address, and shows that client's address (fs/nfs/nfs4client.c,
    nfs41_walk_client_list and nfs4_add_trunk).

    For a process of its own, with mounts that the host does not see
    (:func:`_own_mounts`). Raises OSError.
    """
    export, version = Export.maybe(mount.source), mount.version or ""
    if export is None:
        return f"{mount.source} is no export"
    libc = ctypes.CDLL(None, use_errno=True)
    place = PROOF_PLACE
    _own_mounts(libc)
    place.mkdir(0o700, parents=True, exist_ok=True)
    what = [f"{address}:{export.path}", str(place)]
    why = "each version of NFS that could ask is in use"
    for options in _asked(mount, HostReader("/").nfs_mounts(), paths):
        why = _mount(options, what)
        if not why:
            same = _is_same(libc, Path(mount.mountpoint), place)
            _checked(libc.umount2(what[1].encode(), 0))
            break
    if not why and same and version in _TRUNKING and address != mount.address:
        why = _mount(_options(mount, version, RDMA), what)
        # ``mount`` was seen seconds ago; what is shown follows each move.
        shown = {one.mountpoint: one.address for one in HostReader("/").nfs_mounts()}
        same = what[1] in shown and shown[what[1]] == shown.get(mount.mountpoint)
        if not why:
            _checked(libc.umount2(what[1].encode(), 0))
    if why:
        return f"{what[0]} cannot be mounted: {why}"
    return "" if same else f"{address} {FOREIGN} {mount.source}'s server"


def _own_mounts(libc: ctypes.CDLL) -> None:
    """What is mounted from now on is this process's only: other tasks of the daemon
    would take it for a mount of the host, and a kill would leave it there. What the
    host unmounts is unmounted here, or its device would be in use for as long. Raises
    OSError.
    """
    _checked(libc.unshare(_CLONE_NEWNS))
    _checked(libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None))


def _asked(
    mount: NfsMount, mounts: Iterable[NfsMount], paths: Container[str]
) -> list[str]:
    """Return the options of mounts, to be tried in this order, for which the kernel
    asks the address. It does not if a client of the same version and protocol has the
    address, or had it when it was mounted (fs/nfs/client.c, nfs_match_client), and then
    answers for the server that its connections were moved to. None has that by another
    address than ``paths``, unless it may have connections to several. With NFS 3, the
    file handle comes from the server's mountd in any case. Pure.
    """
    if mount.version == "3":
        return [_options(mount, "3", RDMA)]
    used = {
        (one.version, one.protocol)
        for one in (mount, *mounts)
        if one.address in paths or option_value(one.options, "max_connect")
    }
    able = [(version, RDMA) for version in (*reversed(_TRUNKING), "4.0")]
    # For a server that has one version only.
    able.append((mount.version or "", TCP))
    return [_options(mount, *one) for one in able if one not in used]


def _options(mount: NfsMount, version: str, transport: str) -> str:
    port = (mount.port if transport == RDMA else None) or NFS_TCP_PORT
    return ",".join(
        [
            "ro,soft,nosharecache,timeo=50,retrans=1,retry=0",
            f"vers={version},proto={transport},port={port}",
            f"sec={option_value(mount.options, 'sec') or 'sys'}",
            *(["nolock"] if version == "3" else []),
        ]
    )


def _mount(options: str, what: Sequence[str]) -> str:
    """Mount; return "", or why that is not possible."""
    try:
        run_command(["mount", "-t", "nfs", "-o", options, *what], PROOF_S)
    except CommandFailed as error:
        return str(error)
    return ""


def _is_same(libc: ctypes.CDLL, here: Path, there: Path) -> bool:
    """Whether two folders are one of a server. What is in it counts too: the file
    handle of an export's root has nothing but its ``fsid=``, which servers may have in
    common (fs/nfsd/nfsfh.c, _fh_update). Raises OSError if they cannot be compared.
    """
    with _as_vdsm(here):
        if _handle(libc, str(here)) != _handle(libc, str(there)):
            return False
        names = sorted(here.iterdir())[:_MOST_NAMES]
        for name in names:
            with contextlib.suppress(OSError):
                if _handle(libc, str(name)) == _handle(libc, str(there / name.name)):
                    return True
        return not names


@contextlib.contextmanager
def _as_vdsm(here: Path) -> Iterator[None]:
    """Be VDSM's user for a block of ``with`` that is about a mount of VDSM's: a server
    may map root to nobody (root_squash).
    """
    if not is_vdsms(str(here)) or os.geteuid() != 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(VDSM_GID)
    os.seteuid(VDSM_UID)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _handle(libc: ctypes.CDLL, path: str) -> bytes:
    """Return the file handle of a folder (name_to_handle_at(2)), with NFS that of the
    server (fs/nfs/export.c). Raises OSError.
    """
    record = (ctypes.c_uint * (2 + _HANDLE_BYTES // 4))(_HANDLE_BYTES)
    mount_id = ctypes.c_int()
    _checked(
        libc.name_to_handle_at(
            _AT_FDCWD, path.encode(), record, ctypes.byref(mount_id), 0
        )
    )
    return bytes(record)[: 8 + record[0]]


class Proof(Child):
    """A proof for all of ``mounts`` that runs in a process; ``address`` is what it is
    about.
    """

    def __init__(
        self,
        mounts: Sequence[NfsMount],
        address: str,
        work: Callable[[NfsMount, str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        said = (work(mount, address) for mount in mounts)
        super().__init__(lambda: [{"said": next(filter(None, said), "")}])
        self.address, self._clock = address, clock
        self._deadline = clock() + PROOF_S + 5

    def ended(self) -> Optional[str]:
        """Return its result, as :func:`prove_address`; None while it runs."""
        if self._clock() >= self._deadline:
            self.end()
        elif not reaped(self.pid):
            return None
        with contextlib.suppress(BlockingIOError):
            while not self.closed:
                self.read()
        os.close(self.pipe)
        found: dict[str, str] = self.fields
        if "problem" in found:
            return f"the proof failed: {found['problem']}"
        return found.get("said", f"the proof did not end within {PROOF_S:.0f} s")

    def end(self) -> None:
        """End it."""
        # It may not have its own session yet.
        for kill in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)
        # One that waits in the kernel ends by itself.
        for _ in range(100):
            if reaped(self.pid):
                break
            time.sleep(0.001)
