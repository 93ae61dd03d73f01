# SPDX-License-Identifier: GPL-2.0-or-later
"""Write an address to a connection, free its lock, and undo the lever."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Union
from unittest.mock import Mock

import pytest

from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.paths import PATHS_LEVER, VDSM_MOUNTS
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    Runner,
    run_command,
)
from ovirt_rdma.storage.paths import moving
from ovirt_rdma.storage.paths.moving import Lever, Proof, Target, move, undo_levers
from ovirt_rdma.storage.paths.server import Link

A1, A2 = "10.99.0.1", "10.98.0.1"
NOBODY, FALSE = "192.0.2.186", "02:00:00:00:00:01"
KEY = ("switch-0", "xprt-1-rdma")
WITH_LINK = Link("eth0", "rxe0/1")
NOT_PERMITTED = CommandFailed("RTNETLINK answers: Operation not permitted", 2)


class Kernel:
    """Routes and neighbours, as ``ip`` (iproute2 6.1) shows and changes them; from
    the call number ``dies_at`` on none comes back, as after a kill. A call with the
    words of ``errors`` fails.
    """

    def __init__(self, neighbour: str = "REACHABLE") -> None:
        self.routes: set[str] = set()
        self.neighbours = {A1: f"lladdr 52:54:00:99:00:01 {neighbour}"}
        self.calls: list[list[str]] = []
        self.dies_at = 0
        self.errors: dict[str, Exception] = {}

    def run(self, argv: Sequence[str]) -> str:
        self.calls.append(list(argv))
        if 0 < self.dies_at <= len(self.calls):
            raise KeyboardInterrupt
        for part, error in self.errors.items():
            if part in " ".join(argv):
                raise error
        words = [word for word in argv[1:] if word != "-4"]
        what = words[:2]
        if what[0] == "neigh":
            assert words[3:5] == ["dev", "eth0"], argv
        if what == ["neigh", "show"]:
            return f"{words[2]} {self.neighbours.get(words[2], '')}"
        text = " ".join(words[2:])
        if what == ["route", "add"]:
            if text in self.routes:
                raise CommandFailed("RTNETLINK answers: File exists", 2)
            self.routes.add(text)
        elif what == ["route", "del"]:
            if text not in self.routes:
                raise CommandFailed("RTNETLINK answers: No such process", 2)
            self.routes.remove(text)
        elif what == ["route", "show"]:
            assert words[2] == "type"
            text = " ".join(words[3:])
            return "".join(one for one in self.routes if one == text)
        elif what == ["neigh", "replace"]:
            lladdr, mac, *rest = words[5:]
            assert [lladdr, *rest] == ["lladdr", "nud", "permanent"]
            self.neighbours[words[2]] = f"lladdr {mac} PERMANENT"
        else:
            assert what == ["neigh", "del"] and len(words) == 5, argv
            del self.neighbours[words[2]]
        return ""

    def is_clean(self) -> bool:
        return not self.routes and "02:00" not in str(self.neighbours)


@pytest.fixture
def dstaddr(tmp_path: Path) -> Path:
    (tmp_path / "run/ovirt-rdma").mkdir(parents=True)
    folder = tmp_path / "sys/kernel/sunrpc/xprt-switches" / "/".join(KEY)
    folder.mkdir(parents=True)
    return folder / "dstaddr"


@pytest.fixture
def root(tmp_path: Path, dstaddr: Path) -> Path:
    return tmp_path


def test_a_connection_takes_the_address_at_once(root: Path, dstaddr: Path):
    dstaddr.write_text("")
    kernel = Kernel()
    lever = Lever(str(root), A1, WITH_LINK, kernel.run)
    assert move(root, {KEY: Target(A2, lever, A1)}) == {KEY: ""}
    assert dstaddr.read_text() == A2
    assert kernel.calls == []


def test_one_that_is_gone_says_so(root: Path):
    assert move(root, {KEY: Target(A2, None, A1)}) == {KEY: "No such file or directory"}


def _free(kernel: Kernel, dstaddr: Path, when: Callable[[], bool]) -> threading.Thread:
    """Take what is written once ``when`` is true: until then the write waits, as the
    kernel lets it (a FIFO without reader).
    """

    def free() -> None:
        while not when():
            time.sleep(0.01)
        text = ""
        while not text:  # from a write that was killed before it wrote
            with dstaddr.open() as file:
                text = file.read()
        got.append(text)

    got: list[str] = []
    thread = threading.Thread(target=free, daemon=True)
    thread.start()
    thread.got = got  # type: ignore[attr-defined]
    return thread


@pytest.mark.parametrize(
    ("link", "neighbour", "false"),
    [
        (WITH_LINK, "REACHABLE", True),
        (WITH_LINK, "INCOMPLETE", True),
        # It lost its link a moment after the attempt was beyond its resolution.
        (WITH_LINK._replace(problem="eth0 has no link"), "FAILED", True),
        (WITH_LINK._replace(is_ethernet=False), "REACHABLE", False),
    ],
)
def test_one_that_connects_is_freed_by_the_lever(
    root: Path, dstaddr: Path, link: Link, neighbour: str, false: bool
):
    os.mkfifo(dstaddr)
    kernel = Kernel(neighbour)
    seen: list[bool] = []

    def unreachable() -> bool:
        # An attempt in its resolution looks at the route again.
        mac = FALSE if link.is_ethernet else f"{FALSE}{':00' * 14}"
        is_pulled = kernel.routes and mac in kernel.neighbours.get(NOBODY, "").split()
        if is_pulled and (not false or "02:00" in kernel.neighbours[A1]):
            seen.append("02:00" in kernel.neighbours[A1])
        return bool(seen)

    thread = _free(kernel, dstaddr, unreachable)
    lever = Lever(str(root), A1, link, kernel.run)
    assert move(root, {KEY: Target(A2, lever, A1)}) == {KEY: ""}
    thread.join(5)
    assert thread.got == [A2]  # type: ignore[attr-defined]
    assert seen == [false]
    assert kernel.is_clean()
    assert not (root / PATHS_LEVER[1:]).exists()


def test_one_that_stays_locked_is_given_up_and_nothing_is_left(
    root: Path, dstaddr: Path, monkeypatch: pytest.MonkeyPatch
):
    os.mkfifo(dstaddr)
    monkeypatch.setattr(moving, "LEVER_S", 2.5)
    kernel = Kernel()
    lever = Lever(str(root), A1, WITH_LINK, kernel.run)
    (why,) = move(root, {KEY: Target(A2, lever, A1)}).values()
    assert why.startswith("the kernel does not take another address")
    assert kernel.is_clean()
    # Each false neighbour is an event for the attempts under way: another each time.
    for address in (A1, NOBODY):
        macs = [call[8] for call in kernel.calls if call[3:5] == ["replace", address]]
        assert len(macs) >= 2
        assert len(macs) == len(set(macs))
    # Nobody writes any more.
    assert _readers_get_nothing(dstaddr)


def _readers_get_nothing(fifo: Path) -> bool:
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    time.sleep(0.2)
    with os.fdopen(descriptor, "rb") as file:
        return not file.read()


def test_without_a_lever_nothing_else_is_touched(root: Path, dstaddr: Path):
    os.mkfifo(dstaddr)
    (why,) = move(root, {KEY: Target(A2, None, A1)}).values()
    assert why


def test_one_without_a_lever_does_not_take_it_from_another(root: Path, dstaddr: Path):
    """Two servers have lost the same cable; a lever serves all at its address."""
    for place in (dstaddr, dstaddr.parent.parent / "xprt-2-rdma/dstaddr"):
        place.parent.mkdir(exist_ok=True)
        os.mkfifo(place)
    other = "switch-0", "xprt-2-rdma"
    none = "switch-0", "xprt-3-rdma"
    (dstaddr.parent.parent / none[1]).mkdir()
    os.mkfifo(dstaddr.parent.parent / none[1] / "dstaddr")
    kernel = Kernel()
    threads = [
        _free(kernel, dstaddr.parent.parent / key[1] / "dstaddr",
              lambda: bool(kernel.routes))
        for key in (KEY, other)
    ]  # fmt: skip
    lever = Lever(str(root), A1, WITH_LINK, kernel.run)
    wanted = {
        KEY: Target(A2, lever, A1),
        none: Target(A1, None, A2),
        other: Target(A2, lever, A1),
    }
    results = move(root, wanted)
    for thread in threads:
        thread.join(5)
    assert [bool(results[key]) for key in (KEY, none, other)] == [False, True, False]
    assert sum(call[1:3] == ["route", "add"] for call in kernel.calls) == 1


def test_each_lever_is_an_event_of_its_own(root: Path):
    """Two servers have lost the same cable: what connects to the second one also looks
    at the route again once that is there.
    """
    kernel = Kernel()
    first = Lever(str(root), A1, WITH_LINK, kernel.run)
    second = Lever(str(root), "10.99.0.3", WITH_LINK, kernel.run)
    with first.pulled():
        before = kernel.neighbours[NOBODY]
        with second.pulled():
            assert kernel.neighbours[NOBODY] != before
            before = kernel.neighbours[NOBODY]
            for lever in (first, second):
                lever.again()
            assert kernel.neighbours[NOBODY] != before
    assert kernel.is_clean()


@pytest.mark.parametrize("call", range(1, 17))
def test_after_a_kill_at_each_call_all_is_undone(root: Path, dstaddr: Path, call: int):
    os.mkfifo(dstaddr)
    kernel = Kernel()
    kernel.dies_at = call
    lever = Lever(str(root), A1, WITH_LINK, kernel.run)
    try:
        with lever.pulled():
            lever.again()
    except KeyboardInterrupt:
        pass
    kernel.dies_at = 0
    assert undo_levers(root, kernel.run) == []
    assert kernel.is_clean()
    assert not (root / PATHS_LEVER[1:]).exists()
    asked = len(kernel.calls)
    assert undo_levers(root, kernel.run) == []
    assert len(kernel.calls) == asked


@pytest.fixture
def real_ip() -> Iterator[Runner]:
    """The ip of this machine in a network of its own, with a link to 10.99.0.0/24."""
    holder = subprocess.Popen(["unshare", "-n", "sleep", "60"])

    def run(argv: Sequence[str]) -> str:
        inside = ["nsenter", "-t", str(holder.pid), "-n", *argv]
        return run_command(inside)

    try:
        for _ in range(100):
            time.sleep(0.05)
            if _network("self") != _network(holder.pid):
                break
        else:
            pytest.skip("no network namespace can be made here")
        for line in (
            "ip link add eth0 type veth peer name eth1",
            "ip address add 10.99.0.2/24 dev eth0",
            "ip link set eth1 up",
            "ip link set eth0 up",
            f"ip neigh replace {A1} lladdr 52:54:00:99:00:01 dev eth0 nud reachable",
        ):
            run(line.split())
        yield run
    finally:
        holder.kill()
        holder.wait()


def _network(process: Union[int, str]) -> Path:
    return Path(f"/proc/{process}/ns/net").readlink()


@pytest.mark.parametrize("more", ["", f"ip route add {A1}/32 dev eth0"])
def test_with_the_real_ip(root: Path, real_ip: Runner, more: str):
    """Also where the operator has a route to the address: it is not reached either."""
    if more:
        real_ip(more.split())
    before = real_ip(["ip", "route"])
    with Lever(str(root), A1, WITH_LINK, real_ip).pulled():
        with pytest.raises(CommandFailed, match="No route to host"):
            real_ip(["ip", "route", "get", A1])
        neighbours = real_ip(["ip", "neigh"])
        assert f"{A1} dev eth0 lladdr 02:00:00:00:00:01" in neighbours
        assert f"{NOBODY} dev eth0 lladdr 02:00:00:00:00:01" in neighbours
    assert "dev eth0" in real_ip(["ip", "route", "get", A1])
    assert "02:00" not in real_ip(["ip", "neigh"])
    assert real_ip(["ip", "route"]) == before
    # What is left is seen.
    (root / PATHS_LEVER[1:]).write_text(f"{A1} eth0\n")
    real_ip(f"ip route add unreachable {A1}/32 table local proto 186".split())
    for address in (A1, NOBODY):
        line = f"ip neigh replace {address} lladdr 02:00:00:00:00:03 dev eth0"
        real_ip(line.split())

    def stubborn(argv: Sequence[str]) -> str:
        if "del" in argv:
            raise NOT_PERMITTED
        return real_ip(argv)

    assert len(undo_levers(root, stubborn)) == 3
    assert undo_levers(root, real_ip) == []
    assert "02:00" not in real_ip(["ip", "neigh"])


@pytest.mark.parametrize("is_ethernet", [True, False])
def test_a_route_and_a_neighbour_of_others_stay(root: Path, is_ethernet: bool):
    kernel = Kernel("PERMANENT")
    kernel.routes.add(f"unreachable {A1}/32")
    with_it = WITH_LINK._replace(is_ethernet=is_ethernet)
    with Lever(str(root), A1, with_it, kernel.run).pulled() as lever:
        lever.again()
    assert kernel.routes == {f"unreachable {A1}/32"}
    assert "52:54" in kernel.neighbours[A1]


def test_what_cannot_be_undone_is_said_and_tried_again(root: Path):
    kernel = Kernel()
    kernel.errors = {"route del": NOT_PERMITTED}
    with Lever(str(root), A1, WITH_LINK, kernel.run).pulled():
        pass
    (left,) = undo_levers(root, kernel.run)
    assert left == (
        f"{A1} is still unreachable; fix: ip route del unreachable {A1}/32 table "
        "local proto 186"
    )
    kernel.errors = {}
    assert undo_levers(root, kernel.run) == []
    assert kernel.is_clean()


MOUNT = NfsMount("nas:/vm", "/mnt", "rw", "4.2", "rdma", 20049, A1)


def _ended(proof: Proof) -> str:
    for _ in range(500):
        said = proof.ended()
        if said is not None:
            return said
        time.sleep(0.01)
    raise AssertionError("the proof does not end")


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda mount, address: "", ""),
        (lambda mount, address: f"{address} is not", f"{A2} is not"),
        (lambda mount, address: Path("/nowhere").stat(), "the proof failed: FileNo"),
        (lambda mount, address: os._exit(9), "the proof did not end within 20 s"),
        (lambda mount, address: 1 / 0, "the proof failed: ZeroDivisionError: div"),
    ],
)
def test_a_proof_is_good_only_if_it_says_so(work, said):
    assert _ended(Proof([MOUNT], A2, work)).startswith(said)
    assert bool(_ended(Proof([MOUNT], A2, work))) == bool(said)


def test_a_proof_is_good_only_if_it_is_for_each_server():
    other = replace(MOUNT, source="nas2:/b")

    def work(mount: NfsMount, address: str) -> str:
        return f"{address} is not" if mount is other else ""

    assert _ended(Proof([MOUNT, other], A2, work)) == f"{A2} is not"


def test_a_proof_that_hangs_is_ended():
    now = [0.0]
    proof = Proof([MOUNT], A2, lambda *_: time.sleep(60) or "", lambda: now[0])
    assert proof.ended() is None
    now[0] = 100.0
    assert proof.ended() == "the proof did not end within 20 s"


@pytest.mark.parametrize(
    ("version", "others", "asked"),
    [
        ("4.2", [], ["4.1,proto=rdma", "4.0,proto=rdma", "4.2,proto=tcp"]),
        ("4.1", [], ["4.2,proto=rdma", "4.0,proto=rdma", "4.1,proto=tcp"]),
        # Their client would answer, by a connection that may have been moved away.
        ("4.2", [("4.1", "rdma")], ["4.0,proto=rdma", "4.2,proto=tcp"]),
        ("4.2", [("4.2", "tcp")], ["4.1,proto=rdma", "4.0,proto=rdma"]),
        ("4.0", [], ["4.2,proto=rdma", "4.1,proto=rdma", "4.0,proto=tcp"]),
        ("3", [("4.1", "rdma")], ["3,proto=rdma"]),
        # Another server's, unless it may have got a connection to the address.
        ("4.2", [("4.1", "rdma", "192.0.2.7")],
         ["4.1,proto=rdma", "4.0,proto=rdma", "4.2,proto=tcp"]),
        ("4.2", [("4.1", "rdma", "192.0.2.7", "rw,max_connect=2")],
         ["4.0,proto=rdma", "4.2,proto=tcp"]),
    ],
)  # fmt: skip
def test_an_address_is_asked_by_a_client_of_its_own(version, others, asked):
    mount = replace(MOUNT, version=version)
    names = "version", "protocol", "address", "options"
    mounts = [replace(MOUNT, **dict(zip(names, other))) for other in others]
    options = moving._asked(mount, [mount, *mounts], (A1, A2))
    assert [one.partition("vers=")[2].partition(",port")[0] for one in options] == asked


@pytest.fixture
def proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The mounts that a proof makes."""
    made: list[str] = []

    class Umount:
        umount2 = staticmethod(lambda *_: 0)

    def run(argv: Sequence[str], _: float) -> str:
        made.append(argv[4])
        if "vers=4.1" in argv[4]:
            raise CommandFailed("mount.nfs: Protocol not supported", 32)
        return ""

    monkeypatch.setattr(moving, "_own_mounts", lambda libc: None)
    monkeypatch.setattr(moving, "run_command", run)
    monkeypatch.setattr(moving.ctypes, "CDLL", lambda *_, **__: Umount)
    monkeypatch.setattr(moving, "_handle", lambda libc, path: b"the same")
    monkeypatch.setattr(moving, "PROOF_PLACE", tmp_path / "proof")
    monkeypatch.setattr(moving.HostReader, "nfs_mounts", lambda self: [MOUNT])
    return made


def test_without_mounts_of_its_own_a_proof_makes_none(
    monkeypatch: pytest.MonkeyPatch,
):
    """In the daemon's table, one that stays would be a mount of others for ever."""

    class Libc:
        unshare = staticmethod(lambda flags: -1)
        mount = staticmethod(lambda *_: 0)

    monkeypatch.setattr(moving.ctypes, "CDLL", lambda *_, **__: Libc)
    monkeypatch.setattr(moving.ctypes, "get_errno", lambda: errno.EPERM)
    monkeypatch.setattr(moving, "run_command", lambda *_: pytest.fail("it mounts"))
    with pytest.raises(PermissionError):
        moving.prove_address((A1, A2), MOUNT, A2)


def test_a_server_without_the_other_version_is_asked_with_another(proof: list[str]):
    assert moving.prove_address((A1, A2), MOUNT, A1) == ""
    assert [one.partition("vers=")[2][:3] for one in proof] == ["4.1", "4.0"]


def test_the_kernel_that_finds_another_server_is_believed(proof: list[str]):
    said = moving.prove_address((A1, A2), MOUNT, A2)
    assert said == f"{A2} is not an address of nas:/vm's server"
    assert [one.partition("vers=")[2][:3] for one in proof] == ["4.1", "4.0", "4.2"]


def test_another_file_handle_is_not_given_a_connection(
    proof: list[str], monkeypatch: pytest.MonkeyPatch
):
    """The mount that gives one is not made."""
    monkeypatch.setattr(moving, "_handle", lambda libc, path: path.encode())
    assert "is not an address of" in moving.prove_address((A1, A2), MOUNT, A2)
    assert len(proof) == 2


@pytest.mark.parametrize(
    ("there", "same"),
    [
        ({"": b"root", "domain": b"1", "gone": b""}, True),
        ({"": b"root", "domain": b"2", "gone": b"2"}, False),
        ({"": b"root"}, False),
        ({"": b"other", "domain": b"1"}, False),
    ],
)
def test_two_servers_with_the_same_fsid_are_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there, same
):
    """The handle of an export's root is its ``fsid=``."""
    (tmp_path / "here/domain").mkdir(parents=True)
    (tmp_path / "here/gone").touch()
    known = {"here": {"": b"root", "domain": b"1", "gone": b"9"}, "there": there}

    def handle(libc: object, path: str) -> bytes:
        place, _, name = path[len(str(tmp_path)) + 1 :].partition("/")
        if name not in known[place]:
            raise FileNotFoundError
        return known[place][name]

    monkeypatch.setattr(moving, "_handle", handle)
    assert moving._is_same(None, tmp_path / "here", tmp_path / "there") is same


def test_folders_that_cannot_be_read_are_not_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The same ``fsid=`` on two servers, which both let only VDSM in."""

    denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    monkeypatch.setattr(moving, "_handle", lambda libc, path: b"root")
    monkeypatch.setattr(Path, "iterdir", Mock(side_effect=denied))
    with pytest.raises(PermissionError):
        moving._is_same(None, tmp_path / "here", tmp_path / "there")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_folders_of_vdsm_are_compared_as_vdsm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A server may map root to nobody, who may not read them."""
    seen: list[tuple[int, int]] = []

    def handle(libc: object, path: str) -> bytes:
        seen.append((os.geteuid(), os.getegid()))
        return path[-1:].encode()

    monkeypatch.setattr(moving, "_handle", handle)
    before = os.geteuid(), os.getegid(), os.getgroups()
    for place in (f"{VDSM_MOUNTS}/nas:_vm", str(tmp_path)):
        assert not moving._is_same(None, Path(place), Path("/there"))
        assert (os.geteuid(), os.getegid(), os.getgroups()) == before
    assert seen == [(36, 36)] * 2 + [before[:2]] * 2


def test_a_connection_of_others_with_the_same_number_is_not_written(
    root: Path, dstaddr: Path
):
    """The mount is gone, and the kernel has given its numbers to another."""
    dstaddr.write_text("192.0.2.7\n")
    (why,) = move(root, {KEY: Target(A2, None, A1)}).values()
    assert why == os.strerror(errno.ESTALE)
    assert dstaddr.read_text() == "192.0.2.7\n"


def test_a_write_is_tried_again_only_at_the_same_connection(root: Path, dstaddr: Path):
    os.mkfifo(dstaddr)
    kernel, old = Kernel(), dstaddr.parent.with_name("gone")

    def run(argv: Sequence[str]) -> str:
        if argv[1:3] == ["route", "add"]:
            dstaddr.unlink()
            dstaddr.parent.rename(old)
            dstaddr.parent.mkdir()
            dstaddr.write_text("192.0.2.7\n")
        return kernel.run(argv)

    lever = Lever(str(root), A1, WITH_LINK, run)
    (why,) = move(root, {KEY: Target(A2, lever, A1)}).values()
    assert why == os.strerror(errno.ENOENT)
    assert dstaddr.read_text() == "192.0.2.7\n"


def test_a_write_that_waits_ends_with_its_parent(root: Path, dstaddr: Path):
    """What a killed run of the daemon has begun would come true much later."""
    os.mkfifo(dstaddr)
    pid = os.fork()
    if pid == 0:
        try:
            moving._Write(dstaddr.parent, A1, A2)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    time.sleep(0.3)
    assert _readers_get_nothing(dstaddr)


def test_a_lock_that_was_taken_for_a_moment_is_asked_for_again(
    root: Path, dstaddr: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nobody wakes a write when a request that was sent frees the lock."""
    os.mkfifo(dstaddr)
    begun: list[int] = []
    begin = moving._Write.begin

    def counted(self: moving._Write) -> None:
        begun.append(1)
        begin(self)

    monkeypatch.setattr(moving._Write, "begin", counted)
    # As time passes for a process that always has a processor.
    looks = itertools.count()
    move(root, {KEY: Target(A2, None, A1)}, lambda: next(looks) * 0.005)
    assert len(begun) >= 3


@pytest.mark.parametrize("has_lever", [False, True])
def test_a_write_that_ends_at_the_last_moment_is_no_refusal(
    root: Path, dstaddr: Path, monkeypatch: pytest.MonkeyPatch, has_lever: bool
):
    """Between the last look at it and the kill."""
    dstaddr.write_text(A1)
    monkeypatch.setattr(moving, "QUICK_S", 0.0)
    monkeypatch.setattr(moving, "LEVER_S", 0.0)

    def gather(*_: object) -> None:
        while dstaddr.read_text() != A2:
            time.sleep(0.01)
        time.sleep(0.3)

    monkeypatch.setattr(moving, "_gather", gather)
    lever = Lever(str(root), A1, WITH_LINK, Kernel().run) if has_lever else None
    assert move(root, {KEY: Target(A2, lever, A1)}) == {KEY: ""}


def test_a_proof_that_is_ended_at_once_leaves_no_process():
    for _ in range(10):
        proof = Proof([MOUNT], A2, lambda *_: time.sleep(60) or "")
        proof.end()
        for _ in range(200):
            try:
                if os.waitpid(proof.pid, os.WNOHANG) != (0, 0):
                    break
            except ChildProcessError:
                break
            time.sleep(0.01)
        else:
            raise AssertionError("it continues")


def test_a_route_is_said_to_be_left_also_without_its_netdev(root: Path):
    kernel = Kernel()
    gone = CommandFailed('Cannot find device "eth0"', 1)
    kernel.errors = {"route del": NOT_PERMITTED, "neigh": gone}
    with Lever(str(root), A1, WITH_LINK, kernel.run).pulled():
        pass
    (left,) = undo_levers(root, kernel.run)
    assert "still unreachable" in left


def test_a_neighbour_that_cannot_be_seen_is_tried_again(root: Path):
    kernel = Kernel()
    with Lever(str(root), A1, WITH_LINK, kernel.run).pulled():
        kernel.errors = {"neigh": CommandTimeout("no answer within 5 s")}
    assert undo_levers(root, kernel.run) == [
        f"a false neighbour of {address} may be left: no answer within 5 s"
        for address in (A1, NOBODY)
    ]
    kernel.errors = {}
    assert undo_levers(root, kernel.run) == []
    assert kernel.is_clean()


def test_a_move_in_between_does_not_make_the_server_another(
    proof: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """addr= of each mount follows the main connection."""
    now = [replace(MOUNT, address=A2, mountpoint=place)
           for place in (MOUNT.mountpoint, str(tmp_path / "proof"))]  # fmt: skip
    monkeypatch.setattr(moving.HostReader, "nfs_mounts", lambda self: now)
    assert moving.prove_address((A1, A2), MOUNT, A2) == ""
    assert len(proof) == 3
