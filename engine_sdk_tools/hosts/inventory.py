# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the inventory and known_hosts of a run of Ansible, from the engine's hosts with
their host keys and the operator's inventory; and judge the role's result.

The engine stores a host's key when it is added, and reports it as ``ssh.public_key``,
with ``ssh.fingerprint`` (HostMapper). A host that was added before engine 4.4 and not
installed again since has only a fingerprint, and the engine has to fetch its key. A key
is never trusted just because the host presents it.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Optional

from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import (
    OK,
    UNREACHABLE,
    HostOutcome,
    is_trusted,
    search_path,
)
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.errors import Problem, UsageProblem
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
    """Return the key in the engine's text (type, base64, optionally a comment).

    None if there is no key, or not of a type that hosts use.
    """
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
    """How to log in to hosts: ``user``, the path of the private ``key`` (None: ssh
    finds one), the path of the operator's ``inventory``, and the timeout of a
    connection in seconds.
    """

    user: str = "root"
    key: Optional[str] = None
    inventory: Optional[str] = None
    connect_timeout_s: int = 10

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
    """Return an inventory of ``hosts``, which are by alias.

    The file ``known_hosts`` has the engine's keys; a host without one is checked with
    the operator's own file. ``theirs`` are the operator's variables by the host's name
    or address in the engine.
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
        f"ConnectTimeout={access.connect_timeout_s}",
        "ServerAliveInterval=15",
        "ServerAliveCountMax=3",
    ]
    if access.key:
        options.append("IdentitiesOnly=yes")
    return [word for option in options for word in ("-o", option)]


def read_inventory(
    path: str, command: Sequence[str] = ("ansible-inventory",)
) -> dict[str, dict[str, Any]]:
    """Return the variables of each host in the operator's inventory, by its name.

    It can be anything that Ansible reads: ini, YAML, a folder, the source of a plugin,
    which gets a part of our environment. An ansible.cfg in the current folder counts
    only if nobody else can write there. Raises Problem if Ansible cannot read it.
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
    """The result of the role on one host.

    ``sentinel`` is the name of the role's last task, "" if it has not run, ``task``
    that of the last one that has. ``problem`` is "" if the host is prepared, and if it
    has no RDMA hardware (``no_hardware``). ``warnings`` are those of the tasks'
    results, each once.
    """

    host: str
    sentinel: str = ""
    task: str = ""
    problem: str = ""
    fix: str = ""
    no_hardware: bool = False
    warnings: tuple[str, ...] = ()


def with_outcome(before: Prepared, outcome: HostOutcome) -> Prepared:
    """Return ``before`` after one more task on its host.

    In a run on several hosts Ansible puts the variables of one of them into a task's
    name. So the name says only which task it is; what it says is in its result.
    """
    name, result = one_line(outcome.task), outcome.result
    said = one_line(m) if isinstance(m := result.get("msg"), str) else ""
    if outcome.kind == OK:
        if outcome.action.endswith("include_role"):
            return before  # our own task, which takes in the role
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
    """Return the digest in the name of the role's last task, "" if it names none; None
    if ``text`` is not that name.
    """
    match = _PROOF.fullmatch(text)
    return match[1] if match else None


def judged(result: Prepared) -> Prepared:
    """Return the result of a role that has ended: without the sentinel, the host is not
    prepared, even if no task has failed; with it, an earlier failure was handled.
    """
    if result.sentinel or (result.no_hardware and not result.problem):
        return replace(result, problem="", fix="")
    if result.problem:
        return result
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
