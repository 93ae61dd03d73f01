# SPDX-License-Identifier: GPL-2.0-or-later
"""Access hypervisors over SSH with Ansible: read their reports, push their policy, run
the role on them.

A report needs no Python on the host: each command of a script in ``playbooks/`` prints
one line, a mark, its name, its exit status, its stdout and stderr (gzip, base64;
``tell.sh``). A policy is pushed by the module of our collection. If a host could not be
asked, the messages of OpenSSH (sshconnect.c, ssh.c), sudo and Ansible, which are never
translated, are replaced by a sentence with a fix.

A host must present the host key that the engine knows, or no connection is made: no key
is trusted just because the host presents it. The engine stores a host's key when it is
added, and reports it as ``ssh.public_key``, with ``ssh.fingerprint`` (HostMapper). A
host that was added before engine 4.4 and not installed again since has only a
fingerprint, and the engine has to fetch its key.

Variables of the operator's own inventory are added: another user, a jump host, a key.
They cannot change how the host key is verified.

A host counts as prepared only if the last task of ``ovirt_rdma.host.prepare`` has run
on it, the sentinel: Ansible may end without a failure where nothing was done.
"""

from __future__ import annotations

import base64
import binascii
import errno
import json
import os
import re
import shlex
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

from ovirt_rdma.engine_sdk_tools.hosts import ansible_run
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import (
    FAILED,
    LATE,
    MOST_SENT,
    OK,
    PLAYBOOKS,
    UNREACHABLE,
    AnsibleRun,
    HostOutcome,
    is_trusted,
    search_path,
    trusted_collections,
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
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.load import PolicyFiles
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    TooMuchOutput,
    run_command,
)

# ssh must request the type of the known key, even if its configuration prefers others.
# RSA keys sign with SHA-2: EL9 refuses SHA-1 (RFC 8332).
_ALGORITHMS = {"ssh-rsa": "rsa-sha2-512,rsa-sha2-256"}
_FETCH_AGAIN = "let the engine fetch its key again (Edit Host, SSH public key)"
_KEY_TYPE = re.compile(r"ssh-rsa|ssh-ed25519|ecdsa-sha2-nistp(256|384|521)")


class HostKey(NamedTuple):
    """A public key as in known_hosts: ``ssh-rsa`` and base64."""

    type: str
    base64: str

    @property
    def algorithms(self) -> str:
        """The value of ssh's HostKeyAlgorithms that requests this key."""
        return _ALGORITHMS.get(self.type, self.type)


class Failure(NamedTuple):
    """Why a host could not be asked, and what to do."""

    sentence: str
    fix: str


def why_not_asked(host: Host) -> Optional[Failure]:
    """Return why ``host`` must not be asked; None if it may. One of which the engine
    knows no key is verified with the operator's own known_hosts.
    """
    if not _ADDRESS.fullmatch(host.address):
        return Failure(
            f"the address of {host.name} is neither a name nor an IP address: "
            f"{host.address!a}",
            "correct it in the engine (Edit Host, Hostname)",
        )
    if read_key(host.public_key) or not (host.public_key or host.fingerprint):
        return None
    sentence = f"the engine knows only a fingerprint of the key of {host.name}"
    if host.public_key:
        sentence = f"the engine's host key of {host.name} is not a public key"
    return Failure(sentence, _FETCH_AGAIN)


def known_hosts_text(hosts: Mapping[str, Host]) -> str:
    """Return a known_hosts file with the engine's keys; ``hosts`` are by alias."""
    keys = ((alias, read_key(host.public_key)) for alias, host in hosts.items())
    return "".join(f"{alias} {key.type} {key.base64}\n" for alias, key in keys if key)


def read_key(text: Optional[str]) -> Optional[HostKey]:
    """Return the key in the engine's text; None for none of a type that hosts use."""
    parts = (text or "").split()
    if len(parts) < 2 or not _KEY_TYPE.fullmatch(parts[0]):
        return None
    # The key itself begins with its type, after the length of that (RFC 4253, 6.6).
    name = parts[0].encode("ascii")
    begin = len(name).to_bytes(4, "big") + name
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except (binascii.Error, ValueError):
        return None
    if not blob.startswith(begin) or len(blob) == len(begin):
        return None
    return HostKey(parts[0], parts[1])


# Make the Ansible inventory of a run from the engine's hosts.

# The key with which the engine installs hosts (AnsibleCommandConfig).
ENGINE_KEY = "/etc/pki/ovirt-engine/keys/engine_id_rsa"

_READING_S = 60.0
_ENDED = (CommandTimeout, TooMuchOutput)
# The variables of our environment that an inventory plugin or script gets: files and
# programs of the operator, the language, Ansible's settings, proxies and certificate
# authorities (requests(7), curl(1)). It gets no secrets: neither OVIRT_PASSWORD and
# OVIRT_TOKEN, nor others that are exported.
_SEEN = re.compile(
    r"HOME|USER|LOGNAME|PATH|TMPDIR|TZ|LANG|LC_[A-Z]+|ANSIBLE_[A-Z0-9_]+"
    r"|(https?|all|no)_proxy|(HTTPS?|ALL|NO)_PROXY"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
# Ansible treats {{ in a variable as a template, and ssh a leading - as an option.
_ADDRESS = re.compile(r"[0-9A-Za-z_:]([0-9A-Za-z_:.%-]*[0-9A-Za-z_.])?")
_PASSWORDS = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")
# Variables that would bypass the ssh command which verifies the host key.
_OURS = re.compile(r"ansible_(ssh_)?(host_key_checking|connection|executable)")


@dataclass(frozen=True)
class Access:
    """How to log in: ``user``, path of the private ``key`` (None: ssh finds one) and of
    the operator's ``inventory``.
    """

    user: str = "root"
    key: Optional[str] = None
    inventory: Optional[str] = None

    def __post_init__(self) -> None:
        if self.key is not None and not os.access(self.key, os.R_OK):
            raise UsageProblem(
                "ssh-key-unreadable",
                f"the SSH key {self.key} cannot be read",
                "give the file of the private key to --ssh-key",
            )


def default_key() -> Optional[str]:
    """Return the path of the engine's key if we can read it (root on its machine)."""
    return ENGINE_KEY if os.access(ENGINE_KEY, os.R_OK) else None


def inventory_of(
    hosts: Mapping[str, Host],
    access: Access,
    known_hosts: str,
    theirs: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return an inventory of ``hosts``, by alias. ``known_hosts`` has the engine's
    keys; hosts without one are checked with the operator's. ``theirs`` are the
    operator's variables by a host's name or address.
    """
    entries = {}
    for alias, host in hosts.items():
        more = {**theirs.get(host.address, {}), **theirs.get(host.name, {})}
        variables = _variables(host, access, more)
        their_options = str(variables.get("ansible_ssh_args", ""))
        interactive = any(variables.get(name) for name in _PASSWORDS)
        ours = _ssh_options(alias, read_key(host.public_key), access, known_hosts)
        if not interactive:
            ours += ["-o", "BatchMode=yes"]
        # ssh uses the first value of an option: ours must come first.
        variables["ansible_ssh_args"] = f"{shlex.join(ours)} {their_options}".strip()
        entries[alias] = variables
    return {"all": {"hosts": entries}}


def _variables(host: Host, access: Access, more: Mapping[str, Any]) -> dict[str, Any]:
    variables: dict[str, Any] = {
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": access.user,
        # EL's own. Ansible would look for others, over two more connections.
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    if access.key:
        variables["ansible_ssh_private_key_file"] = access.key
    variables.update(
        (name, value)
        for name, value in more.items()
        if name.startswith("ansible_") and not _OURS.fullmatch(name)
    )
    user = variables.get("ansible_ssh_user", variables["ansible_user"])
    variables.setdefault("ansible_become", user != "root")
    # With a terminal, a lost connection would kill the script in the middle.
    variables["ansible_ssh_use_tty"] = False
    variables["ansible_connection"] = "ssh"
    variables["ansible_host_key_checking"] = True
    return variables


def _ssh_options(
    alias: str, key: Optional[HostKey], access: Access, known_hosts: str
) -> list[str]:
    """Return the options of ssh (ssh_config(5))."""
    options = ["StrictHostKeyChecking=yes", "VerifyHostKeyDNS=no", "UpdateHostKeys=no"]
    if key:
        file = known_hosts.replace("%", "%%")
        options += [
            f"HostKeyAlias={alias}",
            "CheckHostIP=no",
            f'UserKnownHostsFile="{file}"',
            "GlobalKnownHostsFile=/dev/null",
            # Since OpenSSH 8.5; it would be a second source of keys.
            "IgnoreUnknown=KnownHostsCommand",
            "KnownHostsCommand=none",
            f"HostKeyAlgorithms={key.algorithms}",
        ]
    options += [
        # Leave no master behind, and use none that has not verified the key.
        "ControlMaster=no",
        "ControlPath=none",
        # A host gets no access to the operator's machine: no agent, Kerberos ticket,
        # display, port or command. The agent itself is needed for the login.
        "ForwardAgent=no",
        "GSSAPIDelegateCredentials=no",
        "ForwardX11=no",
        "ClearAllForwardings=yes",
        "Tunnel=no",
        "PermitLocalCommand=no",
        "ConnectTimeout=10",
        "ServerAliveInterval=15",
        "ServerAliveCountMax=3",
    ]
    if access.key:
        options.append("IdentitiesOnly=yes")
    return [word for option in options for word in ("-o", option)]


def read_inventory(
    path: str, command: Sequence[str] = ("ansible-inventory",)
) -> dict[str, dict[str, Any]]:
    """Return the variables of hosts in the operator's inventory, by name: ini, YAML, a
    folder, a plugin, which gets a part of our environment. An ansible.cfg in the
    current folder counts if nobody else can write there. Raises Problem.
    """
    named = _readable(path)
    program = shutil.which(command[0], path=search_path())
    arguments = [program or command[0], *command[1:], "--inventory", named, "--list"]
    by_hand = shlex.join(["ansible-inventory", "--inventory", path, "--list"])
    fix = (
        f"try it: {by_hand}; of the environment it gets only HOME, PATH, the language "
        "and ANSIBLE_*"
    )
    try:
        listed = run_command(
            arguments,
            _READING_S,
            cwd=None if is_trusted(Path()) else "/",
            env={k: v for k, v in os.environ.items() if _SEEN.fullmatch(k)},
        ).encode("utf-8", "surrogateescape")
        variables = json.loads(listed)["_meta"]["hostvars"]
        return {str(name): dict(values) for name, values in variables.items()}
    except CommandFailed as failed:
        if failed.returncode is None and not isinstance(failed, _ENDED):
            raise Problem(
                "ansible-missing",
                f"{command[0]} cannot be run: {failed}",
                "install the package ansible-core",
            ) from None
        reason = str(failed)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error)
    raise Problem(
        "inventory-unreadable", f"the inventory {path} cannot be read: {reason}", fix
    )


def _readable(path: str) -> str:
    """Return the full path of the inventory ``path``. Raises UsageProblem."""
    try:
        Path(path).stat()
        if not os.access(path, os.R_OK):  # Ansible only warns of it
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return str(Path(path).absolute())
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageProblem(
            "inventory-missing",
            f"the inventory {path} cannot be read: {reason or error}",
            "give a file that you can read to --inventory",
        ) from None


# The result of the role on a host.

# The name of the role's last task begins so; version and policy digest follow
# (ovirt_rdma_proof of the role).
SENTINEL = "ovirt-rdma: host is prepared"
_PROOF = re.compile(re.escape(SENTINEL) + r" \(ovirt-rdma \S*, policy (\S*)\)")
# In place of the sentinel: nothing was loaded, and that is no failure.
WITHOUT_HARDWARE = "ovirt-rdma: host has no RDMA hardware"
# In place of the sentinel, in the engine's events; the reason follows.
NOT_PREPARED = "ovirt-rdma: host is not prepared:"
# Before it, a warning.
ATTENTION = "ovirt-rdma: attention:"
# Variables of the role over SSH. The host is in use, so no link may go down.
SSH_VARIABLES = {
    "ovirt_rdma_on_failure": "fail",
    "ovirt_rdma_live_only": True,
    "ovirt_rdma_allow_link_down": False,
    "ovirt_rdma_restart_vdsmd": False,
}

_MOST_WARNINGS = 200
_LONGEST = 600


@dataclass(frozen=True)
class Prepared:
    """The result of the role on one host. ``sentinel`` is the name of its last task, ""
    if that has not run, ``task`` the last that has. ``problem`` is "" for a prepared
    host, and for one with ``no_hardware``. ``warnings`` are those of tasks.
    """

    host: str
    sentinel: str = ""
    task: str = ""
    problem: str = ""
    fix: str = ""
    no_hardware: bool = False
    warnings: tuple[str, ...] = ()


def with_outcome(before: Prepared, outcome: HostOutcome) -> Prepared:
    """Return ``before`` after one more task. In a run on several hosts Ansible puts
    variables of one of them into a task's name: it says which task it is, the result
    says the rest.
    """
    name, result = one_line(outcome.task), outcome.result
    said = one_line(m) if isinstance(m := result.get("msg"), str) else ""
    if outcome.kind == OK:
        if outcome.action.endswith(("include_role", "validate_argument_spec")):
            return before  # done here, before any connection to the host
        if name.startswith(SENTINEL):
            proven = policy_proven(said) is not None
            return replace(before, sentinel=said if proven else "")
        if name.startswith(WITHOUT_HARDWARE):
            return replace(before, no_hardware=True)
        texts = result.get("warnings")
        texts = texts if isinstance(texts, list) else []
        if name.startswith(ATTENTION):
            texts = [*texts, said]
        every = (*before.warnings, *(one_line(str(text)) for text in texts))
        warnings = tuple(dict.fromkeys(every))[:_MOST_WARNINGS]
        # A later task shows that the failed one was ignored, or rescued.
        return replace(before, task=name, warnings=warnings)
    lost = outcome.kind == UNREACHABLE
    if outcome.ignored and not lost:
        return before
    sentence, fix = split_fix(said)
    sentence = sentence or "no message"
    problem = f"{name}: {sentence}" if name and not lost else sentence
    return replace(before, problem=problem, fix=fix)


def policy_proven(text: str) -> Optional[str]:
    """Return the digest in the name of the role's last task, or ""; None: not that."""
    match = _PROOF.fullmatch(text)
    return match[1] if match else None


def judged(result: Prepared, late_s: float = 0.0) -> Prepared:
    """Return the result of a role that has ended: without the sentinel, the host is not
    prepared, even if no task has failed; with it, an earlier failure was handled.
    ``late_s``: we ended it after this time, in seconds.
    """
    if result.sentinel or (result.no_hardware and not result.problem):
        return replace(result, problem="", fix="")
    if result.problem:
        return result
    if late_s:
        return replace(
            result,
            problem=f"the role did not end in {late_s / 60:.0f} minutes, and may still "
            f"be running there; its last task that ended is '{result.task}'",
            fix="see on the host what it waits for, then run the same command again",
        )
    after = f" after '{result.task}'" if result.task else ""
    return replace(
        result,
        problem=f"the role ended{after} without its last task, '{SENTINEL}'",
        fix="run 'ovirt-rdma deploy-hook status': is the whole collection installed?",
    )


def one_line(text: str) -> str:
    """Return ``text`` on one line, of bounded length."""
    return re.sub(r"\s+", " ", text).strip()[:_LONGEST]


def split_fix(text: str) -> tuple[str, str]:
    """Return the sentence and the fix of a message of the role: ``X; fix: Y``."""
    sentence, _, fix = one_line(text).partition("; fix: ")
    return sentence, fix


# Read the answers of a script, and say why a host could not be asked.

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
    """Return the commands' answers by name; of several with one name, the last. Lines
    that are cut off, damaged or of other names are ignored. Beyond MOST_BYTES unpacked
    in all, one has the status _TOO_MUCH.
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
    """Return the report from answers to ``report.sh``; ``at``: seconds since 1970."""

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
# length of a line: of a long text, its beginning and its end are searched.
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
    if len(text) > 2 * _MOST_SEARCHED:
        text = f"{text[:_MOST_SEARCHED]}\n{text[-_MOST_SEARCHED:]}"
    # "Task failed: " is from ansible-core 2.19.
    told = re.sub(r"(Task failed: )?Failed to connect to the host via ssh: ", "", text)
    lines = [line.strip().rstrip(".") for line in told.splitlines()]
    lines = [line for line in lines if line and not _NOISE.match(line)]
    again = f"remove its line from known_hosts: ssh-keygen -R {host.address}"
    values = {
        "host": host.name,
        "address": host.address,
        "port": str(host.port),
        "last": lines[-1][:_MOST_QUOTED].rstrip(": ") if lines else "no message",
        "who": "the engine" if key_of_engine else "known_hosts",
        "again": _FETCH_AGAIN if key_of_engine else again,
    }
    rules = (rule for rule in _RULES if re.search(rule[0], text))
    _, sentence, fix = next(rules, _OTHER)
    return Failure(sentence.format_map(values), fix.format_map(values))


# A host reads its facts in a few seconds; its tools have limits of their own.
COMMAND_LIMIT_S = 60
HOST_LIMIT_S = 180.0
# The role installs packages: from a slow mirror that takes minutes.
PREPARING_LIMIT_S = 1800.0

_Result = TypeVar("_Result", HostReport, Pushed, Prepared)
# In place of a kind of outcome, for a host of which no more comes.
_NO_MORE = "no more"


class AnsibleHosts:
    """Hosts over SSH. Raises Problem if no host can be asked: no Ansible, or an
    inventory that cannot be read. ``run`` and ``clock`` are for tests.
    """

    def __init__(
        self,
        access: Optional[Access] = None,
        *,
        host_limit_s: float = HOST_LIMIT_S,
        run: Callable[[AnsibleRun, str], Iterator[HostOutcome]] = ansible_run.run_order,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._access = access or Access()
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

        return self._results(
            hosts, lambda _: {"script": _script()}, HostReport, read, done
        )

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

        def words_of(folder: str) -> dict[str, Any]:
            # In files: in a variable, Ansible would take {{ for a template.
            source = Path(folder) / "policy"
            source.mkdir()
            files = policy if isinstance(policy, PolicyFiles) else PolicyFiles(policy)
            if files is policy:
                (source / "policy.d").mkdir()
            for name, text in files.contents.items():
                beside = source / "policy.d" if name in files.drop_ins else source
                (beside / name).write_bytes(text.encode("utf-8"))
            variables = {"ovirt_rdma_policy": str(source)}
            return _of_collection("push_policy.yml", variables)

        return self._results(hosts, words_of, Pushed, read)

    def prepare(
        self, hosts: Sequence[Host], variables: Mapping[str, Any]
    ) -> dict[str, Prepared]:
        """Run the role with ``variables`` on each host; return the results by name."""
        so_far: dict[str, Prepared] = {}

        def read(host: Host, outcome: HostOutcome) -> Union[Prepared, Failure, None]:
            before = so_far.get(host.name, Prepared(host.name))
            if outcome.kind == _NO_MORE:
                return judged(before)
            late = outcome.kind == LATE
            if (late or outcome.kind == UNREACHABLE) and before == Prepared(host.name):
                return explain_failure(host, outcome.text)
            if late:
                return judged(before, outcome.result["after_s"])
            so_far[host.name] = with_outcome(before, outcome)
            return None

        def words_of(_: str) -> dict[str, Any]:
            words = _of_collection("prepare_hosts.yml", variables)
            return {**words, "limit_s": PREPARING_LIMIT_S}

        return self._results(hosts, words_of, Prepared, read)

    def _results(
        self,
        hosts: Sequence[Host],
        words_of: Callable[[str], dict[str, Any]],
        kind: type[_Result],
        read: Callable[[Host, HostOutcome], Union[_Result, Failure, None]],
        done: Optional[HostDone] = None,
    ) -> dict[str, _Result]:
        """Return each host's result of a run; ``words_of`` its folder are what the run
        has of its own.

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
                order = replace(self._order(waiting, folder), **words_of(folder))
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
            limit_s=self._host_limit_s,
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


def _of_collection(playbook: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words of a run of a playbook that needs our collection."""
    collections = tuple(map(str, trusted_collections()))
    return {"playbook": playbook, "variables": variables, "collections": collections}


def _script() -> str:
    values = f"LIMIT_S={COMMAND_LIMIT_S}\nPOLICY={shlex.quote(POLICY_YAML)}\n"
    parts = ((PLAYBOOKS / part).read_text("utf-8") for part in ("tell.sh", "report.sh"))
    return "".join((values, *parts))
