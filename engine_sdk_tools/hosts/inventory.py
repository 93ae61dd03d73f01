# SPDX-License-Identifier: GPL-2.0-or-later
"""The Ansible inventory of a run, made from the engine's hosts.

Variables of the operator's own inventory come on top: another user, a jump host, a
key. What checks the host's key is not among what they can change.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import search_path
from ovirt_rdma.engine_sdk_tools.hosts.known_hosts import HostKey
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.errors import Problem, UsageProblem

# The engine's own, with which it installs hosts (AnsibleCommandConfig).
ENGINE_KEY = "/etc/pki/ovirt-engine/keys/engine_id_rsa"

_READING_S = 60.0
# What an inventory's plugin or script sees of our environment: files and programs of
# the operator, the language, Ansible's own settings, the way to servers (requests(7)
# and curl(1): proxies and authorities). Not who we are to the engine: OVIRT_PASSWORD
# and OVIRT_TOKEN are ours; nor any other secret that is exported.
_SEEN = re.compile(
    r"HOME|USER|LOGNAME|PATH|TMPDIR|TZ|LANG|LC_[A-Z]+|ANSIBLE_[A-Z0-9_]+"
    r"|(https?|all|no)_proxy|(HTTPS?|ALL|NO)_PROXY"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
# Ansible takes a {{ in a variable for a template, and ssh a leading - for an option.
_ADDRESS = re.compile(r"[0-9A-Za-z_:]([0-9A-Za-z_:.%-]*[0-9A-Za-z_.])?")
_PASSWORDS = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")
# What would reach a host by another way than the ssh that checks its key.
_OURS = re.compile(r"ansible_(ssh_)?(host_key_checking|connection|executable)")


@dataclass(frozen=True)
class Access:
    """How hosts are logged in to: ``user``, the private key's path (None: ssh finds
    one), the path of the operator's inventory, and seconds for a connection.
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
                "name the private key's file: --ssh-key FILE",
            )


def default_key(path: str = ENGINE_KEY) -> Optional[str]:
    """Return the engine's key where this is its machine and we may read it (root)."""
    return path if os.access(path, os.R_OK) else None


def is_address(text: str) -> bool:
    """Say whether an address is one that may go into an inventory."""
    return _ADDRESS.fullmatch(text) is not None


def inventory_of(
    hosts: Mapping[str, Host],
    keys: Mapping[str, HostKey],
    access: Access,
    known_hosts: str,
    theirs: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return an inventory of ``hosts``, which are by alias.

    ``keys`` (by alias) are in the file ``known_hosts``; a host without one is checked
    against the operator's own. ``theirs`` are variables by the operator's name of a
    host, which is the engine's name or address of it.
    """
    entries = {}
    for alias, host in hosts.items():
        more = {**theirs.get(host.address, {}), **theirs.get(host.name, {})}
        found = _variables(host, access, more)
        theirs_too = str(found.get("ansible_ssh_args", ""))
        interactive = any(found.get(name) for name in _PASSWORDS)
        ours = _ssh_options(alias, keys.get(alias), access, known_hosts)
        if not interactive:
            ours += ["-o", "BatchMode=yes"]
        # ssh takes the first value of an option, so that ours come first.
        found["ansible_ssh_args"] = f"{shlex.join(ours)} {theirs_too}".strip()
        entries[alias] = found
    return {"all": {"hosts": entries}}


def _variables(host: Host, access: Access, more: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": access.user,
    }
    if access.key:
        found["ansible_ssh_private_key_file"] = access.key
    found.update(
        (name, value)
        for name, value in more.items()
        if name.startswith("ansible_") and not _OURS.fullmatch(name)
    )
    user = found.get("ansible_ssh_user", found["ansible_user"])
    found.setdefault("ansible_become", user != "root")
    # A terminal would end the script with the connection, in the middle.
    found["ansible_ssh_use_tty"] = False
    found["ansible_connection"] = "ssh"
    found["ansible_host_key_checking"] = True
    return found


def _ssh_options(
    alias: str, key: Optional[HostKey], access: Access, known_hosts: str
) -> list[str]:
    """Return the options of ssh, see ssh_config(5)."""
    options = ["StrictHostKeyChecking=yes", "VerifyHostKeyDNS=no", "UpdateHostKeys=no"]
    if key:
        file = known_hosts.replace("%", "%%")
        options += [
            f"HostKeyAlias={alias}",
            "CheckHostIP=no",
            f'UserKnownHostsFile="{file}"',
            "GlobalKnownHostsFile=/dev/null",
            # Of OpenSSH 8.5; it would be a second source of keys.
            "IgnoreUnknown=KnownHostsCommand",
            "KnownHostsCommand=none",
            f"HostKeyAlgorithms={key.algorithms}",
        ]
    options += [
        # No master is left behind, and none is used that checked nothing.
        "ControlMaster=no",
        "ControlPath=none",
        # A host gets nothing of the operator's machine: no agent, Kerberos ticket,
        # display or port, and starts no command there. The agent itself is needed to
        # log in.
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
    """Return the variables of each host of the operator's inventory, by its name.

    Whatever Ansible can read: ini, YAML, a folder, a plugin's source. It gets a part
    of our environment. Raises Problem where it cannot.
    """
    if not Path(path).exists():
        raise UsageProblem(
            "inventory-missing",
            f"there is no inventory {path}",
            "name the file: --inventory FILE",
        )
    program = shutil.which(command[0], path=search_path())
    words = [program or command[0], *command[1:], "--inventory", path, "--list"]
    words_again = shlex.join(["ansible-inventory", "--inventory", path, "--list"])
    fix = (
        f"try it: {words_again}; of the environment it gets HOME, PATH, the language "
        "and ANSIBLE_* only"
    )
    try:
        done = subprocess.run(
            words,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={k: v for k, v in os.environ.items() if _SEEN.fullmatch(k)},
            timeout=_READING_S,
        )
    except subprocess.TimeoutExpired:
        raise Problem(
            "inventory-timeout",
            f"the inventory {path} was not read within {_READING_S:g} s",
            fix,
        ) from None
    except OSError as error:
        raise Problem(
            "ansible-missing",
            f"{command[0]} cannot be run: {error.strerror}",
            "install the package ansible-core",
        ) from None
    try:
        if done.returncode:
            raise ValueError(_last_line(done.stderr))
        found = json.loads(done.stdout)["_meta"]["hostvars"]
        return {str(name): dict(values) for name, values in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(
            "inventory-unreadable", f"the inventory {path} cannot be read: {error}", fix
        ) from None


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "Ansible said nothing"
