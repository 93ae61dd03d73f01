# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse what hosts answer, and explain why SSH failed.

What the scripts of ``playbooks/`` print on a host, made into reports. Pure.

Each command of a script gives one line: a mark, its name, its exit status, its stdout
and stderr (gzip, base64; ``tell.sh``). Whatever else is printed is passed over.

What OpenSSH, sudo and Ansible say of a host that could not be asked, in words. Pure.

The texts are OpenSSH's own (sshconnect.c, ssh.c) and sudo's; they are not translated.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from ovirt_rdma.engine_sdk_tools.hosts.report import (
    MAKE_SHORTER,
    MOST_BYTES,
    HostReport,
    Pushed,
    policy_too_long,
)
from ovirt_rdma.engine_sdk_tools.model import Host, status_mistake
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts import dump
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.system.json_codec import UnreadableJson, json_value

_Part = TypeVar("_Part")

# A host may print anything: an exit status has three digits.
_LINE = re.compile(
    r"^ovirt-rdma-told (\S+) (\d{1,3}) (\S+) (\S+)\r?$", re.MULTILINE | re.ASCII
)
# What tell.sh sends of stderr; and so much of a sentence is shown.
_MOST_WORDS = 4000
_MOST_MISTAKES = 20
# Of timeout(1): the time was up; there is no such command.
_TIME_UP = (124, 137)
_NO_COMMAND = 127
# None that a process ends with.
_TOO_MUCH = 1000

_VERSION = "version"
_INSTALL = "install the package ovirt-rdma-host on it"
_SAME_VERSION = "install the same version of ovirt-rdma on the host and here"
_STEPS = {
    "before": f"reading {POLICY_YAML}",
    "folder": "making the folder of the policy",
    "write": "writing the policy beside the present one",
    "check": "ovirt-rdma-host policy check",
    "keep": f"keeping the present {POLICY_YAML}",
    "place": f"replacing {POLICY_YAML}",
    "load": "ovirt-rdma-host policy load",
    "restore": f"putting the earlier {POLICY_YAML} back",
    "remove": f"removing {POLICY_YAML}",
    "status": "ovirt-rdma-host status",
    "facts": "ovirt-rdma-host facts",
    "policy": f"reading {POLICY_YAML}",
}


_NAMES = frozenset((*_STEPS, _VERSION))


class Told(NamedTuple):
    """What one command did: exit status, stdout, and the last of its stderr."""

    status: int
    out: bytes
    err: str


class _Wrong(Problem):
    """An answer that is of no use; the sentence is about the host."""


def read_told(text: str) -> dict[str, Told]:
    """Return the commands' answers by name; of several with one name, the last.

    Lines that are cut off or broken, or have a name that no script gives, are left
    out. Those with which all would have more than MOST_BYTES unpacked have the status
    _TOO_MUCH, and nothing else.
    """
    lines = {name: rest for name, *rest in _LINE.findall(text) if name in _NAMES}
    found = {}
    left = MOST_BYTES
    for name, (status, out, err) in lines.items():
        plain = _unpacked(out, left)
        words = _unpacked(err, left)
        if plain is None or words is None:
            continue
        if len(plain) + len(words) > left:
            found[name] = Told(_TOO_MUCH, b"", "")
        else:
            left -= len(plain) + len(words)
            last = words[-_MOST_WORDS:].decode("utf-8", "replace")
            found[name] = Told(int(status), plain, last)
    return found


def report_of(host: str, told: Mapping[str, Told], at: float) -> HostReport:
    """Return the report in the answers to ``report.sh``; ``at`` in seconds since 1970.

    ``problem`` says what is missing, also where the rest is there.
    """
    wrong: list[Problem] = []

    def part(read: Callable[[], _Part]) -> Optional[_Part]:
        try:
            return read()
        except Problem as problem:
            wrong.append(problem)
            return None

    facts = part(lambda: _facts(host, told))
    status = part(lambda: _status(host, told))
    policy = part(lambda: _policy_in_bounds(host, told))
    return HostReport(
        host,
        facts,
        status,
        policy,
        at,
        wrong[0].one_line[:_MOST_WORDS] if wrong else "",
        wrong[0].fix[:_MOST_WORDS] if wrong else "",
    )


def pushed_of(host: str, told: Mapping[str, Told]) -> Pushed:
    """Return what became of a policy, of the answers to ``policy.sh``."""
    before: Optional[str] = None
    digest: Optional[str] = None
    try:
        if _VERSION in told:
            _good(host, told, _VERSION)
        before = _policy(host, told, "before")
        for step in ("folder", "write"):
            if step in told:
                _good(host, told, step)
        if told.get("check", Told(0, b"", "")).status == 3:
            raise _mistakes(host, told["check"])
        _good(host, told, "check")
        for step in ("keep", "place"):
            if step in told:
                _good(host, told, step)
        _good(host, told, "load", told.get("restore"))
        if "remove" in told:
            _good(host, told, "remove")
        loaded = _document(host, told, "load").get("digest")
        digest = HostReport(host, status=_status(host, told)).policy_digest
        if loaded != digest or digest is None:
            shown = loaded if isinstance(loaded, str) else None
            raise _Wrong(
                "policy-overwritten",
                f"{host} has another policy in force than the one just loaded: "
                f"{digest}, not {shown}",
                "someone else loads policies there; push it again",
            )
    except Problem as problem:
        sentence, fix = problem.one_line[:_MOST_WORDS], problem.fix[:_MOST_WORDS]
        return Pushed(host, digest, before, sentence, fix)
    return Pushed(host, digest, before)


def _facts(host: str, told: Mapping[str, Told]) -> Facts:
    data = _document(host, told, "facts")
    try:
        return dump.from_json_dict(data, f"the facts of {host}")
    except dump.FactsProblem as problem:
        raise _Wrong(problem.id, str(problem), _SAME_VERSION) from None


def _status(host: str, told: Mapping[str, Told]) -> dict[str, Any]:
    data = _document(host, told, "status")
    mistake = status_mistake(data)
    if mistake:
        raise _Wrong(
            "host-status-invalid",
            f"the status of {host} is not what 'status -o json' prints: {mistake}",
            _SAME_VERSION,
        )
    return data


def _document(host: str, told: Mapping[str, Told], name: str) -> dict[str, Any]:
    """Return the JSON object that a command printed."""
    answer = _good(host, told, name)
    fix = f"run it there: {_STEPS[name]} -o json"
    said = f"{_STEPS[name]} printed no JSON object on {host}"
    try:
        data = json_value(answer.out.decode("utf-8"))
    except UnicodeDecodeError:
        raise _Wrong("host-answer-invalid", said, fix) from None
    except UnreadableJson as error:
        raise _Wrong("host-answer-invalid", f"{said}: it {error}", fix) from None
    if not isinstance(data, dict):
        raise _Wrong("host-answer-invalid", said, fix)
    return data


def _policy(host: str, told: Mapping[str, Told], name: str) -> Optional[str]:
    """Return policy.yaml as it stands there; None where there is none."""
    if name not in told:
        return None
    try:
        return _good(host, told, name).out.decode("utf-8")
    except UnicodeDecodeError:
        raise _Wrong(
            "host-policy-not-utf8",
            f"{POLICY_YAML} on {host} is not UTF-8 text",
            "look at it there, and mend or remove it",
        ) from None


def _policy_in_bounds(host: str, told: Mapping[str, Told]) -> Optional[str]:
    text = _policy(host, told, "policy")
    long = policy_too_long(text)
    if long:
        raise _Wrong("policy-too-long", f"{host}: {long}", MAKE_SHORTER)
    return text


def _good(
    host: str, told: Mapping[str, Told], name: str, restored: Optional[Told] = None
) -> Told:
    """Return a command's answer; raise a Problem where it failed or gave none."""
    doing = _STEPS.get(name, "ovirt-rdma-host")
    answer = told.get(name)
    if answer is None:
        raise _Wrong(
            "host-no-answer",
            f"{host} gave no answer to {doing}",
            "its login shell or sshd may cut sessions short; try: ssh HOST true",
        )
    # 3: status has found something wrong, and says what in its document.
    if answer.status == 0 or (name == "status" and answer.status == 3):
        return answer
    after = ""
    if restored is not None:
        back = "is back" if restored.status == 0 else "could not be put back"
        after = f"; the earlier {POLICY_YAML} {back}"
    if answer.status == _NO_COMMAND and doing.startswith("ovirt-rdma-host"):
        raise _Wrong(
            "host-command-missing",
            f"{host} has no command ovirt-rdma-host{after}",
            _INSTALL,
        )
    if answer.status == _TOO_MUCH:
        raise _Wrong(
            "host-answer-too-large",
            f"{doing} printed more than {MOST_BYTES // 1_000_000} MB on {host}",
            f"run it there, and see what it prints: {doing}",
        )
    if answer.status in _TIME_UP:
        raise _Wrong(
            "host-command-timeout",
            f"{doing} did not end in time on {host}{after}",
            f"run it there and see what it waits for: {doing}",
        )
    sentence, fix = _own_words(answer.err)
    sentence = sentence or f"exit status {answer.status}"
    raise _Wrong(
        "host-command-failed",
        f"{doing} failed on {host}: {sentence}{after}",
        fix or f"run it there: {doing}",
    )


def _mistakes(host: str, answer: Told) -> Problem:
    """Return the mistakes that the host's ``policy check`` found, as one problem."""
    fix = f"correct the policy; or, if it is right here: {_SAME_VERSION}"
    try:
        found: Any = json_value(answer.out.decode("utf-8"))
        lines = [
            f"the policy does not fit {host}: line {error['line']}: {error['key']} "
            f"{error['sentence']}"
            for error in found["errors"][:_MOST_MISTAKES]
        ]
    except (UnreadableJson, ValueError, LookupError, TypeError, RecursionError):
        lines = []
    return _Wrong(
        "host-policy-refused",
        "\n".join(lines) or f"the policy does not fit {host}",
        fix,
    )


def _own_words(err: str) -> tuple[str, str]:
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
    """Return what was packed, None where it is broken. Of more than ``most`` bytes one
    more is returned: the others are never in memory.
    """
    try:
        unzip = zlib.decompressobj(wbits=31)
        plain = unzip.decompress(base64.b64decode(text, validate=True), most + 1)
    except (binascii.Error, ValueError, zlib.error):
        return None
    return plain if unzip.eof or len(plain) > most else None


class Failure(NamedTuple):
    """A sentence on the host, and what to do."""

    sentence: str
    fix: str


# A host may say anything, and the patterns take the square of a line's length.
_MOST_LOOKED_AT = 4000
_MOST_SHOWN = 400
# What OpenSSH 9 prints around and before its last words.
_NOISE = re.compile(r"^(@+$|@ .* @$|Warning: |debug\d|OpenSSH_|\*\* |Pseudo-terminal)")
_RULES = (
    (
        r"IDENTIFICATION HAS CHANGED|Host key for .* has changed"
        r"|no matching host key type found",
        "{host} does not show the host key that {who} knows",
        "find out why, for it may be another machine; if it was installed anew: "
        "{again}",
    ),
    (
        r"host key is known for .* strict checking|Host key verification failed",
        "neither the engine nor known_hosts has the SSH host key of {host}",
        "let the engine fetch its key (Edit Host, SSH public key), or log in to it "
        "once by ssh and compare the fingerprint",
    ),
    (
        r"Permission denied|Too many authentication failures",
        "{host} does not accept the SSH key",
        "on the engine run this as root, which has the engine's key; else name one "
        "that the host accepts: --ssh-key FILE, --ssh-user USER",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "the address of {host}, {address}, has no meaning here",
        "see that its name resolves on this machine, or give ansible_host in an "
        "inventory: --inventory FILE",
    ),
    (
        r"Connection refused|Connection timed out|No route to host"
        r"|Network is unreachable|Operation timed out|banner exchange"
        r"|Connection (closed|reset)|kex_exchange_identification|not responding",
        "{host} cannot be reached by SSH on {address} port {port}: {last}",
        "see that the host runs, and that its sshd can be reached from here",
    ),
    (
        r"sudo: .*password is required|Missing sudo password|a terminal is required",
        "{host} wants a password for sudo",
        "let the user become root without one there, or log in as root",
    ),
    (
        # Of ansible-core before and from 2.19, and of our own limit.
        r"expected time frame|Timed out after \d+ second|^no answer$",
        "{host} did not answer in time",
        "see by hand what keeps it: ssh {address} ovirt-rdma-host status",
    ),
)


def in_words(host: Host, text: str, *, key_of_engine: bool = True) -> Failure:
    """Say what ``text``, of ssh or Ansible, means for ``host``.

    ``key_of_engine``: the host key came from the engine, not from known_hosts.
    """
    text = _ends_of(text)
    said = _said(text)
    last = said[-1][:_MOST_SHOWN] if said else "no words"
    own = "remove its line from known_hosts: ssh-keygen -R {address}"
    words = {
        "host": host.name,
        "address": host.address,
        "port": str(host.port),
        "last": last,
        "who": "the engine" if key_of_engine else "known_hosts",
        "again": "let the engine fetch its key again (Edit Host, SSH public key)"
        if key_of_engine
        else own.format(address=host.address),
    }
    for pattern, sentence, fix in _RULES:
        if re.search(pattern, text):
            return Failure(sentence.format_map(words), fix.format_map(words))
    return Failure(
        f"{host.name} could not be asked: {last}",
        f"try it by hand: ssh -p {host.port} {host.address} ovirt-rdma-host status",
    )


def _ends_of(text: str) -> str:
    """Return the text, of a long one its begin and its end: the message and the last
    words.
    """
    if len(text) <= 2 * _MOST_LOOKED_AT:
        return text
    return f"{text[:_MOST_LOOKED_AT]}\n{text[-_MOST_LOOKED_AT:]}"


def _said(text: str) -> Sequence[str]:
    """Return the lines that say something, without Ansible's words before them."""
    # "Task failed: " is of ansible-core 2.19.
    text = re.sub(r"(Task failed: )?Failed to connect to the host via ssh: ", "", text)
    lines = (line.strip().rstrip(".") for line in text.splitlines())
    return [line for line in lines if line and not _NOISE.match(line)]
