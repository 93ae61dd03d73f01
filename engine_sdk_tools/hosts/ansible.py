# SPDX-License-Identifier: GPL-2.0-or-later
"""Access hypervisors over SSH with Ansible: read their reports, push their policy.

This is a :class:`~ovirt_rdma.engine_sdk_tools.hosts.report.HostAccess`. A host must
present the host key that the engine knows, or no connection is made. A report says what
is missing on its host.
"""

from __future__ import annotations

import base64
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar, Union

from ovirt_rdma.engine_sdk_tools.hosts import ansible_run, known_hosts
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import (
    FAILED,
    MOST_SENT,
    OK,
    PLAYBOOKS,
    AnsibleRun,
    HostOutcome,
)
from ovirt_rdma.engine_sdk_tools.hosts.answers import (
    Failure,
    explain_failure,
    pushed_of,
    read_answers,
    report_of,
)
from ovirt_rdma.engine_sdk_tools.hosts.collection import trusted_collections
from ovirt_rdma.engine_sdk_tools.hosts.inventory import (
    Access,
    inventory_of,
    is_address,
    read_inventory,
)
from ovirt_rdma.engine_sdk_tools.hosts.known_hosts import (
    HostKey,
    known_hosts_text,
    known_keys,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    POLICY_TOO_LONG_FIX,
    HostDone,
    HostReport,
    Pushed,
    bug_report,
    policy_too_long,
)
from ovirt_rdma.engine_sdk_tools.hosts.role import Prepared, judged, with_event
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.drop_ins import PolicyFiles

# A host reads its facts in a few seconds; its tools have limits of their own.
COMMAND_LIMIT_S = 60
HOST_LIMIT_S = 180.0
# The role installs packages: from a slow mirror that takes minutes.
PREPARING_LIMIT_S = 1800.0

# The outcome of a host: the script's stdout, or why there is none.
_Outcome = tuple[str, Optional[Failure]]
RunEvents = Callable[[AnsibleRun, str], Iterator[dict[str, Any]]]
_Answer = TypeVar("_Answer", HostReport, Pushed)


class AnsibleHosts:
    """Hosts over SSH; ``forks`` is the number of hosts to ask in parallel. Raises
    Problem if no host can be asked: no Ansible, or an inventory that cannot be read.
    ``history``: reports have the runs that changed the host, too.

    ``run``, ``scan``, ``run_events`` and ``clock`` are for tests.
    """

    def __init__(
        self,
        access: Optional[Access] = None,
        *,
        forks: int = 20,
        host_limit_s: float = HOST_LIMIT_S,
        history: bool = False,
        run: Optional[Callable[[AnsibleRun, str], Iterator[HostOutcome]]] = None,
        scan: Optional[known_hosts.Scan] = None,
        run_events: Optional[RunEvents] = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._access = access or Access()
        self._forks = forks
        self._host_limit_s = host_limit_s
        self._history = history
        self._run = run or ansible_run.run_order
        self._scan = scan
        self._run_events = run_events or ansible_run.run_events
        self._clock = clock
        self._variables: Optional[Mapping[str, Mapping[str, Any]]] = None

    def reports(
        self, hosts: Sequence[Host], done: Optional[HostDone] = None
    ) -> dict[str, HostReport]:
        """Return a report for each host, by the engine's name, in their order."""

        def read(name: str, text: str) -> HostReport:
            return report_of(name, read_answers(text), self._clock())

        script = _script("report.sh", {"HISTORY": "yes"} if self._history else None)
        return self._answers(hosts, script, HostReport, read, done)

    def push_policy(
        self,
        hosts: Sequence[Host],
        policy: Union[str, PolicyFiles, None],
        done: Optional[HostDone] = None,
    ) -> dict[str, Pushed]:
        """Replace policy.yaml on each host, and load it; with PolicyFiles also all
        drop-ins, see HostAccess.

        No file loads the empty policy and removes the file. If the host's check or load
        fails, its earlier file is restored. A text that is too long is sent to no host,
        and is a ``problem`` of each. A host whose connection was lost has a
        ``problem``; then ``before`` is None even if there was a file.
        """
        long = policy_too_long(policy)
        if long:
            return {
                host.name: Pushed(host.name, problem=long, fix=POLICY_TOO_LONG_FIX)
                for host in hosts
            }
        drop_ins = "keep"
        if isinstance(policy, PolicyFiles):
            lines = (f"{name} {_packed(t)}" for name, t in policy.drop_ins.items())
            policy, drop_ins = policy.file, "\n".join(lines)
        values = {
            "NEW": _packed(policy),
            "KEEP": "no" if policy is None else "yes",
            "DROP_INS": drop_ins,
        }

        def read(name: str, answer: str) -> Pushed:
            return pushed_of(name, read_answers(answer))

        return self._answers(hosts, _script("policy.sh", values), Pushed, read, done)

    def prepare(
        self,
        hosts: Sequence[Host],
        variables: Mapping[str, Any],
        done: Optional[HostDone] = None,
    ) -> dict[str, Prepared]:
        """Run the role on each host; return the results by the engine's name.

        ``variables`` are for the role. A host that cannot be asked has a ``problem``.
        """
        results = {host.name: Prepared(host.name) for host in hosts}
        for host, prepared in self._prepared(hosts, variables):
            results[host.name] = prepared
            if done:
                done(host.name)
        return results

    def _prepared(
        self, hosts: Sequence[Host], variables: Mapping[str, Any]
    ) -> Iterator[tuple[Host, Prepared]]:
        asked, keys, failures = self._askable(hosts)
        for host, failure in failures:
            sentence, fix = failure
            yield host, Prepared(host.name, problem=sentence, fix=fix, unreachable=True)
        aliases = {f"host-{number}": host for number, host in enumerate(asked)}
        if not aliases:
            return
        results = {alias: Prepared(host.name) for alias, host in aliases.items()}
        collections = tuple(map(str, trusted_collections()))
        with ansible_run.private_folder() as folder:
            order = replace(
                self._order("", aliases, keys, folder),
                limit_s=PREPARING_LIMIT_S,
                playbook="prepare_hosts.yml",
                variables=variables,
                collections=collections,
            )
            for event in self._run_events(order, folder):
                alias = str(event["event_data"]["host"])
                if alias in results:
                    results[alias] = with_event(results[alias], event)
        for alias, host in aliases.items():
            result = judged(results[alias])
            if result.unreachable:
                failure = explain_failure(
                    host, result.problem, key_of_engine=host.name in keys
                )
                result = replace(result, problem=failure.sentence, fix=failure.fix)
            yield host, result

    def _answers(
        self,
        hosts: Sequence[Host],
        script: str,
        kind: type[_Answer],
        read: Callable[[str, str], _Answer],
        done: Optional[HostDone],
    ) -> dict[str, _Answer]:
        """Return each host's answer to ``script``, parsed by ``read``."""

        def answer(host: Host, text: str, failure: Optional[Failure]) -> _Answer:
            if failure is None:
                try:
                    return read(host.name, text)
                except Exception as error:  # noqa: BLE001  (it concerns only this host)
                    failure = Failure(*bug_report(host.name, error))
            return kind(host.name, problem=failure.sentence, fix=failure.fix)

        answers = {}
        for host, (text, failure) in self._ask(hosts, script):
            answers[host.name] = answer(host, text, failure)
            if done:
                done(host.name)
        return {host.name: answers[host.name] for host in hosts}

    def _ask(
        self, hosts: Sequence[Host], script: str
    ) -> Iterator[tuple[Host, _Outcome]]:
        """Yield each host once with its outcome, as soon as it is known."""
        asked, keys_by_name, failures = self._askable(hosts)
        for host, failure in failures:
            yield host, ("", failure)
        # Ansible gets an alias: a host's name in the engine may be any text.
        waiting = {f"host-{number}": host for number, host in enumerate(asked)}
        if not waiting:
            return
        with ansible_run.private_folder() as folder:
            order = self._order(script, waiting, keys_by_name, folder)
            for alias, kind, text in self._run(order, folder):
                if alias not in waiting:
                    continue
                host = waiting.pop(alias)
                by_engine = host.name in keys_by_name
                try:
                    outcome = _outcome(host, kind, text, by_engine)
                except Exception as error:  # noqa: BLE001  (it concerns only this host)
                    outcome = "", Failure(*bug_report(host.name, error))
                yield host, outcome
        for host in waiting.values():
            yield host, ("", explain_failure(host, "no answer"))

    def _askable(
        self, hosts: Sequence[Host]
    ) -> tuple[list[Host], Mapping[str, HostKey], list[tuple[Host, Failure]]]:
        """Return the hosts that can be asked, their keys by name, and why others cannot
        be asked.
        """
        asked = [host for host in hosts if is_address(host.address)]
        failures = [(host, _odd_address(host)) for host in hosts if host not in asked]
        if not asked:
            return asked, {}, failures
        # First, because this may fail for all of them.
        self._operators_variables()
        known = known_keys(asked, self._scan)
        for host in asked:
            if host.name in known.problems:
                failures.append((host, Failure(*known.problems[host.name])))
        rest = [host for host in asked if host.name not in known.problems]
        return rest, known.keys, failures

    def _order(
        self,
        script: str,
        aliases: Mapping[str, Host],
        keys_by_name: Mapping[str, HostKey],
        folder: str,
    ) -> AnsibleRun:
        keys = {
            alias: keys_by_name[host.name]
            for alias, host in aliases.items()
            if host.name in keys_by_name
        }
        variables = self._operators_variables()
        file = str(Path(folder) / "known_hosts")
        return AnsibleRun(
            script,
            inventory_of(aliases, keys, self._access, file, variables),
            {"known_hosts": known_hosts_text(keys)},
            self._forks,
            self._host_limit_s,
        )

    def _operators_variables(self) -> Mapping[str, Mapping[str, Any]]:
        if self._variables is None:
            path = self._access.inventory
            self._variables = read_inventory(path) if path else {}
        return self._variables


def _outcome(host: Host, kind: str, text: str, by_engine: bool) -> _Outcome:
    if len(text) >= MOST_SENT:
        return "", Failure(
            f"{host.name} sent more than {MOST_SENT // 1_000_000} MB",
            f"run it by hand and see what it prints: ssh {host.address} "
            "ovirt-rdma-host facts -o json",
        )
    # A script that was killed may have sent answers before.
    if kind == OK or (kind == FAILED and read_answers(text)):
        return text, None
    return "", explain_failure(host, text, key_of_engine=by_engine)


def _script(name: str, more: Optional[Mapping[str, str]] = None) -> str:
    values = {"LIMIT_S": str(COMMAND_LIMIT_S), "POLICY": POLICY_YAML, **(more or {})}
    lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    parts = [(PLAYBOOKS / part).read_text("utf-8") for part in ("tell.sh", name)]
    return "\n".join([*lines, *parts])


def _packed(text: Optional[str]) -> str:
    return base64.b64encode((text or "").encode("utf-8")).decode("ascii")


def _odd_address(host: Host) -> Failure:
    return Failure(
        f"the address of {host.name} is neither a name nor an IP address: "
        f"{host.address!a}",
        "correct it in the engine (Edit Host, Hostname)",
    )
