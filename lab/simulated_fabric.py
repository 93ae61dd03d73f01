# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the real opensm and infiniband-diags on a simulated fabric, without hardware.

ibsim answers the management datagrams of a switch and some hosts; a preloaded library
leads the tools to it. It has no verbs, no netdevs and no traffic. The packages are
unpacked into the cache and not installed: Debian starts an installed opensm, which
could become a second subnet manager of the machine's own fabric.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import packages
from lab.cache import cache_folder
from lab.problem import LabProblem

_PACKAGES = (
    "opensm",
    "libopensm9",
    "libosmcomp5",
    "libosmvendor5",
    "libwrap0",
    "ibsim-utils",
    "libumad2sim0",
    "infiniband-diags",
    "libibumad3",
    "libibmad5",
    "libibnetdisc5",
)
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_START_S, _RUN_S = 20.0, 60.0

# What opensm's log has for a file that it does not take as it is.
COMPLAINTS = re.compile(
    r"PARSE (?:ERROR|WARN)|ERR 1B|Failed to create MC group|invalid (?:pkey|rate|mtu)"
    r"|Partition configuration"
)


@dataclass(frozen=True)
class Swept:
    """One sweep of opensm: its exit code, its log, and the P_Keys of each host."""

    returncode: int
    log: str
    pkeys: dict[str, set[int]]

    @property
    def complaints(self) -> list[str]:
        """The lines of the log about the partitions' file."""
        return [line for line in self.log.splitlines() if COMPLAINTS.search(line)]

    @property
    def errors(self) -> list[str]:
        """Those of them that are no warning."""
        return [line for line in self.complaints if "PARSE WARN" not in line]

    @property
    def is_default(self) -> bool:
        """Whether opensm used its default in place of the file."""
        return "retrying with default config" in self.log


@dataclass(frozen=True)
class SimulatedFabric:
    """A running ibsim with one switch and ``hosts`` of one port each.

    ``guids`` has the port GUID of each host.
    """

    package: Path
    folder: Path
    guids: dict[str, int]

    def environment(self, host: str) -> dict[str, str]:
        """Return the environment of a program that runs on ``host``."""
        libraries = self.package / _LIBRARIES
        return {
            **_names(self.folder),
            "PATH": f"{self.package}/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C",
            "LD_LIBRARY_PATH": str(libraries),
            "LD_PRELOAD": str(libraries / "umad2sim/libumad2sim.so"),
            "SIM_HOST": host,
            "OSM_TMP_DIR": str(self.folder),
            # A host of its own: opensm reads there which LIDs it has given out.
            "OSM_CACHE_DIR": str(_cache(self.folder, host)),
        }

    def run(self, host: str, *command: str) -> str:
        """Run a tool on ``host`` and return its stdout. Raises LabProblem."""
        done = self._run(host, *command)
        if done.returncode:
            raise LabProblem(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def sweep(self, partitions: bytes, *, tables: bool = True) -> Swept:
        """Let opensm configure the fabric once with ``partitions``.

        Without ``tables`` the P_Keys are not read.
        """
        file, log = self.folder / "partitions.conf", self.folder / "opensm.log"
        file.write_bytes(partitions)
        log.unlink(missing_ok=True)
        first = next(iter(self.guids))
        done = self._run(
            first, "opensm", "-o", "-e", "-V", "-f", str(log), "-P", str(file)
        )
        text = log.read_text("utf-8", "replace") + done.stdout + done.stderr
        pkeys = {host: self.pkeys(host) for host in self.guids} if tables else {}
        return Swept(done.returncode, text, pkeys)

    def pkeys(self, host: str) -> set[int]:
        """Return the P_Key table of the port of ``host``."""
        text = self.run(host, "smpquery", "pkeys", "-D", "0")
        found = {int(value, 16) for value in re.findall(r" 0x([0-9a-f]{4})\b", text)}
        return found - {0}

    def command(self, host: str, partitions: Path) -> list[str]:
        """Return the command line of opensm on ``host``."""
        log = self.folder / f"opensm-{host}.log"
        return ["opensm", "-f", str(log), "-P", str(partitions)]

    def start(self, host: str, *command: str) -> subprocess.Popen[str]:
        """Start a program on ``host``; the caller ends it."""
        return subprocess.Popen(
            command,
            env=self.environment(host),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
        )

    @contextmanager
    def manager(self, host: str, partitions: Path) -> Iterator[subprocess.Popen[str]]:
        """Run opensm on ``host`` until the block ends; at its begin it is master, and
        answers saquery.
        """
        (self.folder / f"opensm-{host}.log").unlink(missing_ok=True)
        process = self.start(host, *self.command(host, partitions))
        try:
            wait(lambda: "SMINFO_MASTER" in self._run(host, "sminfo").stdout)
            # Not before its first sweep.
            wait(lambda: "MGID" in self._run(host, "saquery", "-g").stdout, _RUN_S)
            yield process
        finally:
            process.kill()
            process.wait()

    def _run(self, host: str, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment(host),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_RUN_S,
            check=False,
            cwd=self.folder,
        )


def fetched() -> Path:
    """Return a folder with opensm, ibsim and infiniband-diags, fetched once.

    Raises LabProblem if apt cannot fetch them.
    """
    # apt takes ten seconds to say that nothing is new.
    for package in cache_folder().glob(f"{_PACKAGES[0]}-*"):
        return package
    return packages.fetched(cache_folder(), *_PACKAGES)


@contextmanager
def running(
    package: Path, folder: Path, hosts: Sequence[str], first: int = 0x2C9030000010
) -> Iterator[SimulatedFabric]:
    """Run a fabric until the block ends; its files are in ``folder``.

    ``first`` is the node GUID of the first host; those of the others follow.
    """
    # ibsim numbers ports from the node's GUID on.
    guids = {host: first + n * 16 + 1 for n, host in enumerate(hosts)}
    with replayed(package, folder, topology_text(guids), guids) as fabric:
        yield fabric


@contextmanager
def replayed(
    package: Path, folder: Path, text: str, guids: dict[str, int]
) -> Iterator[SimulatedFabric]:
    """Run the fabric of ``text``, which is ibsim's topology or what ibnetdiscover has
    printed, until the block ends.

    ``guids`` has the port GUIDs of those hosts that are used, by ibsim's names of them:
    ``H-`` and the node GUID for the output of ibnetdiscover.
    """
    topology = folder / "fabric.net"
    topology.write_text(text, "utf-8")
    environment = {**_names(folder), "LD_LIBRARY_PATH": str(package / _LIBRARIES)}
    with (folder / "ibsim.log").open("w") as log:
        process = subprocess.Popen(
            [str(package / "usr/bin/ibsim"), "-s", "-n", str(topology)],
            env=environment,
            stdin=subprocess.PIPE,  # it ends at the end of its console
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    fabric = SimulatedFabric(package, folder, guids)
    for host in guids:
        _cache(folder, host).mkdir(exist_ok=True)
    try:
        wait(lambda: _answers(fabric, next(iter(guids))))
        yield fabric
    finally:
        process.kill()
        process.wait()


def _cache(folder: Path, host: str) -> Path:
    return folder / f"cache-{host}"


def _names(folder: Path) -> dict[str, str]:
    # Abstract sockets: another run has its own.
    return {"IBSIM_SOCKNAME": f"lab-{os.getpid()}-{folder.name}"}


def topology_text(guids: dict[str, int]) -> str:
    """Return ibsim's topology of one switch and hosts with these port GUIDs."""
    lines = ["switchguid=0x2c902000000ff", 'Switch 8 "Switch"']
    lines += [f'[{n}] "{host}"[1]' for n, host in enumerate(guids, 1)]
    for number, (host, guid) in enumerate(guids.items(), 1):
        lines += ["", f"caguid=0x{guid - 1:x}", f'Hca 1 "{host}"']
        lines.append(f'[1] "Switch"[{number}]')
    return "\n".join(lines) + "\n"


def _answers(fabric: SimulatedFabric, host: str) -> bool:
    try:
        fabric.run(host, "smpquery", "nodeinfo", "-D", "0")
    except LabProblem:
        return False
    return True


def wait(is_so: Callable[[], bool], seconds: float = _START_S) -> None:
    """Wait until ``is_so()``, at most ``seconds``. Raises LabProblem."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise LabProblem("the simulated fabric did not start in time")
        time.sleep(0.05)
