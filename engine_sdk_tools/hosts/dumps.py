# SPDX-License-Identifier: GPL-2.0-or-later
"""Read reports of hosts from a folder of dumps, to plan without access to the hosts.

``HOST.facts.json`` or ``HOST.json`` is the output of ``ovirt-rdma-host facts -o json``,
``HOST.status.json`` that of ``status -o json``, ``HOST.policy.yaml`` the host's policy,
``HOST.history.json`` the output of ``history -o json``.
HOST is the host's name or address in the engine; facts with another file name are
matched by the hostname in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from ovirt_rdma.engine_sdk_tools.hosts.report import (
    MOST_BYTES,
    HostDone,
    HostReport,
    Pushed,
    bug_report,
    policy_too_long,
)
from ovirt_rdma.engine_sdk_tools.model import Host, status_mistake
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.dump import FactsProblem, load
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.drop_ins import PolicyFiles
from ovirt_rdma.host.system.json_document import UnreadableJson, read_json
from ovirt_rdma.host.system.safe_file import read_file

FACTS = ".facts.json"
STATUS = ".status.json"
POLICY = ".policy.yaml"
HISTORY = ".history.json"
PLAIN = ".json"
_KINDS = (FACTS, STATUS, POLICY, HISTORY, PLAIN)  # the longer suffix first

_FIX = "on the host: ovirt-rdma-host facts -o json > {host}.facts.json"


class FolderProblem(Problem):
    """The folder cannot be read, or a change was requested."""


@dataclass
class _Files:
    """One host's files by suffix."""

    by_kind: dict[str, Path] = field(default_factory=dict)

    @property
    def facts(self) -> Optional[Path]:
        return self.by_kind.get(FACTS) or self.by_kind.get(PLAIN)


class DumpFolder:
    """A HostAccess that only reads; ``keep`` can remove unused parts of facts.

    Raises FolderProblem if the folder cannot be read.
    """

    def __init__(
        self,
        path: Union[str, Path],
        keep: Callable[[Facts], Facts] = lambda facts: facts,
    ) -> None:
        self._path = Path(path)
        self._keep = keep
        self._files = self._listed()
        self._hostnames: Optional[dict[str, list[str]]] = None

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
        self,
        hosts: Sequence[Host],
        policy: Union[str, PolicyFiles, None],
        done: Optional[HostDone] = None,
    ) -> dict[str, Pushed]:
        """Raise FolderProblem: a folder of dumps cannot change hosts."""
        raise FolderProblem(
            "facts-dir-needs-dry-run",
            f"{self._path} is a folder of dumps, which cannot change hosts",
            "leave out --facts-dir, or plan with --dry-run",
        )

    def _listed(self) -> dict[str, _Files]:
        files: dict[str, _Files] = {}
        try:
            paths = sorted(self._path.iterdir())
        except OSError as error:
            raise FolderProblem(
                "facts-dir-unreadable",
                f"{self._path}: {error.strerror}",
                "give a folder with dumps: HOST.facts.json for each host",
            ) from error
        for path in paths:
            kind = next((end for end in _KINDS if path.name.endswith(end)), None)
            host = path.name[: -len(kind)] if kind else ""
            if kind and host and path.is_file():
                files.setdefault(host, _Files()).by_kind[kind] = path
        return files

    def _report(self, host: Host) -> HostReport:
        names, problem = self._names_of(host)
        if problem:
            return HostReport(host.name, problem=problem, fix="keep one of them")
        files = _Files()
        for name in names:
            for kind, path in self._files[name].by_kind.items():
                files.by_kind.setdefault(kind, path)
        if files.facts is None:
            return HostReport(
                host.name,
                problem=f"{self._path} has no facts of {host.name}",
                fix=_FIX.format(host=host.name),
            )
        too_long = _too_long(files.facts)
        if too_long:
            return HostReport(host.name, problem=too_long)
        try:
            facts = self._keep(load(files.facts))
            read_at = files.facts.stat().st_mtime
        except FactsProblem as wrong:
            return HostReport(host.name, problem=wrong.one_line, fix=wrong.fix)
        except OSError as error:
            return HostReport(host.name, problem=f"{files.facts}: {error.strerror}")
        problems: list[str] = []
        status = _document(
            files.by_kind.get(STATUS), "status", problems, status_mistake
        )
        text = _text(files.by_kind.get(POLICY), problems)
        history = _document(files.by_kind.get(HISTORY), "history", problems)
        unread = "; ".join(problems)
        return HostReport(
            host.name, facts, status, text, read_at, unread, history=history
        )

    def _names_of(self, host: Host) -> tuple[list[str], str]:
        """Return the names of the host's files, best first, or why that is unknown."""
        names = [
            n for n in dict.fromkeys((host.name, host.address)) if n in self._files
        ]
        if any(self._files[name].facts for name in names):
            return names, ""
        by_hostname = self._by_hostname()
        for wanted in (host.name, host.address, _short(host.name)):
            matching = by_hostname.get(wanted, [])
            if len(matching) > 1:
                paths = " and ".join(str(self._files[name].facts) for name in matching)
                return [], f"several files are facts of {wanted}: {paths}"
            if matching:
                return [*names, *matching], ""
        return names, ""

    def _by_hostname(self) -> dict[str, list[str]]:
        """Return the names of facts files by the hostname in them, long and short."""
        if self._hostnames is None:
            self._hostnames = {}
            for name, files in self._files.items():
                hostname = _hostname(files.facts) if files.facts else None
                for text in {hostname, _short(hostname or "")} - {None, ""}:
                    self._hostnames.setdefault(str(text), []).append(name)
        return self._hostnames


def _too_long(path: Path) -> str:
    """Return a sentence if a file is too large for a dump, else "". A missing file is
    left to its reader.
    """
    try:
        size = path.stat().st_size
    except OSError:
        return ""
    return f"{path} has {size} bytes, more than any dump" if size > MOST_BYTES else ""


def _short(name: str) -> str:
    first = name.partition(".")[0]
    # An IP address has no short form.
    return "" if first.isdigit() or ":" in first else first


def _hostname(path: Path) -> Optional[str]:
    """Return the hostname in a facts file; None if it cannot be read."""
    if _too_long(path):
        return None
    try:
        data = read_json(path)
    except UnreadableJson:
        return None
    name = data.get("hostname") if isinstance(data, dict) else None
    return name if isinstance(name, str) else None


def _document(
    path: Optional[Path],
    kind: str,
    problems: list[str],
    mistake_in: Callable[[object], Optional[str]] = lambda data: None,
) -> Optional[dict[str, Any]]:
    """Return the document that the verb ``kind`` printed; None if there is none, or
    with a sentence in ``problems``. ``mistake_in`` returns the first mistake in it.
    """
    if path is None:
        return None
    try:
        too_long = _too_long(path)
        data = None if too_long else read_json(path)
    except UnreadableJson as error:
        too_long = f"{path}: {error}"
    if too_long:
        problems.append(too_long)
        return None
    mistake = mistake_in(data)
    if mistake or not isinstance(data, dict) or data.get("kind") != kind:
        wrong = f"{path} is not a document of 'ovirt-rdma-host {kind} -o json'"
        problems.append(f"{wrong}: {mistake}" if mistake else wrong)
        return None
    return data


def _text(path: Optional[Path], problems: list[str]) -> Optional[str]:
    if path is None:
        return None
    try:
        wrong = _too_long(path)
        text = "" if wrong else read_file(path, MOST_BYTES).decode("utf-8")
        if not wrong and not policy_too_long(text):
            return text
        problems.append(wrong or f"{path}: {policy_too_long(text)}")
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
    except UnicodeDecodeError:
        problems.append(f"{path} is not UTF-8 text")
    return None
