# SPDX-License-Identifier: GPL-2.0-or-later
"""Define a host's report and the access to hosts, read the reports of many hosts, and
what a report says about policy, mounts and hooks.

A report is the output of ``ovirt-rdma-host`` on the host. It comes over SSH
(:mod:`ovirt_rdma.engine_sdk_tools.hosts.ansible`) or from a folder of dumps
(:class:`DumpFolder`), to plan without access to hosts. A host without a report is
unknown, and so is what has another form: it may be from another version, or damaged.

The facts of a host take some hundred kilobytes of memory. :func:`reports_of` yields the
reports one by one, so that a caller who keeps only its own rows needs little memory for
hundreds of hosts.

In the folder, ``HOST.facts.json`` or ``HOST.json`` is the output of ``ovirt-rdma-host
facts -o json``, ``HOST.status.json`` that of ``status -o json``, ``HOST.policy.yaml``
the host's policy. HOST is the host's name or address in the engine.
"""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Optional, Protocol, TypeVar, Union

from ovirt_rdma.engine_sdk_tools.model import (
    FAIL,
    NONE,
    OK,
    UNKNOWN,
    WARN,
    Cell,
    Host,
    listed,
    status_mistake,
    worst_of,
)
from ovirt_rdma.host.daemon.versions import Loaded, Versions
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.facts.model import Facts, FactsProblem, from_json_dict
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.load import NO_FILES, PolicyFiles, is_drop_in
from ovirt_rdma.host.policy.model import Policy, digest
from ovirt_rdma.host.services.enablement import MODE_VDSMD
from ovirt_rdma.host.system.json_codec import (
    Records,
    UnreadableJson,
    WrongRecord,
    json_value,
)
from ovirt_rdma.host.system.safe_file import read_named
from ovirt_rdma.storage.health.state import BROKEN, SLOW, STATES, MountHealth
from ovirt_rdma.storage.health.state import OK as HEALTHY
from ovirt_rdma.storage.paths.state import DOWN, PathState, ServerPaths
from ovirt_rdma.storage.paths.state import STATES as PATH_STATES

# Limit for a host's whole report. The facts of a host with 16 adapters, 128 P_Keys per
# port and 508 virtual functions have 0.8 MB (bench/large_host.py), most have 30 kB.
MOST_BYTES = 4_000_000
# Limit for policy.yaml with its drop-ins. The result of a push has it twice, with up to
# 6 bytes for one, and ssh.sh passes on MOST_SENT.
MOST_POLICY_BYTES = 60_000
POLICY_TOO_LONG_FIX = "shorten it: name exports by globs and networks"
_MOST_SHOWN, _LONGEST_PROBLEM = 200, 4000

_Result = TypeVar("_Result")
_T = TypeVar("_T")
_Odd = TypeVar("_Odd")


@dataclass(frozen=True)
class HostReport:
    """The report of the host with this name. Without ``facts``, ``problem`` says why.
    ``status`` is the document of ``ovirt-rdma-host status -o json``, ``policy_text``
    its /etc/ovirt-rdma/policy.yaml, each None if unknown. ``read_at`` is in seconds
    since 1970.
    """

    host: str
    facts: Optional[Facts] = None
    status: Optional[Mapping[str, Any]] = None
    policy_text: Optional[str] = None
    read_at: Optional[float] = None
    problem: str = ""
    fix: str = ""

    @property
    def policy_digest(self) -> Optional[str]:
        """The digest of the policy that is loaded there, None for none or unknown."""
        digest = status_part(self.status, "policy").get("digest")
        return digest if isinstance(digest, str) else None

    @property
    def drop_ins(self) -> Optional[dict[str, str]]:
        """The drop-ins of its policy; None if it reported none in a valid form."""
        found = status_part(self.status, "policy").get("drop_ins")
        if not isinstance(found, dict):
            return None
        valid = all(is_drop_in(n) and isinstance(t, str) for n, t in found.items())
        return dict(found) if valid else None

    @property
    def policy(self) -> PolicyFiles:
        """Its policy.yaml and drop-ins; without files also if they are unknown."""
        if self.policy_text is None and self.problem:
            return NO_FILES
        return PolicyFiles(self.policy_text, self.drop_ins or {})


@dataclass(frozen=True)
class Pushed:
    """The result of a push: the ``digest`` that the host reports, and ``file_digest``,
    that without its drop-ins. ``problem`` is "" for success.
    """

    host: str
    digest: Optional[str] = None
    file_digest: Optional[str] = None
    problem: str = ""
    fix: str = ""


class Part(NamedTuple):
    """A part of a report as printed, its name in sentences, and a fix for it."""

    content: bytes
    what: str
    fix: str


def made_of(
    host: str, part: Callable[[str], Optional[Part]], read_at: Optional[float]
) -> HostReport:
    """Return the report of ``host`` from the parts facts, status and policy, None for
    none; ``part`` raises Problem. ``problem`` names the first that is missing.
    """
    wrong: list[Problem] = []

    def read(name: str, value_of: Callable[[Part], _Result]) -> Optional[_Result]:
        try:
            found = part(name)
            return None if found is None else value_of(found)
        except Problem as problem:
            wrong.append(problem)
            return None

    report = HostReport(
        host,
        read("facts", _facts),
        read("status", _status),
        read("policy", _policy),
        read_at,
    )
    if long := policy_too_long(report.policy):
        wrong.append(Problem("policy-too-long", f"{host}: {long}", POLICY_TOO_LONG_FIX))
        report = replace(report, policy_text=None)
    if not wrong:
        return report
    sentence, fix = wrong[0].one_line[:_LONGEST_PROBLEM], wrong[0].fix
    return replace(report, problem=sentence, fix=fix[:_LONGEST_PROBLEM])


def _facts(part: Part) -> Facts:
    try:
        return from_json_dict(_json("facts", part), part.what)
    except FactsProblem as problem:
        raise Problem(problem.id, str(problem), part.fix) from None


def _status(part: Part) -> dict[str, Any]:
    data = _json("status", part)
    mistake = status_mistake(data)
    if isinstance(data, dict) and data.get("kind") == "status" and not mistake:
        return data
    raise _no_document("status", part, mistake or "it has another kind")


def _json(kind: str, part: Part) -> object:
    try:
        return json_value(part.content)
    except UnreadableJson as error:
        raise _no_document(kind, part, str(error)) from None


def _no_document(kind: str, part: Part, why: str) -> Problem:
    called = f"'ovirt-rdma-host {kind} -o json'"
    sentence = f"{part.what}: this is not a document of {called}: {why}"
    return Problem("host-answer-invalid", sentence, part.fix)


def _policy(part: Part) -> str:
    try:
        return part.content.decode("utf-8")
    except UnicodeDecodeError:
        why = f"{part.what}: it is not UTF-8 text"
        fix = f"correct or remove {POLICY_YAML} on the host"
        raise Problem("host-policy-not-utf8", why, fix) from None


def policy_too_long(policy: Union[str, PolicyFiles, None]) -> str:
    """Return a sentence if a policy with its drop-ins is too long to send, else "".
    That is checked before any change: a host's own, longer, could not be restored.
    """
    size = (policy if isinstance(policy, PolicyFiles) else PolicyFiles(policy)).size
    if size <= MOST_POLICY_BYTES:
        return ""
    return f"the policy has {size} bytes; at most {MOST_POLICY_BYTES} can be sent"


def bug_report(host: str, error: Exception) -> tuple[str, str]:
    """Return the sentence and the fix for a host whose report makes our own code fail,
    so that the bug is visible and does not affect other hosts.
    """
    message = traceback.format_exception_only(type(error), error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return (
        f"the report of {host} could not be processed, which is a bug of ovirt-rdma: "
        f"{message[:_MOST_SHOWN]}{place}",
        "please report it, with the output of 'ovirt-rdma-host facts -o json' on the "
        "host",
    )


def with_own_bugs_caught(
    report: HostReport, work: Callable[[HostReport], _Result]
) -> _Result:
    """Return ``work`` of one host's report. If that fails because of a bug of ours,
    return ``work`` of a report with that problem. A Problem is raised to the caller.
    """
    try:
        return work(report)
    except Problem:
        raise
    except Exception as error:  # noqa: BLE001  (one host must not end the verb)
        sentence, fix = bug_report(report.host, error)
        return work(HostReport(report.host, problem=sentence, fix=fix))


NO_ACCESS = (
    Sentence("hosts-no-access", "the hosts were not asked: there is no access to them"),
    "give --ssh-key, or --facts-dir with their reports; root on the engine machine "
    "needs neither; a program gives connect an AnsibleHosts",
)


# Called with a host's name as soon as it is done.
HostDone = Callable[[str], None]


class HostAccess(Protocol):
    """Access to hosts. No method raises for one host: its report has the problem."""

    def reports(
        self, hosts: Sequence[Host], done: Optional[HostDone] = None
    ) -> dict[str, HostReport]:
        """Return a report for each host, by its name in the engine."""

    def push_policy(
        self, hosts: Sequence[Host], policy: Union[str, PolicyFiles, None]
    ) -> dict[str, Pushed]:
        """Replace policy.yaml on each host and load it; None removes it. It must not be
        too long (see policy_too_long).

        A text leaves each host its drop-ins; PolicyFiles replace them all.
        """


# Three rounds of Ansible's forks (20), so that few forks are idle at the end.
AT_ONCE = 60


def reports_of(
    hosts: Sequence[Host],
    access: HostAccess,
    done: Optional[HostDone] = None,
    at_once: int = AT_ONCE,
) -> Iterator[tuple[Host, HostReport]]:
    """Yield each host with its report, in the order of ``hosts``."""
    for start in range(0, len(hosts), at_once):
        batch = hosts[start : start + at_once]
        reports = access.reports(batch, done)
        for host in batch:
            report = reports.pop(host.name, None)
            if report is None:
                sentence = f"no answer from {host.name}"
                report = HostReport(host.name, problem=sentence)
            yield host, report


# Determine the policy in force on a host from its report.

# Policies to keep parsed: a fleet has only a few different ones.
_KEPT = 64


@dataclass(frozen=True)
class PolicyInForce:
    """``policy`` in force: empty if the add-on does not decide there, None if unknown,
    because of ``reason``. ``enabled`` is the mode, None for not enabled or unknown.
    """

    policy: Optional[Policy]
    reason: str = ""
    enabled: Optional[str] = None


def policy_of(report: HostReport) -> PolicyInForce:
    """Return the policy that the host follows at its next NFS mount."""
    if report.status is None:
        why = f": {report.problem}" if report.facts and report.problem else ""
        return PolicyInForce(None, f"the host did not report its status{why}")
    enabled = status_part(report.status, "enabled")
    if not enabled:
        return PolicyInForce(
            None, "its status does not show whether the add-on is enabled"
        )
    mode = enabled.get("mode")
    if mode != MODE_VDSMD:
        return PolicyInForce(Policy(), "stock VDSM mounts: the add-on is not enabled")
    policy, reason = loaded_policy(report)
    return PolicyInForce(policy, reason, mode)


def loaded_policy(report: HostReport) -> tuple[Optional[Policy], str]:
    """Return the policy that is loaded on the host, whether or not the add-on is
    enabled: the empty one if there is none, None if it is unknown. The text says why.
    """
    loaded = status_part(report.status, "policy")
    reason = ""
    if report.status is None:
        reason = report.problem or "the host did not report its status"
    elif report.drop_ins is None:
        reason = "its status does not list the drop-ins of its policy"
    elif loaded.get("problem"):
        reason = "its loaded policy is invalid"
    elif not loaded.get("loaded"):
        return Policy(), "no policy is loaded on the host"
    elif report.policy == NO_FILES:
        reason = report.problem or "its report has no policy.yaml"
    if reason:
        return None, reason
    policy, its_digest, mistakes = _parsed(report.policy)
    if policy is None:
        return None, f"its policy.yaml is invalid: {mistakes}"
    if its_digest != loaded.get("digest"):
        return None, "its loaded policy is not the one in its policy.yaml"
    return policy, ""


def digest_without_drop_ins(report: HostReport) -> Optional[str]:
    """Return the digest of the loaded policy without drop-ins, which belong to the
    host's domains; None for no policy or unknown.
    """
    loaded = report.policy_digest
    if not report.drop_ins or _parsed(report.policy)[1] != loaded:
        return loaded
    return _parsed(PolicyFiles(report.policy_text))[1]


def digest_of(files: PolicyFiles) -> str:
    """Return the digest that a host with ``files`` reports; "" if they are invalid."""
    return _parsed(files)[1]


def status_part(status: Any, name: str) -> dict[str, Any]:
    """Return a part of a status document, empty if it is missing or not an object."""
    value = status.get(name) if status else None
    return value if isinstance(value, dict) else {}


def versions_of(report: HostReport) -> Optional[Versions]:
    """Return the versions that the host reported; None if not in a known form."""
    return _record(Versions, status_part(report.status, "versions"), None)


def _record(cls: type[_T], data: object, odd: _Odd) -> Union[_T, _Odd]:
    """Return ``data`` of a host as a ``cls``; ``odd`` if it has another form."""
    try:
        return _REPORTED.read(cls, data)
    except WrongRecord:
        return odd


_STATES = {MountHealth: STATES, PathState: PATH_STATES}


def _wrong_value(cls: Any, values: Mapping[str, Any]) -> tuple[str, str]:
    if cls in _STATES and values["state"] not in _STATES[cls]:
        return "state", "is unknown"
    most = _MOST_SHOWN if cls in (Versions, Loaded) else _LONGEST
    long = (k for k, v in values.items() if isinstance(v, str) and len(v) > most)
    return next(((key, "is too long") for key in long), ("", ""))


# A newer version of the add-on may add keys, and an older one has not all.
_REPORTED = Records("the status", _wrong_value, any_keys=True)


@functools.lru_cache(_KEPT)
def _parsed(files: PolicyFiles) -> tuple[Optional[Policy], str, str]:
    """Return the policy and its digest, or None and the mistakes."""
    try:
        policy = files.parsed("policy.yaml").policy
    except PolicyProblem as problem:
        return None, "", problem.one_line
    except Exception as error:  # noqa: BLE001  (a text that our parser does not survive)
        return None, "", bug_report("the host", error)[0]
    return policy, digest(policy), ""


def not_reported(report: HostReport) -> Cell:
    """Return the cell for data that the host did not report, with the reason."""
    why = report.problem or "the host did not report its status"
    return Cell(UNKNOWN, "unknown", why, report.fix)


# Read the health of a host's mounts from its report, and make cells of it.

_MOST_MOUNTS = 3
_LONGEST = 500
_ODD_MOUNT = "the host reports its health in a form that is unknown here"
_NOT_WATCHED = (
    "nobody watches its mounts: its policy has no health_interval, or "
    "ovirt-rdmad.service is not running"
)


def health_of(report: HostReport) -> Optional[tuple[MountHealth, ...]]:
    """Return the health of the host's mounts; None if nobody watches them."""
    mounts = status_part(report.status, "health").get("mounts")
    if not isinstance(mounts, list):
        return None
    return tuple(map(_read_mount, mounts))


def _read_mount(data: Any) -> MountHealth:
    its = data if isinstance(data, dict) else {}
    cut = {k: v[:_LONGEST] if isinstance(v, str) else v for k, v in its.items()}
    odd = MountHealth(
        str(cut.get("export")),
        str(cut.get("mountpoint")),
        None,
        None,
        "unknown",
        sentence=_ODD_MOUNT,
    )
    return _record(MountHealth, cut, odd)


def health_cell(report: HostReport) -> Cell:
    """Return the cell of ``hosts check`` for the health of all mounts of a host."""
    if report.status is None:
        return not_reported(report)
    found = health_of(report)
    if found is None:
        return Cell(NONE, "-", _NOT_WATCHED)
    for states, verdict in ((BROKEN, FAIL), ((SLOW,), WARN), (("unknown",), UNKNOWN)):
        bad = [one for one in found if one.state in states]
        if bad:
            sentence = listed([one.shown for one in bad], _MOST_MOUNTS, "; ")
            fix = bad[0].fix or "on the host: ovirt-rdma-host nfs health"
            return Cell(verdict, f"{len(bad)} {bad[0].state}", sentence, fix)
    return Cell(OK, "ok", f"NFS mounts that answer: {len(found)}")


def with_health(cell: Cell, health: Optional[MountHealth]) -> Cell:
    """Return a domain's cell on a host, changed if its mount is not healthy there."""
    if health is None or health.state == HEALTHY:
        return cell
    sentence = f"{cell.sentence}; {health.shown}" if cell.sentence else health.shown
    if cell.verdict != OK and health.state not in BROKEN:
        return replace(cell, sentence=sentence)
    return replace(
        cell,
        verdict={SLOW: WARN, **dict.fromkeys(BROKEN, FAIL)}.get(health.state, UNKNOWN),
        text=f"{cell.text}, {health.state}",
        sentence=sentence,
        fix=health.fix or (cell.fix if health.state in BROKEN else ""),
    )


# The same for the network paths to servers.

_ODD_PATHS = ServerPaths(
    (), (), problem="the host reports its paths in a form that is unknown here"
)


def paths_of(report: HostReport) -> tuple[ServerPaths, ...]:
    """Return the paths to servers that the host reported; none if it keeps none."""
    servers = status_part(report.status, "paths").get("servers")
    found = servers if isinstance(servers, list) else []
    return tuple(_record(ServerPaths, one, _ODD_PATHS) for one in found)


def _paths_verdict(server: ServerPaths) -> str:
    if server.is_whole:
        return OK
    down = [path.state == DOWN for path in server.paths]
    return FAIL if down and all(down) else WARN


def paths_cell(report: HostReport) -> Cell:
    """Return the cell of ``hosts check`` for the network paths of a host."""
    if report.status is None:
        return not_reported(report)
    found = paths_of(report)
    if not found:
        return Cell(NONE, "-", "the host keeps no state of network paths")
    worst = worst_of(map(_paths_verdict, found))
    text = f"{sum(one.up for one in found)} of {sum(len(one.paths) for one in found)}"
    bad = [one for one in found if _paths_verdict(one) == worst != OK]
    sentence = listed([_paths_clause(one) for one in bad], _MOST_MOUNTS, "; ")
    return Cell(worst, text, sentence or "all paths are up", _paths_fix(bad))


def with_paths(cell: Cell, server: Optional[ServerPaths]) -> Cell:
    """Return a domain's cell, changed if a path of the host is not as it should be."""
    if server is None or server.is_whole:
        return cell
    cell = replace(cell, sentence=f"{cell.sentence}; {_paths_clause(server)}")
    if cell.verdict not in (OK, WARN):
        return cell
    return replace(
        cell,
        verdict=_paths_verdict(server),
        text=f"{cell.text}, {server.shown}",
        fix=cell.fix or _paths_fix([server]),
    )


def _paths_clause(server: ServerPaths) -> str:
    clause = "; ".join(text for text, _ in server.flaws)
    return f"{server.server}: {clause}" if server.server else clause


def _paths_fix(servers: Iterable[ServerPaths]) -> str:
    fixes = [fix for server in servers for _, fix in server.flaws]
    own = "on the host: ovirt-rdma-host nfs paths"
    return next(filter(None, fixes), own) if fixes else ""


# Say which of our hooks the engine lists for a host.

NAME = "50_ovirt_rdma"
POINTS = (
    "after_get_caps",
    "after_network_setup",
    "before_network_setup",
    "before_vdsm_start",
)


def hooks_cell(host: Host) -> Cell:
    """Return whether the engine's list of hooks, of its last read, has all ours."""
    if host.hooks is None:
        return Cell(UNKNOWN, "unknown", "the hooks were not read", source="engine")
    present = {hook.event for hook in host.hooks if hook.name == NAME}
    missing = [point for point in POINTS if point not in present]
    if not missing:
        return Cell(OK, "ok", "the engine lists all hooks of ovirt-rdma", "", "engine")
    every = len(missing) == len(POINTS)
    return Cell(
        FAIL,
        "missing" if every else "incomplete",
        "the engine lists no hook of ovirt-rdma "
        + ("for the host" if every else f"at {', '.join(missing)}"),
        f"{'' if every else 're'}install ovirt-rdma-host on the host; if it was "
        "installed just now, refresh the host's capabilities first",
        "engine",
    )


# The ends of names of files, the longer first, and what is in them.
_ENDS = {
    ".facts.json": "facts",
    ".status.json": "status",
    ".policy.yaml": "policy",
    ".json": "facts",
}


class FolderProblem(Problem):
    """The folder cannot be read, or a change was requested."""


class DumpFolder:
    """A HostAccess that only reads. Raises FolderProblem if it cannot read ``path``."""

    def __init__(self, path: Union[str, Path]) -> None:
        self._path = Path(path)
        self._files = self._listed()

    def reports(
        self, hosts: Sequence[Host], done: Optional[HostDone] = None
    ) -> dict[str, HostReport]:
        """Return a report for each host; one with a problem if the folder has none."""
        reports = {}
        for host in hosts:
            try:
                reports[host.name] = self._report(host)
            except Exception as error:  # noqa: BLE001  (it concerns only this host)
                sentence, fix = bug_report(host.name, error)
                reports[host.name] = HostReport(host.name, problem=sentence, fix=fix)
            if done is not None:
                done(host.name)
        return reports

    def push_policy(
        self, hosts: Sequence[Host], policy: Union[str, PolicyFiles, None]
    ) -> dict[str, Pushed]:
        """Raise FolderProblem: a folder of dumps cannot change hosts."""
        raise FolderProblem(
            "facts-dir-needs-dry-run",
            f"{self._path} is a folder of dumps, which cannot change hosts",
            "leave out --facts-dir, or plan with --dry-run",
        )

    def _listed(self) -> dict[str, dict[str, Path]]:
        """Return the files of each host by what is in them."""
        files: dict[str, dict[str, Path]] = {}
        try:
            paths = sorted(self._path.iterdir())
        except OSError as error:
            raise FolderProblem(
                "facts-dir-unreadable",
                f"{self._path}: {error.strerror}",
                "give a folder with dumps: HOST.facts.json for each host",
            ) from error
        for path in paths:
            end = next((end for end in _ENDS if path.name.endswith(end)), "")
            host = path.name[: -len(end)] if end else ""
            # Path.is_file raises for some links.
            if host and os.path.isfile(path):  # noqa: PTH113
                # HOST.facts.json comes before HOST.json.
                files.setdefault(host, {}).setdefault(_ENDS[end], path)
        return files

    def _report(self, host: Host) -> HostReport:
        # The name goes before the address.
        files = {**self._files.get(host.address, {}), **self._files.get(host.name, {})}

        def part(name: str) -> Optional[Part]:
            path = files.get(name)
            fix = (
                f"on the host: ovirt-rdma-host {name} -o json > {host.name}.{name}.json"
            )
            if path is None and name == "facts":
                why = f"{self._path} has no facts of {host.name}"
                raise FolderProblem("facts-missing", why, fix)
            if path is None:
                return None
            try:
                return Part(read_named(path, MOST_BYTES), str(path), fix)
            except OSError as error:
                why = f"{path}: {error.strerror}"
                raise FolderProblem("dump-unreadable", why, fix) from None

        facts = files.get("facts")
        return made_of(host.name, part, facts.stat().st_mtime if facts else None)
