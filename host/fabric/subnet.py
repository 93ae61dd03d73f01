# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the fabric of this host: its opensm processes, and what its subnet manager says.

The subnet manager is asked with infiniband-diags; nothing is changed. Each question has
a timeout. What is not answered is unknown. The replies have the forms of infiniband-
diags 44 and rdma-core 65 (infiniband-diags/sminfo.c, saquery.c, smpquery.c and
ibnetdiscover.c), tried with opensm 3.3.23.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable, Optional, TypeVar

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.partitions_conf import guid_text
from ovirt_rdma.host.facts.devices import RdmaPort
from ovirt_rdma.host.facts.infiniband import partition_bits
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import OPENSM_SETTINGS_FILE, PARTITIONS_FILES
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled, Runner
from ovirt_rdma.host.system.text import whole
from ovirt_rdma.host.system.tree import ROOT, FileTree, processes, runs

# OSM_DEFAULT_CONFIG_FILE: EL's, and that of Debian and MLNX_OFED.
_CONFIGS = ("/etc/rdma/opensm.conf", "/etc/opensm/opensm.conf")
# Those options that have a value, by their letter (opensm/main.c, short_option).
_WITH_VALUE = "FciwOfdDgLlstaumXRMUSPYZpnqkCGHJ"
_NAMES = {"Pconfig": "P", "guid": "g", "priority": "p", "config": "F"}
_SETTING = re.compile(r"\s*(guid|sm_priority|partition_config_file)\s+(\S+)")
_LETTERS = {"guid": "g", "sm_priority": "p", "partition_config_file": "P"}


@dataclass(frozen=True)
class OpensmProcess:
    """A running opensm.

    ``partitions`` is the file that it reads, None if that is opensm's default.
    ``guid`` is the port of its settings (``0x0002c90300fb1231``), None if it takes
    the first with a link; ``priority`` is None if there is none in them. ``settings``
    is the file that its option --config names, None if that is opensm's default.
    """

    pid: int
    partitions: Optional[str] = None
    guid: Optional[str] = None
    priority: Optional[int] = None
    settings: Optional[str] = None

    @property
    def is_ours(self) -> bool:
        """Whether ``fabric sm enable`` has started it."""
        ours = OPENSM_SETTINGS_FILE.format(self.guid)
        return bool(self.guid) and self.settings == ours


def running_opensm(tree: FileTree) -> tuple[OpensmProcess, ...]:
    """Return the opensm processes that root runs, by their number."""
    found = []
    for pid, argv in processes(tree):
        words = [word.decode("utf-8", "surrogateescape") for word in argv]
        # Its words name files that are opened.
        named = posixpath.basename(words[0]) == "opensm"
        if named and runs(tree, pid, ROOT, "opensm"):
            found.append(_process(pid, words[1:], tree))
    return tuple(found)


def _process(pid: int, words: Sequence[str], tree: FileTree) -> OpensmProcess:
    options = _options(words)
    settings: dict[str, str] = {}
    for path in [options["F"]] if "F" in options else _CONFIGS:
        for line in (tree.text(path) or "").splitlines():
            match = _SETTING.match(line)
            if match:
                settings[_LETTERS[match[1]]] = match[2]
    # The command line overrides the configuration.
    options = {**settings, **options}
    guid = whole(options.get("g", ""), 0)
    return OpensmProcess(
        pid,
        options.get("P") if options.get("P") != "(null)" else None,
        guid_text(guid) if guid else None,
        whole(options.get("p", ""), 0),
        options.get("F"),
    )


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return the values of options by their letters.

    opensm reads them with getopt_long_only (opensm/main.c, 3.3.24): an option has one
    hyphen or two, and may be cut as long as it is unique.
    """
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            continue
        cut = (one for full, one in _NAMES.items() if full.startswith(name))
        letter = next(cut, None) if len(name) > 1 else None
        if letter:
            found[letter] = value if equals else next(rest, "")
        elif not word.startswith("--") and name[0] in _WITH_VALUE:
            found[name[0]] = word[2:] or next(rest, "")
    return found


def partitions_file(tree: FileTree) -> str:
    """Return the file that opensm reads by default: the first that exists, or whose
    folder does.
    """
    parts = [(path, *posixpath.split(path)) for path in PARTITIONS_FILES]
    present = [path for path, folder, name in parts if name in tree.names(folder)]
    likely = [path for path, folder, _ in parts if tree.is_folder(folder)]
    return (*present, *likely, PARTITIONS_FILES[0])[0]


# sminfo: sm lid 1 sm guid 0x2c9030000011, activity count 67 priority 0 state 3 ...
_SMINFO = re.compile(
    r"sm lid (\d+) sm guid (0x[0-9a-f]+), activity count \d+ priority (\d+) state (\d+)"
)
# saquery: MGID....................ff12:401b:8001::ffff:ffff
_FIELD = re.compile(r"\s*([A-Za-z_][\w ]*?)\.{2,}(.*)")
# smpquery pkeys: the row of an index, 8 entries.
_TABLE = re.compile(r"\s*\d+:((?: 0x[0-9a-f]{4})+)\s*")

# enum SM states (include/iba/ib_types.h, IB_SMINFO_STATE_*).
STANDBY, MASTER = "standby", "master"
_STATES = {0: "not active", 1: "discovering", 2: STANDBY, 3: MASTER}

# The low 6 bits of MTU and rate; the others say "exactly" (ib_types.h).
_CODE = 0x3F
# The broadcast group of IPoIB, IPv4: ff1S:401b:PKEY::ffff:ffff (RFC 4391, 4).
_BROADCAST = re.compile(r"ff1[0-9a-f]:401b:([0-9a-f]{1,4})::ffff:ffff", re.IGNORECASE)

# ibnetdiscover's line of a host's port: [1](2c90300fb1231)  "S-..."[1]  # lid 1 ...
_HOSTS_PORT = re.compile(r"^\[\d+\]\(([0-9a-f]{1,16})\)\s", re.MULTILINE)


@dataclass(frozen=True)
class Manager:
    """A subnet manager: where it runs, its priority (0 to 15) and its state; MASTER is
    the one that configures the fabric.
    """

    guid: str
    lid: int
    priority: int
    state: str


@dataclass(frozen=True)
class BroadcastGroup:
    """The broadcast group of a partition: its P_Key in 15 bits, MTU and rate codes."""

    pkey: int
    mtu: int
    rate: int


# The parsers raise ValueError for a text of another form.


def manager(text: str) -> Manager:
    """Return the manager that ``sminfo`` prints."""
    match = _SMINFO.search(text)
    if match is None:
        raise ValueError("sminfo printed something else")
    return _manager(match[2], match[1], match[3], match[4])


def managers(text: str) -> tuple[Manager, ...]:
    """Return the managers that ``saquery SMIR`` prints."""
    fields = ("GUID", "LID", "Priority", "SMState")
    return tuple(
        _manager(*(one[name] for name in fields))
        for one in _records(text, "SMInfoRecord")
        if one.keys() >= set(fields)
    )


def broadcast_groups(text: str) -> tuple[BroadcastGroup, ...]:
    """Return the broadcast groups that ``saquery -g`` prints."""
    found = []
    for one in _records(text, "MCMemberRecord"):
        match = _BROADCAST.fullmatch(one.get("MGID", ""))
        if match and {"Mtu", "Rate"} <= one.keys():
            mtu, rate = (_number(one[key], 16) & _CODE for key in ("Mtu", "Rate"))
            pkey = partition_bits(_number(match[1], 16))
            found.append(BroadcastGroup(pkey, mtu, rate))
    return tuple(found)


def pkey_table(text: str) -> frozenset[int]:
    """Return the P_Keys that ``smpquery pkeys`` prints, without empty entries."""
    lines = filter(None, map(_TABLE.fullmatch, text.splitlines()))
    found = (_number(one, 16) for line in lines for one in line[1].split())
    return frozenset(found) - {0}


def fabric_guids(text: str) -> frozenset[str]:
    """Return the GUIDs of the hosts' ports that ``ibnetdiscover`` prints."""
    found = _HOSTS_PORT.findall(text)
    if not found:
        raise ValueError("it has no port of a host")
    return frozenset(guid_text(int(guid, 16)) for guid in found)


def _manager(guid: str, lid: str, priority: str, state: str) -> Manager:
    known = _STATES.get(_number(state), f"state {state}")
    return Manager(guid_text(_number(guid, 16)), _number(lid), _number(priority), known)


def _number(text: str, base: int = 10) -> int:
    number = whole(text, base)
    if number is None:
        raise ValueError(f"{text[:40]!a} is not a number")
    return number


def _records(text: str, name: str) -> Iterator[dict[str, str]]:
    fields: Optional[dict[str, str]] = None
    for line in text.splitlines():
        if line.startswith(name):
            if fields:
                yield fields
            fields = {}
            continue
        match = _FIELD.fullmatch(line)
        if match and fields is not None:
            fields.setdefault(match[1].strip(), match[2].strip())
    if fields:
        yield fields


@dataclass(frozen=True)
class LocalPort:
    """An InfiniBand port of this host, with its GUID as partitions.conf has it."""

    device: str
    number: int
    guid: str
    port: RdmaPort

    @property
    def title(self) -> str:
        """The port in sentences: ``mlx4_0/1``."""
        return f"{self.device}/{self.number}"


@dataclass(frozen=True)
class Subnet:
    """What the subnet manager behind ``port`` says; None where it does not answer.

    ``managers`` are all subnet managers, ``groups`` the broadcast groups of IPoIB.
    """

    port: LocalPort
    master: Optional[Manager] = None
    managers: Optional[tuple[Manager, ...]] = None
    groups: Optional[tuple[BroadcastGroup, ...]] = None
    problems: tuple[Sentence, ...] = ()

    @property
    def several_masters(self) -> Optional[Sentence]:
        """Which subnet managers are master, if that is more than one."""
        masters = [one.guid for one in self.managers or () if one.state == MASTER]
        text = f"several subnet managers are master: {', '.join(masters)}"
        return Sentence("several-masters", text) if len(masters) > 1 else None


@dataclass(frozen=True)
class FabricFacts:
    """The InfiniBand ports with their subnets, and the opensm processes, of a host."""

    hostname: str
    subnets: tuple[Subnet, ...]
    processes: tuple[OpensmProcess, ...] = ()

    @property
    def guids(self) -> frozenset[str]:
        """The GUIDs of this host's InfiniBand ports."""
        return frozenset(one.port.guid for one in self.subnets)

    @property
    def ours(self) -> tuple[OpensmProcess, ...]:
        """The processes that ``fabric sm enable`` has started."""
        return tuple(one for one in self.processes if one.is_ours)


def local_ports(facts: Facts) -> tuple[LocalPort, ...]:
    """Return the InfiniBand ports of this host that have a GUID."""
    return tuple(
        LocalPort(device.name, port.number, guid_text(port.guid), port)
        for device in facts.rdma_devices
        for port in device.ports
        if port.is_infiniband and port.guid
    )


_Answer = TypeVar("_Answer")

# What smpquery says of a GUID that the subnet manager does not know.
_NO_SUCH_PORT = ("can't resolve destination port", "path_query")


@dataclass
class FabricReader:
    """Asks through ``run``; None: no tool is run, and all answers are unknown.
    ``problems`` says why the last question has no answer.
    """

    tree: FileTree
    run: Optional[Runner]
    problems: list[Sentence] = field(default_factory=list)

    def facts(self, facts: Facts) -> FabricFacts:
        """Return what is known of the fabric of the host with these ``facts``."""
        subnets = tuple(map(self.subnet, local_ports(facts)))
        return FabricFacts(facts.hostname, subnets, running_opensm(self.tree))

    def subnet(self, port: LocalPort) -> Subnet:
        """Ask the subnet manager behind ``port``."""
        self.problems = []
        if not port.port.is_active:
            return Subnet(port)
        found = self._asked("sminfo", port, (), manager)
        smir = groups = None
        if found is not None:
            # Not with --smkey: opensm then shows members, and no group without one.
            smir = self._asked("saquery", port, ("SMIR",), managers)
            groups = self._asked("saquery", port, ("-g",), broadcast_groups)
        return Subnet(port, found, smir, groups, tuple(self.problems))

    def missing_tools(self) -> Optional[Sentence]:
        """Return why the subnet manager cannot be asked; None if it can."""
        try:
            self._tool(("sminfo", "-V"))
        except NotInstalled:
            return _missing("sminfo")
        except CommandFailed:
            pass  # it is there; whether it works is seen when it asks
        return None

    def manager_at(self, port: LocalPort, lid: int) -> Optional[Manager]:
        """Return the subnet manager that runs at the port with ``lid``, asked from
        ``port``; None if none answers. One on standby answers too.
        """
        return self._asked("sminfo", port, (str(lid),), manager)

    def reachable(self, port: LocalPort) -> Optional[frozenset[str]]:
        """Return the GUIDs of the hosts' ports in the subnet behind ``port``, its own
        too, also without a subnet manager (ibnetdiscover asks by directed routes). None
        if that is unknown.
        """
        return self._asked("ibnetdiscover", port, (), fabric_guids)

    def tables(
        self, port: LocalPort, guids: Iterable[str]
    ) -> Mapping[str, Optional[frozenset[int]]]:
        """Return the P_Key table of each port of ``guids``; None if it is not in the
        fabric. A port whose table could not be read is left out.
        """
        self.problems = []
        found: dict[str, Optional[frozenset[int]]] = {}
        for guid in guids:
            table = self._asked("smpquery", port, ("-G", "pkeys", guid), pkey_table)
            if table is not None:
                found[guid] = table
            elif any(text in self.problems[-1] for text in _NO_SUCH_PORT):
                del self.problems[-1]
                found[guid] = None
            elif self.problems[-1].id == "fabric-tool-missing":
                break
        return found

    def _asked(
        self,
        tool: str,
        port: LocalPort,
        more: tuple[str, ...],
        parse: Callable[[str], _Answer],
    ) -> Optional[_Answer]:
        at = ("-C", port.device, "-P", str(port.number))
        try:
            return parse(self._tool((tool, *at, *more)))
        except NotInstalled:
            self.problems.append(_missing(tool))
        except (CommandFailed, ValueError) as error:
            text = f"{tool} at {port.title} failed: {error}"
            self.problems.append(Sentence("fabric-tool-failed", text))
        return None

    def _tool(self, argv: tuple[str, ...]) -> str:
        if self.run is None:
            raise NotInstalled("tools are not run below another root")
        return self.run(argv)


def _missing(tool: str) -> Sentence:
    return Sentence(
        "fabric-tool-missing",
        f"{tool} is not available here; it is in the package infiniband-diags",
    )
