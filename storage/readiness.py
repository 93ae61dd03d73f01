# SPDX-License-Identifier: GPL-2.0-or-later
"""Find out whether this host and a server are ready for RDMA: steps and verdicts.

One step that is certain to fail makes the result *not ready*. A step that could not be
tried makes it *unknown*, and the mount itself is the test. Callers that ask at the same
time share one reading of the host's facts: a GID table alone may have 1024 files, and
twenty servers would read it twenty times.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import math
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Optional, TypeVar, cast

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.export import TCP, netid_for
from ovirt_rdma.host.facts.adapter_models import without_rdma_device
from ovirt_rdma.host.facts.devices import (
    Guid,
    Netdev,
    NetdevGraph,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import Facts, Route
from ovirt_rdma.host.policy.model import MAX_SETTLE_S, NfsRule
from ovirt_rdma.host.system.commands import CommandFailed, CommandTimeout, run_command
from ovirt_rdma.storage.rdma_cm_probe import DEVICE

READY = "ready"
NOT_READY = "not ready"
UNKNOWN = "unknown"

MODULE = "rpcrdma"
MODULE_STEP = "module"


@dataclass(frozen=True)
class Step:
    """One check: its ``name``, ``verdict``, what was found (``detail``), and a fix.

    ``refused``: the server itself said no.
    """

    name: str
    verdict: str
    detail: str
    fix: str = ""
    refused: bool = False


@dataclass(frozen=True)
class Readiness:
    """All steps for one server, in the order of the checks."""

    steps: tuple[Step, ...] = ()

    @property
    def verdict(self) -> str:
        """NOT_READY if a step is, else UNKNOWN if a step is, else READY."""
        verdicts = {step.verdict for step in self.steps}
        return next((v for v in (NOT_READY, UNKNOWN) if v in verdicts), READY)

    @property
    def fix(self) -> str:
        """The fix of the first step that has the verdict and a fix; or empty."""
        return next((step.fix for step in self._deciding() if step.fix), "")

    @property
    def reason(self) -> str:
        """The detail of the first step that has the verdict, unless all are ready."""
        if self.verdict == READY:
            return "this host and the server are ready for RDMA"
        return next(self._deciding()).detail

    def _deciding(self) -> Iterator[Step]:
        return (step for step in self.steps if step.verdict == self.verdict)


def local_steps(facts: Facts, route: Optional[Route]) -> tuple[Step, ...]:
    """Check whether this host can reach ``route.destination`` over RDMA.

    Checks the module, the route (None if unknown), and the port that owns the source
    address.
    """
    module = _module_step(facts)
    if route is None:
        unknown = Step("route", UNKNOWN, "the route to the server is unknown")
        # Without a device the route does not matter.
        no_device = () if facts.rdma_devices else (_no_device(facts, ""),)
        return (module, unknown, *no_device)
    if route.netdev is None or route.source is None:
        problem = route.problem or "the kernel names no netdev"
        failed = Step(
            "route",
            NOT_READY,
            f"no route to {route.destination}: {problem}",
            "check this host's network attachment for the storage network",
        )
        return module, failed
    shown = f"{route.destination} by {route.netdev} from {route.source}"
    port = _port_step(facts, route.netdev, route)
    return module, Step("route", READY, shown), port


def ports_behind(
    devices: Iterable[RdmaDevice], netdevs: Sequence[Netdev], route: Optional[Route]
) -> list[tuple[RdmaDevice, RdmaPort]]:
    """Return the ports that own the source address of ``route`` on its netdev, as RDMA
    CM finds them; none without a route.

    RoCE: the GID table contains the address, also one of a bond, VLAN or bridge above
    the port's netdev (drivers/infiniband/core/roce_gid_mgmt.c); this finds the host's
    own addresses too, although their route says ``lo``. InfiniBand: the GID ends in
    the port GUID, and so does the 20-byte address of the IPoIB netdev or of one below
    it. iWARP: the GID begins with the netdev's MAC address.
    """
    if route is None or not route.netdev or not route.source:
        return []
    # The route to an address of this host says lo, which belongs to no port.
    below = {*NetdevGraph(netdevs).below(route.netdev)} - {"lo"}
    hardware = {d.address.replace(":", "").lower() for d in netdevs if d.name in below}
    guids = set(filter(None, map(Guid.of_address, hardware)))
    mapped = route.source if is_ipv6(route.source) else f"::ffff:{route.source}"
    wanted = ipaddress.ip_address(mapped).packed.hex()
    ports = []
    for device in devices:
        for port in device.ports:
            gids = {gid.gid.replace(":", "").lower() for gid in port.gids}
            if device.is_iwarp:
                owns = any(gid[:12] in hardware for gid in gids)
            elif port.is_infiniband:
                owns = any(Guid.of_gid(gid) in guids for gid in gids)
            else:
                owns = wanted in gids
            if owns:
                ports.append((device, port))
    return ports


def _module_step(facts: Facts) -> Step:
    if MODULE in facts.modules.loaded:
        return Step(MODULE_STEP, READY, f"{MODULE} is loaded")
    available = facts.modules.available
    if available is None:
        return Step(MODULE_STEP, UNKNOWN, f"{MODULE} is not loaded yet")
    if MODULE in available:
        return Step(MODULE_STEP, READY, f"{MODULE} loads with the first mount")
    return Step(
        MODULE_STEP,
        NOT_READY,
        f"kernel {facts.kernel_release} has no {MODULE} module",
        "install the kernel's extra modules, or the NFS part of the vendor's RDMA "
        "software",
    )


def _port_step(facts: Facts, netdev: str, route: Route) -> Step:
    if not facts.rdma_devices:
        return _no_device(facts, netdev)
    ports = ports_behind(facts.rdma_devices, facts.netdevs, route)
    if not ports:
        names = ", ".join(device.name for device in facts.rdma_devices)
        why, fix = without_rdma_device(facts, netdev)
        why = why or f"RDMA devices: {names}"
        fix = fix or (
            "put the storage address on the RDMA port's netdev, or on one above it"
        )
        detail = f"no RDMA port owns {route.source} on {netdev} ({why})"
        return Step("port", NOT_READY, detail, fix)
    states = [f"{device.name}/{port.number} is {port.state}" for device, port in ports]
    if any(port.is_active for _, port in ports):
        return Step("port", READY, f"{' and '.join(states)} and owns {route.source}")
    return Step(
        "port",
        NOT_READY,
        f"the RDMA port is not ACTIVE: {', '.join(states)}",
        "check the cable, the switch port and, on InfiniBand, the subnet manager",
    )


def _no_device(facts: Facts, netdev: str) -> Step:
    why, fix = without_rdma_device(facts, netdev)
    detail = "this host has no RDMA device" + (f": {why}" if why else "")
    fix = fix or "ovirt-rdma-host check says what its adapters lack"
    return Step("port", NOT_READY, detail, fix)


def read_local(reader: HostReader, most_gids: Optional[int] = None) -> Facts:
    """Return the facts that :func:`local_steps` needs, and no others; of each table of
    GIDs the first ``most_gids``, or all.
    """
    return Facts(
        hostname="",
        kernel_release=reader.kernel_release(),
        uptime_s=0.0,
        rdma_devices=reader.rdma_devices(most_gids=most_gids),
        netdevs=reader.netdevs(),
        modules=reader.modules(),
    )


class LocalFacts:
    """Reads the facts that :func:`local_steps` needs, for many servers at once.

    No caller gets facts that were read before its call: callers during a reading wait
    for the next one and share it. Remembers since when ports are down, by ``clock``.
    Safe for several threads.
    """

    def __init__(self, reader: HostReader, clock: Callable[[], float]) -> None:
        self._reader, self._clock = reader, clock
        self._lock = threading.Lock()
        self._begun = 0
        self._facts: Optional[Facts] = None
        # By device and number: when the port was first read as not ACTIVE, and whether
        # it was ACTIVE when it was last read.
        self._ports: dict[tuple[str, int], tuple[float, bool]] = {}

    def read(self) -> Facts:
        """Return facts whose reading begins after this call."""
        wanted = self._begun + 1
        with self._lock:
            if self._begun < wanted or self._facts is None:
                self._begun += 1
                self._facts = None
                self._facts = self._read()
            return self._facts

    def settling(self, wait_s: float) -> bool:
        """Whether a port was first read as not ACTIVE less than ``wait_s`` seconds ago.

        Also one that is ACTIVE by now: IPoIB joins its broadcast group, and gets a
        carrier and its addresses, later than that.
        """
        now = self._clock()
        return any(now - since < wait_s for since, _ in self._ports.values())

    def _read(self) -> Facts:
        facts, now = read_local(self._reader), self._clock()
        ports = {}
        for device in facts.rdma_devices:
            for port in device.ports:
                key = (device.name, port.number)
                since, was_active = self._ports.get(key, (-math.inf, True))
                # One that goes up and down all the time is no reason to wait each time.
                if was_active and not port.is_active and now - since >= MAX_SETTLE_S:
                    since = now
                ports[key] = (since, port.is_active)
        # Replaced and not changed, because settling() reads it without the lock.
        self._ports = ports
        return facts


SETTLE_POLL_S = 0.5
# A resolver whose first server is dead answers after 5 s (resolv.conf(5), timeout).
RESOLVE_TIMEOUT_S = 10.0


SYSTEM_PYTHON = "/usr/bin/python3"
PROBE = Path(__file__).with_name("rdma_cm_probe.py")
# For the child to load Python on a busy host; not part of the timeout.
STARTUP_TIMEOUT_S = 30.0
_LONGEST_LINE = 1 << 16
_LISTENER = "listener"
_asking: dict[str, threading.Lock] = {}


class Network:
    """Asks a server: its address, TCP port, RDMA listener and mountd. Each question
    ends at its deadline: child processes resolve names, try RDMA connections and ask
    mountd, and are killed then.
    """

    def resolve(self, server: str, timeout_s: float) -> tuple[str, ...]:
        """Return the addresses of ``server``; empty if its name does not resolve.

        The order is that of getaddrinfo, which mount.nfs uses. An address is returned
        unchanged. The name service has ``timeout_s`` seconds.
        """
        with contextlib.suppress(ValueError):
            return (str(ipaddress.ip_address(server)),)
        try:
            output = run_command(["getent", "ahosts", "--", server], timeout_s)
        except CommandFailed:
            return ()
        # One line per socket type: ADDRESS TYPE [NAME].
        addresses = [line.split()[0] for line in output.splitlines() if line.split()]
        return tuple(dict.fromkeys(addresses))

    def tcp_answers(self, address: str, port: int, timeout_s: float) -> bool:
        """Whether ``address`` accepts a TCP connection on ``port`` in time."""
        try:
            with socket.create_connection((address, port), timeout=timeout_s):
                return True
        except OSError:
            return False

    def rdma_listener(self, address: str, port: int, timeout_s: float) -> Step:
        """Check whether ``address`` accepts RDMA CM connections on ``port``.

        ``timeout_s`` seconds count from the child's ready signal. The verdict is
        UNKNOWN if the child cannot find out, mostly because the module rdma_ucm is not
        loaded, or if the server takes the question for an earlier one.
        """
        # Two probes at once would disturb each other; see PAUSES_S of the probe.
        with _asking.setdefault(address, threading.Lock()):
            return _ask_listener(address, port, timeout_s)

    def mountd(self, address: str, timeout_s: float) -> Step:
        """Check whether rpcbind knows mountd and mountd answers; NFS 3 needs both.

        Runs rpcinfo(8), which makes its null call in the same way as mount.nfs.
        """
        netid = netid_for(TCP, ipv6=is_ipv6(address))
        try:
            run_command(["rpcinfo", "-T", netid, address, "mountd"], timeout_s)
        except CommandFailed as error:
            late = isinstance(error, CommandTimeout)
            if error.returncode is None and not late:
                return Step("mountd", UNKNOWN, f"rpcinfo could not be run: {error}")
            said = f"mountd on {address} does not answer: {error}"
            said = f"rpcbind on {address} does not answer" if late else said
            return Step("mountd", NOT_READY, said, _MOUNTD_FIX)
        return Step("mountd", READY, f"rpcbind and mountd on {address} answer")


_MOUNTD_FIX = (
    "on the server start rpcbind and nfs-mountd, and open TCP port 111 and mountd's "
    "port in the firewall"
)


def _ask_listener(address: str, port: int, timeout_s: float) -> Step:
    command = [SYSTEM_PYTHON, "-I", "-S", str(PROBE), address, str(port)]
    quiet = subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet
        )
    except OSError as error:
        return Step(_LISTENER, UNKNOWN, f"the RDMA probe could not be started: {error}")
    try:
        with cast("IO[bytes]", child.stdout) as stdout:
            if _next_line(stdout.fileno(), STARTUP_TIMEOUT_S) != "ready":
                return Step(_LISTENER, UNKNOWN, "the RDMA probe did not start in time")
            answer = _next_line(stdout.fileno(), timeout_s)
    finally:
        child.kill()
        # A child that hangs in the kernel is reaped later, without waiting for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=1)
    if answer is None:
        detail = f"{address} did not answer an RDMA connection within {timeout_s:g} s"
        fix = "check that the server is up and its RDMA device is ACTIVE"
        return Step(_LISTENER, NOT_READY, detail, fix)
    return step_of(answer, address, port)


def _next_line(pipe: int, timeout_s: float) -> Optional[str]:
    """Return the next line; None at the deadline, "" if the child has ended, or prints
    a line without end.
    """
    line, deadline = b"", time.monotonic() + timeout_s
    # Not select(2): vdsmd may have more than 1024 files open.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        # What follows the line is part of the next one.
        part = os.read(pipe, 1)
        if not part or len(line) > _LONGEST_LINE:
            return ""
        line += part
    return line[:-1].decode("utf-8", "replace")


def step_of(answer: str, address: str, port: int) -> Step:
    """Turn the probe's answer line into a step; an invalid line is UNKNOWN."""
    try:
        data = json.loads(answer)
        verdict, detail = data["verdict"], str(data["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        verdict, detail = "", ""
    if not detail:
        return Step(_LISTENER, UNKNOWN, f"the RDMA probe answered {answer!r}")
    if verdict == "listening":
        return Step(_LISTENER, READY, detail)
    if verdict == "refused":
        return Step(_LISTENER, NOT_READY, detail, server_side_fix(port), refused=True)
    if verdict == "no route":
        fix = f"check the RDMA path to {address}: rdma link"
        return Step(_LISTENER, NOT_READY, detail, fix)
    return Step(_LISTENER, UNKNOWN, detail, module_fix(detail))


def module_fix(detail: str) -> str:
    """Return what to do if the probe could not ask for this reason; "" if unknown."""
    return "modprobe rdma_ucm" if DEVICE in detail else ""


def server_side_fix(port: int) -> str:
    """Return how to make a Linux NFS server listen on RDMA ``port`` (nfs.conf(5))."""
    return (
        "check the rule's port, and that the server's NFS service is running; on a "
        f"Linux server set rdma=y and rdma-port={port} in the [nfsd] section of "
        "/etc/nfs.conf, then run systemctl restart nfs-server"
    )


class ProbeContext:
    """The sources of the answers: the host's facts, the network, the clock.

    ``local_facts`` are read through ``reader``, for all servers together. Without
    ``sleep`` nobody waits for ports that are coming up.
    """

    def __init__(
        self,
        reader: HostReader,
        network: Optional[Network] = None,
        sleep: Optional[Callable[[float], None]] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reader, self.network = reader, network or Network()
        self.sleep, self.clock = sleep, clock
        self.local_facts = LocalFacts(reader, clock)


class ServerReadiness:
    """The answers of one server for one connect; each question is asked once.

    ``rule`` has the RDMA port and the timeouts. A name may have addresses of both
    families, and mount.nfs uses only the family that ``proto=`` names, so the first
    address of each family is asked. For one thread at a time.
    """

    def __init__(self, server: str, rule: NfsRule, surroundings: ProbeContext) -> None:
        self.server = server
        # How long readiness waited for a port to come up, in seconds.
        self.settled_s = 0.0
        # The address that it is about, and when it was asked, by the surroundings'
        # clock.
        self.rdma_address: Optional[str] = None
        self.asked_at = -math.inf
        self._rule, self._around = rule, surroundings
        self._addresses: Optional[tuple[str, ...]] = None
        self._readiness: Optional[Readiness] = None
        self._tcp: dict[tuple[str, int], bool] = {}

    # Not cached_property: up to Python 3.11 one server would wait for another.
    @property
    def addresses(self) -> tuple[str, ...]:
        """The server's first address of each family; empty if it does not resolve."""
        if self._addresses is None:
            first: dict[bool, str] = {}
            for address in self._around.network.resolve(self.server, RESOLVE_TIMEOUT_S):
                first.setdefault(is_ipv6(address), address)
            self._addresses = tuple(first.values())
        return self._addresses

    def readiness(self) -> Readiness:
        """Check all that can be checked before a mount, in order of cost.

        The result is about the first address that can be reached over RDMA, or about
        the first address if none can: ``rdma_address``.
        """
        if self._readiness is None:
            self._readiness, self.rdma_address = self._ask()
            self.asked_at = self._around.clock()
        return self._readiness

    def tcp_answers(self, port: int) -> bool:
        """Whether the server accepts TCP connections on ``port``."""
        return any(self._answers(address, port) for address in self.addresses)

    def tcp_ipv6(self, port: int) -> Optional[bool]:
        """Whether a TCP mount should use IPv6: by the only family that the server has,
        or the first that answers on ``port``. None if no family answers, or if the name
        does not resolve.
        """
        addresses = self.addresses
        if len(addresses) > 1:
            addresses = tuple(a for a in addresses if self._answers(a, port))
        return is_ipv6(addresses[0]) if addresses else None

    def _answers(self, address: str, port: int) -> bool:
        if (address, port) not in self._tcp:
            self._tcp[address, port] = self._around.network.tcp_answers(
                address, port, self._rule.readiness_timeout
            )
        return self._tcp[address, port]

    def _ask(self) -> tuple[Readiness, Optional[str]]:
        if not self.addresses:
            detail = f"{self.server} does not resolve to an address"
            fix = "check the server's name, /etc/hosts and DNS"
            return Readiness((Step("address", NOT_READY, detail, fix),)), None
        asked = []
        for address, steps in self._settled_local_steps().items():
            shown = "an IP address" if self.server == address else address
            first = Step("address", READY, f"{self.server} is {shown}")
            readiness = Readiness((first, *steps))
            if readiness.verdict != NOT_READY:
                listener = self._around.network.rdma_listener(
                    address, self._rule.port, self._rule.readiness_timeout
                )
                readiness = Readiness((*readiness.steps, listener))
            if readiness.verdict != NOT_READY:
                return readiness, address
            asked.append(readiness)
        return asked[0], self.addresses[0]

    def _settled_local_steps(self) -> dict[str, tuple[Step, ...]]:
        """Return the local steps for each address.

        A port that is coming up has no carrier, so its netdev may have no address yet,
        and the route may use another netdev. So these failures are waited for, until
        one address is not NOT_READY, or ``settle_timeout`` seconds after a question of
        this process first found the port down: a port costs all questions together one
        such wait, however long it stays down.
        """
        around = self._around
        local, wait = around.local_facts, self._rule.settle_timeout
        began = around.clock()
        while True:
            facts = local.read()
            steps_of = {
                address: local_steps(facts, around.reader.route(address))
                for address in self.addresses
            }
            failed = [
                next((step.name for step in steps if step.verdict == NOT_READY), None)
                for steps in steps_of.values()
            ]
            helps = None not in failed and set(failed) != {MODULE_STEP}
            # Another port may go down meanwhile: no question waits twice.
            late = around.clock() - began >= wait or not local.settling(wait)
            if around.sleep is None or late or not helps:
                return steps_of
            around.sleep(SETTLE_POLL_S)
            self.settled_s = around.clock() - began


def is_ipv6(address: str) -> bool:
    """Whether an IP address is of version 6."""
    return ":" in address


# Questions to any servers with shorter gaps belong together: in such a gap nobody can
# fix a server and activate the host again.
BURST_GAP_S = 2.0
# After this time a server is asked again, even without a gap.
LONGEST_S = 10.0

T = TypeVar("T")


class RecentAnswers(Network):
    """A Network that remembers negative answers for calls in quick succession: the
    engine may connect twenty exports of a dead server, each in one call, and every call
    would wait for the same timeout.

    Positive answers are not kept: they cost little and may change at any moment. Safe
    for several threads; those that ask the same question wait for one answer.
    """

    def __init__(
        self,
        network: Optional[Network] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._network, self._clock = network or Network(), clock
        self._locks: dict[Hashable, threading.Lock] = {}
        # The negative answers, and when they were given.
        self._negative: dict[Hashable, tuple[Any, float]] = {}
        # When a question last began or ended; a caller asks several in sequence.
        self._last = clock()

    def resolve(self, server: str, timeout_s: float) -> tuple[str, ...]:
        """Return the addresses of a server; never from the cache."""
        return self._network.resolve(server, timeout_s)

    def tcp_answers(self, address: str, port: int, timeout_s: float) -> bool:
        """Whether a TCP port accepts a connection, or did not a moment ago."""
        answers, _ = self._ask(
            ("tcp", address, port, timeout_s),
            lambda: self._network.tcp_answers(address, port, timeout_s),
            lambda answers: not answers,
        )
        return answers

    def rdma_listener(self, address: str, port: int, timeout_s: float) -> Step:
        """Check whether an RDMA port accepts a connection, or did not a moment ago."""
        step, age_s = self._ask(
            ("rdma", address, port, timeout_s),
            lambda: self._network.rdma_listener(address, port, timeout_s),
            lambda step: step.verdict == NOT_READY,
        )
        if age_s is None:
            return step
        return replace(step, detail=f"{step.detail} (asked {age_s:.0f} s ago)")

    def _ask(
        self, key: Hashable, ask: Callable[[], T], is_negative: Callable[[T], bool]
    ) -> tuple[T, Optional[float]]:
        """Return the answer, and its age in seconds if it is an earlier one."""
        with self._locks.setdefault(key, threading.Lock()):
            now = self._clock()
            if now - self._last > BURST_GAP_S:
                self._negative.clear()
            self._last = now
            earlier, at = self._negative.pop(key, (None, -math.inf))
            if now - at <= LONGEST_S:
                self._negative[key] = earlier, at
                return earlier, now - at
            answer = ask()
            self._last = now = self._clock()
            if is_negative(answer):
                self._negative[key] = answer, now
            return answer, None
