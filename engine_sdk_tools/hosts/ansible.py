# SPDX-License-Identifier: GPL-2.0-or-later
"""Access hypervisors over SSH with Ansible: read their reports, push their policy.

A report needs no Python on the host: each command of a script in ``playbooks/`` prints
one line, a mark, its name, its exit status, its stdout and stderr (gzip, base64;
``tell.sh``). Other output is ignored. A policy is pushed by the module of our
collection. If a host could not be asked, the messages of OpenSSH (sshconnect.c, ssh.c),
sudo and Ansible are replaced by a sentence with a fix; these messages are never
translated.

This is a :class:`~ovirt_rdma.engine_sdk_tools.hosts.report.HostAccess`. A host must
present the host key that the engine knows, or no connection is made. A report says what
is missing on its host.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

from ovirt_rdma.engine_sdk_tools.hosts import ansible_run
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import (
    FAILED,
    MOST_SENT,
    OK,
    PLAYBOOKS,
    UNREACHABLE,
    AnsibleRun,
    HostOutcome,
    trusted_collections,
)
from ovirt_rdma.engine_sdk_tools.hosts.inventory import (
    Access,
    Failure,
    Prepared,
    inventory_of,
    judged,
    known_hosts_text,
    read_inventory,
    split_fix,
    why_not_asked,
    with_outcome,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    MOST_BYTES,
    POLICY_TOO_LONG_FIX,
    HostDone,
    HostReport,
    Part,
    Pushed,
    bug_report,
    made_of,
    policy_too_long,
)
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.load import PolicyFiles

# A host may print anything: accept at most three digits as an exit status.
_LINE = re.compile(
    r"^ovirt-rdma-told (\S+) (\d{1,3}) (\S+) (\S+)\r?$", re.MULTILINE | re.ASCII
)
# tell.sh sends this many bytes of stderr; a sentence has at most this many characters.
_MOST_SHOWN = 4000
# Exit statuses of timeout(1): the timeout has ended; the command does not exist.
_TIMED_OUT = (124, 137)
_NO_COMMAND = 127
# No exit status of a process.
_TOO_MUCH = 1000

_SAME_VERSION = "install the same version of ovirt-rdma on the host and here"
# What a host's answer is asked for by, by its name.
_STEPS = {
    **{n: f"ovirt-rdma-host {n}" for n in ("facts", "status")},
    "policy": f"reading {POLICY_YAML}",
}


class Answer(NamedTuple):
    """The answer of one command: exit status, stdout, and the end of its stderr."""

    status: int
    out: bytes
    err: str


def read_answers(text: str) -> dict[str, Answer]:
    """Return the commands' answers by name; of several with one name, the last.

    Lines that are cut off or damaged, or have a name that no script uses, are ignored.
    An answer with which all would have more than MOST_BYTES unpacked has the status
    _TOO_MUCH, and no output.
    """
    lines = {name: rest for name, *rest in _LINE.findall(text) if name in _STEPS}
    answers = {}
    left = MOST_BYTES
    for name, (status, packed_out, packed_err) in lines.items():
        out = _unpacked(packed_out, left)
        err = _unpacked(packed_err, left)
        if out is None or err is None:
            continue
        if len(out) + len(err) > left:
            answers[name] = Answer(_TOO_MUCH, b"", "")
        else:
            left -= len(out) + len(err)
            last = err[-_MOST_SHOWN:].decode("utf-8", "replace")
            answers[name] = Answer(int(status), out, last)
    return answers


def report_of(host: str, told: Mapping[str, Answer], at: float) -> HostReport:
    """Return the report from the answers to ``report.sh``; ``at`` is in seconds since
    1970.
    """

    def part(name: str) -> Optional[Part]:
        if name == "policy" and name not in told:
            return None
        what = f"the {name} of {host}"
        fix = f"run it on the host: {_STEPS[name]}"
        return Part(_good(host, told, name).out, what, fix)

    return made_of(host, part, at)


def pushed_of(host: str, outcome: HostOutcome) -> Pushed:
    """Return the result of a push from that of the collection's module."""
    digest, said = outcome.result.get("digest"), outcome.result.get("msg")
    alone = outcome.result.get("file_digest")
    if outcome.kind == OK and isinstance(digest, str) and isinstance(alone, str):
        return Pushed(host, digest, alone)
    sentence, fix = split_fix(said) if isinstance(said, str) else ("", "")
    sentence = f"on {host}: {sentence}" if sentence else f"{host} reports no digest"
    return Pushed(host, problem=sentence, fix=fix or _SAME_VERSION)


def _good(host: str, told: Mapping[str, Answer], name: str) -> Answer:
    """Return a command's answer; raise a Problem if it failed or there is none."""
    doing, answer = _STEPS[name], told.get(name)
    if answer is None:
        raise Problem(
            "host-no-answer",
            f"no answer from {host} to {doing}",
            "its login shell or sshd may end sessions early; log in to it with ssh",
        )
    # 3: status has found a problem, and reports it in its document.
    if answer.status == 0 or (name == "status" and answer.status == 3):
        return answer
    sentence, fix = _own_message(answer.err)
    id, why = "host-command-failed", f"{doing} failed on {host}: "
    why += sentence or f"exit status {answer.status}"
    by_hand = f"run it on the host: {doing}"
    if answer.status == _NO_COMMAND and doing.startswith("ovirt-rdma-host"):
        id, fix = "host-command-missing", "install the package ovirt-rdma-host on it"
        why = f"the command ovirt-rdma-host is missing on {host}"
    elif answer.status == _TOO_MUCH:
        id, fix = "host-answer-too-large", by_hand
        why = f"{doing} printed more than {MOST_BYTES // 1_000_000} MB on {host}"
    elif answer.status in _TIMED_OUT:
        id, fix = "host-command-timeout", by_hand
        why = f"{doing} did not end in time on {host}"
    raise Problem(id, why, fix or by_hand)


def _own_message(err: str) -> tuple[str, str]:
    """Return the sentence and the fix that ovirt-rdma-host or a tool printed."""
    sentences, fix = [], ""
    for line in filter(None, map(str.strip, err.splitlines())):
        if line.startswith("fix: "):
            fix = line[len("fix: ") :]
        elif not line.startswith(("note: ", "warning: ")):
            sentences.append(line)
    own = [line for line in sentences if line.startswith("ovirt-rdma-host: ")]
    chosen = own[0][len("ovirt-rdma-host: ") :] if own else "; ".join(sentences[-1:])
    return chosen, fix


def _unpacked(text: str, most: int) -> Optional[bytes]:
    """Return the unpacked text, None if it is damaged. Of a text of more than ``most``
    bytes, only ``most`` + 1 are unpacked and returned.
    """
    try:
        unzip = zlib.decompressobj(wbits=31)
        plain = unzip.decompress(base64.b64decode(text, validate=True), most + 1)
    except (binascii.Error, ValueError, zlib.error):
        return None
    return plain if unzip.eof or len(plain) > most else None


# A host may print anything, and the time of the patterns grows with the square of the
# length of a line.
_MOST_SEARCHED = 4000
_MOST_QUOTED = 400
# The lines that OpenSSH 9 prints before its message.
_NOISE = re.compile(r"^(@+$|@ .* @$|Warning: |debug\d|OpenSSH_|\*\* |Pseudo-terminal)")
_RULES = (
    (
        r"IDENTIFICATION HAS CHANGED|Host key for .* has changed"
        r"|no matching host key type found",
        "{host} does not present the host key that {who} knows",
        "find out why: it may be another machine; if it was reinstalled: {again}",
    ),
    (
        r"host key is known for .* strict checking|Host key verification failed",
        "neither the engine nor known_hosts has the SSH host key of {host}",
        "let the engine fetch its key (Edit Host, SSH public key), or log in to it "
        "once with ssh and compare the fingerprint",
    ),
    (
        r"Permission denied|Too many authentication failures",
        "{host} does not accept the SSH key",
        "on the engine machine, run this as root, who can read the engine's key; "
        "elsewhere, give a key that the host accepts, and its user: --ssh-key, "
        "--ssh-user",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "the address of {host}, {address}, cannot be resolved on this machine",
        "correct the name resolution, or give ansible_host in an --inventory",
    ),
    (
        r"Connection refused|Connection timed out|No route to host"
        r"|Network is unreachable|Operation timed out|banner exchange"
        r"|Connection (closed|reset)|kex_exchange_identification|not responding",
        "{host} cannot be reached by SSH on {address} port {port}: {last}",
        "check that the host is up, and that its sshd can be reached from here",
    ),
    (
        r"sudo: .*password is required|Missing sudo password|a terminal is required",
        "{host} requires a password for sudo",
        "allow sudo without a password for this user, or log in as root",
    ),
    (
        # Messages of ansible-core before and since 2.19, and of our own timeout.
        r"expected time frame|Timed out after \d+ second|^no answer$",
        "{host} did not answer in time",
        "run it by hand and see what it waits for: ssh {address} ovirt-rdma-host "
        "status",
    ),
    (
        # The same before and since 2.19, of a module.
        r"MODULE FAILURE|Module result deserialization failed",
        "{host} did not answer as it should: {last}",
        "its login shell or sshd may end sessions early, or it lacks Python; log in to "
        "it with ssh",
    ),
)

_OTHER = (
    "",
    "{host} could not be asked: {last}",
    "try it by hand: ssh -p {port} {address} ovirt-rdma-host status",
)


def explain_failure(host: Host, text: str) -> Failure:
    """Explain the message ``text`` of ssh or Ansible on ``host``."""
    # Else the host key came from known_hosts.
    key_of_engine = bool(host.public_key)
    text = _ends_of(text)
    # "Task failed: " is from ansible-core 2.19.
    told = re.sub(r"(Task failed: )?Failed to connect to the host via ssh: ", "", text)
    lines = [line.strip().rstrip(".") for line in told.splitlines()]
    lines = [line for line in lines if line and not _NOISE.match(line)]
    again = f"remove its line from known_hosts: ssh-keygen -R {host.address}"
    if key_of_engine:
        again = "let the engine fetch its key again (Edit Host, SSH public key)"
    values = {
        "host": host.name,
        "address": host.address,
        "port": str(host.port),
        "last": lines[-1][:_MOST_QUOTED].rstrip(": ") if lines else "no message",
        "who": "the engine" if key_of_engine else "known_hosts",
        "again": again,
    }
    rules = (rule for rule in _RULES if re.search(rule[0], text))
    _, sentence, fix = next(rules, _OTHER)
    return Failure(sentence.format_map(values), fix.format_map(values))


def _ends_of(text: str) -> str:
    """Return the text; of a long one, only its beginning and its end."""
    if len(text) <= 2 * _MOST_SEARCHED:
        return text
    return f"{text[:_MOST_SEARCHED]}\n{text[-_MOST_SEARCHED:]}"


# A host reads its facts in a few seconds; its tools have limits of their own.
COMMAND_LIMIT_S = 60
HOST_LIMIT_S = 180.0
# The role installs packages: from a slow mirror that takes minutes.
PREPARING_LIMIT_S = 1800.0

_Result = TypeVar("_Result", HostReport, Pushed, Prepared)
# In place of a kind of outcome, for a host of which no more comes.
_NO_MORE = "no more"


class AnsibleHosts:
    """Hosts over SSH; ``forks`` is the number of hosts to ask in parallel. Raises
    Problem if no host can be asked: no Ansible, or an inventory that cannot be read.

    ``run`` and ``clock`` are for tests.
    """

    def __init__(
        self,
        access: Optional[Access] = None,
        *,
        forks: int = 20,
        host_limit_s: float = HOST_LIMIT_S,
        run: Callable[[AnsibleRun, str], Iterator[HostOutcome]] = ansible_run.run_order,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._access = access or Access()
        self._forks = forks
        self._host_limit_s = host_limit_s
        self._run = run
        self._clock = clock
        self._variables: Optional[Mapping[str, Mapping[str, Any]]] = None

    def reports(
        self, hosts: Sequence[Host], done: Optional[HostDone] = None
    ) -> dict[str, HostReport]:
        """Return a report for each host, by the engine's name, in their order."""

        def read(host: Host, outcome: HostOutcome) -> Union[HostReport, Failure]:
            return _failure(host, outcome) or report_of(
                host.name, read_answers(outcome.text), self._clock()
            )

        def order_of(order: AnsibleRun, folder: str) -> AnsibleRun:
            return replace(order, script=_script())

        return self._results(hosts, order_of, HostReport, read, done)

    def push_policy(
        self, hosts: Sequence[Host], policy: Union[str, PolicyFiles, None]
    ) -> dict[str, Pushed]:
        """Replace policy.yaml on each host, and load it; with PolicyFiles also all
        drop-ins, see HostAccess.

        No file loads the empty policy and removes the file. If the host's check or load
        fails, its earlier files are restored. A text that is too long is sent to no
        host, and is a ``problem`` of each.
        """
        long = policy_too_long(policy)
        if long:
            return {
                host.name: Pushed(host.name, problem=long, fix=POLICY_TOO_LONG_FIX)
                for host in hosts
            }

        def read(host: Host, outcome: HostOutcome) -> Union[Pushed, Failure]:
            return _failure(host, outcome) or pushed_of(host.name, outcome)

        def order_of(order: AnsibleRun, folder: str) -> AnsibleRun:
            # In files: in a variable, Ansible would take {{ for a template.
            source = Path(folder) / "policy"
            source.mkdir()
            files = policy if isinstance(policy, PolicyFiles) else PolicyFiles(policy)
            if files is policy:
                (source / "policy.d").mkdir()
            for name, text in files.contents.items():
                beside = source / "policy.d" if name in files.drop_ins else source
                (beside / name).write_bytes(text.encode("utf-8"))
            return replace(
                order,
                playbook="push_policy.yml",
                variables={"ovirt_rdma_policy": str(source)},
                collections=tuple(map(str, trusted_collections())),
            )

        return self._results(hosts, order_of, Pushed, read)

    def prepare(
        self, hosts: Sequence[Host], variables: Mapping[str, Any]
    ) -> dict[str, Prepared]:
        """Run the role on each host; return the results by the engine's name.

        ``variables`` are for the role. A host that cannot be asked has a ``problem``.
        """
        so_far: dict[str, Prepared] = {}

        def read(host: Host, outcome: HostOutcome) -> Union[Prepared, Failure, None]:
            before = so_far.get(host.name, Prepared(host.name))
            if outcome.kind == _NO_MORE:
                return judged(before)
            if outcome.kind == UNREACHABLE and not before.task:
                return explain_failure(host, outcome.text)
            so_far[host.name] = with_outcome(before, outcome)
            return None

        def order_of(order: AnsibleRun, folder: str) -> AnsibleRun:
            return replace(
                order,
                limit_s=PREPARING_LIMIT_S,
                playbook="prepare_hosts.yml",
                variables=variables,
                collections=tuple(map(str, trusted_collections())),
            )

        return self._results(hosts, order_of, Prepared, read)

    def _results(
        self,
        hosts: Sequence[Host],
        order_of: Callable[[AnsibleRun, str], AnsibleRun],
        kind: type[_Result],
        read: Callable[[Host, HostOutcome], Union[_Result, Failure, None]],
        done: Optional[HostDone] = None,
    ) -> dict[str, _Result]:
        """Return each host's result of what ``order_of`` makes of a run and its folder.

        ``read`` makes it of the outcome of a task, or of that at the end, _NO_MORE;
        None: more has to come.
        """
        # Ansible gets an alias: a host's name in the engine may be any text.
        waiting = {f"host-{number}": host for number, host in enumerate(hosts)}
        results: dict[str, _Result] = {}

        def take(alias: str, outcome: Optional[HostOutcome]) -> None:
            host = waiting[alias]
            found: Union[_Result, Failure, None]
            try:
                found = read(host, outcome) if outcome else why_not_asked(host)
            except Exception as error:  # noqa: BLE001  (it concerns only this host)
                found = Failure(*bug_report(host.name, error))
            if found is None:
                return
            if isinstance(found, Failure):
                found = kind(host.name, problem=found.sentence, fix=found.fix)
            del waiting[alias]
            results[host.name] = found
            if done:
                done(host.name)

        for alias in list(waiting):
            take(alias, None)
        if waiting:
            with ansible_run.private_folder() as folder:
                order = order_of(self._order(waiting, folder), folder)
                for outcome in self._run(order, folder):
                    if outcome.alias in waiting:
                        take(outcome.alias, outcome)
        for alias in list(waiting):
            take(alias, HostOutcome(alias, _NO_MORE, "no answer"))
        return {host.name: results[host.name] for host in hosts}

    def _order(self, hosts: Mapping[str, Host], folder: str) -> AnsibleRun:
        if self._variables is None:
            path = self._access.inventory
            self._variables = read_inventory(path) if path else {}
        file = str(Path(folder) / "known_hosts")
        return AnsibleRun(
            "",
            inventory_of(hosts, self._access, file, self._variables),
            {"known_hosts": known_hosts_text(hosts)},
            self._forks,
            self._host_limit_s,
        )


def _failure(host: Host, outcome: HostOutcome) -> Optional[Failure]:
    """Return why there is no answer in ``outcome``; None if there is one."""
    text = outcome.text
    if len(text) >= MOST_SENT:
        return Failure(
            f"{host.name} sent more than {MOST_SENT // 1_000_000} MB",
            f"run it by hand and see what it prints: ssh {host.address} "
            "ovirt-rdma-host facts -o json",
        )
    # A script that was killed may have sent answers before; a module of ours that has
    # failed gives its error an id.
    answered = "id" in outcome.result or read_answers(text)
    if outcome.kind == OK or (outcome.kind == FAILED and answered):
        return None
    return explain_failure(host, text)


def _script() -> str:
    values = f"LIMIT_S={COMMAND_LIMIT_S}\nPOLICY={shlex.quote(POLICY_YAML)}\n"
    parts = ((PLAYBOOKS / part).read_text("utf-8") for part in ("tell.sh", "report.sh"))
    return "".join((values, *parts))
