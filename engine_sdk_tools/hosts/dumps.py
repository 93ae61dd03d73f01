# SPDX-License-Identifier: GPL-2.0-or-later
"""Read reports of hosts from a folder of dumps, to plan without access to the hosts.

``HOST.facts.json`` or ``HOST.json`` is the output of ``ovirt-rdma-host facts -o json``,
``HOST.status.json`` that of ``status -o json``, ``HOST.policy.yaml`` the host's policy,
``HOST.history.json`` the output of ``history -o json``.
HOST is the host's name or address in the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from ovirt_rdma.host.facts.model import FactsProblem, load
from ovirt_rdma.host.policy.load import PolicyFiles
from ovirt_rdma.host.system.json_codec import UnreadableJson, read_json
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

    def _listed(self) -> dict[str, dict[str, Path]]:
        """Return the files of each host by their ends."""
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
            kind = next((end for end in _KINDS if path.name.endswith(end)), None)
            host = path.name[: -len(kind)] if kind else ""
            if kind and host and path.is_file():
                files.setdefault(host, {})[kind] = path
        return files

    def _report(self, host: Host) -> HostReport:
        # The name goes before the address.
        files = {
            **self._files.get(host.address, {}),
            **self._files.get(host.name, {}),
        }
        facts_file = files.get(FACTS) or files.get(PLAIN)
        if facts_file is None:
            return HostReport(
                host.name,
                problem=f"{self._path} has no facts of {host.name}",
                fix=_FIX.format(host=host.name),
            )
        too_long = _too_long(facts_file)
        if too_long:
            return HostReport(host.name, problem=too_long)
        try:
            facts = load(facts_file)
            read_at = facts_file.stat().st_mtime
        except FactsProblem as wrong:
            return HostReport(host.name, problem=wrong.one_line, fix=wrong.fix)
        except OSError as error:
            return HostReport(host.name, problem=f"{facts_file}: {error.strerror}")
        problems: list[str] = []
        status = _document(files.get(STATUS), "status", problems, status_mistake)
        text = _text(files.get(POLICY), problems)
        history = _document(files.get(HISTORY), "history", problems)
        unread = "; ".join(problems)
        return HostReport(
            host.name, facts, status, text, read_at, unread, history=history
        )


def _too_long(path: Path) -> str:
    """Return a sentence if a file is too large for a dump, else "". A missing file is
    left to its reader.
    """
    try:
        size = path.stat().st_size
    except OSError:
        return ""
    return f"{path} has {size} bytes, more than any dump" if size > MOST_BYTES else ""


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
