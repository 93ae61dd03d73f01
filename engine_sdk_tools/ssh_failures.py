# SPDX-License-Identifier: GPL-2.0-or-later
"""What OpenSSH, sudo and Ansible say of a host that could not be asked, in words. Pure.

The texts are OpenSSH's own (sshconnect.c, ssh.c) and sudo's; they are not translated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ovirt_rdma.engine_sdk_tools.engine_facts import Host


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
