# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide hostile output of a hypervisor, in place of that of ovirt-rdma-host.

Each is a text as ``playbooks/tell.sh`` sends it, made from a host's honest facts,
status and policy.
"""

from __future__ import annotations

import base64
import copy
import gzip
import json
from collections.abc import Callable
from typing import Any, Optional

Json = dict[str, Any]


def line(name: str, out: bytes, status: str = "0", err: bytes = b"") -> str:
    """Return the output of ``tell`` for one command."""
    return f"\novirt-rdma-told {name} {status} {packed(out)} {packed(err)}\n"


def packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 1, mtime=0)).decode("ascii")


def told(facts: Any, status: Any, policy: Optional[Any] = None) -> str:
    """Return the answer to ``report.sh``; bytes and texts are unchanged."""
    text = line("facts", _bytes(facts)) + line("status", _bytes(status))
    return text if policy is None else text + line("policy", _bytes(policy))


def _bytes(content: Any) -> bytes:
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode("utf-8", "surrogatepass")
    return json.dumps(content).encode("ascii")


def _status(*path: str, value: Any) -> Callable[[Json, Json, str], str]:
    """Return an answer whose status has another value at ``path``."""

    def made(facts: Json, status: Json, policy: str) -> str:
        return told(facts, _with(status, path, value), policy)

    return made


def _with(document: Json, path: tuple[str, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def _raw(text: str, key: str, raw: str) -> str:
    """Return JSON in which ``key`` has the text ``raw`` as its value."""
    return json.dumps({**json.loads(text), key: "@"}).replace('"@"', raw)


def many_mounts(facts: Json, number: int, version: str = "3") -> Json:
    """Return facts with ``number`` more NFS mounts, over TCP, of another server."""
    mount = {
        "options": "rw",
        "version": version,
        "protocol": "tcp",
        "port": None,
        "address": "192.0.2.9",
        "age_s": 600,
        "server_program": None,
        "protocols": ["tcp"],
    }
    others = [
        {"source": f"nas:/x{n}", "mountpoint": f"/mnt/{n}", **mount}
        for n in range(number)
    ]
    return {**facts, "nfs_mounts": [*facts["nfs_mounts"], *others]}


def many_rules(number: int) -> str:
    rules = "".join(
        f"  - {{server: nfs1.example.com, path: /exports/{n}, transport: tcp}}\n"
        for n in range(number)
    )
    return f"version: 1\nnfs:\n  rules:\n{rules}"


_BOMB = b" " * 50_000_000
_ALIASES = "\n".join(
    ["a: &a [x, x, x, x, x, x, x, x, x]"]
    + [
        f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]"
        for a, b in zip("abcdefgh", "bcdefghi")
    ]
)

# By name. Each gets the host's honest facts, status and policy.
HOSTILE: dict[str, Callable[[Json, Json, str], str]] = {
    "exit status of 5000 digits": lambda f, s, p: (
        line("facts", _bytes(f), "9" * 5000) + line("status", b"{}")
    ),
    "exit status in other digits": lambda f, s, p: line("facts", _bytes(f), "\u0663"),
    "exit status -1": lambda f, s, p: line("facts", _bytes(f), "-1"),
    "digest is a number": _status("policy", "digest", value=1),
    "digest is a list": _status("policy", "digest", value=["sha256:1"]),
    "digest is an object": _status("policy", "digest", value={"sha256": "1"}),
    "digest is NaN": lambda f, s, p: told(
        f, json.dumps(_with(s, ("policy", "digest"), float("nan"))), p
    ),
    "policy is a string": _status("policy", value="sha256:1"),
    "policy is a list": _status("policy", value=["digest"]),
    "status is a list": _status(value=[1]),
    "status is null": _status(value=None),
    "enabled is a string": _status("enabled", value="vdsmd"),
    "mode is a list": _status("enabled", "mode", value=["vdsmd"]),
    "package is a number": _status("package", value=2),
    "version is a number": _status("version", value=2),
    "package has objects": _status("package", value={"launcher": {}}),
    "running is a string": _status("running", value="launcher"),
    "program is an object": _status("running", "program", value={}),
    "problem is a list": _status("policy", "problem", value=[["x"]]),
    "number of 5000 digits": lambda f, s, p: told(
        f, _raw(json.dumps(s), "schema_version", "1" * 5000), p
    ),
    "age of 400 digits": lambda f, s, p: told(
        json.dumps(many_mounts(f, 1)).replace('"age_s": 600', f'"age_s": 1{"0" * 400}'),
        s,
        p,
    ),
    "a key twice": lambda f, s, p: told(f, '{"policy": {}, ' + json.dumps(s)[1:], p),
    "nested 100,000 deep": lambda f, s, p: told(
        f, b'{"policy": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", p
    ),
    "version nested 900 deep": lambda f, s, p: told(
        _raw(json.dumps(f), "schema_version", "[" * 900 + "]" * 900), s, p
    ),
    "a bomb of 50 MB": lambda f, s, p: told(_BOMB, s, p),
    "bombs under many names": lambda f, s, p: "".join(
        line(f"n{n}", _BOMB[:1_000_000]) for n in range(50)
    ),
    "a policy of 16 MB": lambda f, s, p: told(f, s, "#" * 16_000_000),
    "a policy of 300 kB": lambda f, s, p: told(f, s, many_rules(4000)),
    "a policy of aliases": lambda f, s, p: told(f, s, _ALIASES),
    # As the file and the drop-ins were joined once.
    "a policy that looks like several files": lambda f, s, p: told(
        f, s, '{"policy.yaml": 5, "policy.d": {}}'
    ),
    "a policy of files in files": lambda f, s, p: told(
        f, s, json.dumps({"policy.yaml": p, "policy.d": {"50-a.yaml": 5}})
    ),
    "a drop-in of aliases": _status(
        "policy", "drop_ins", value={"50-a.yaml": _ALIASES}
    ),
    "drop-ins of 300 kB": _status(
        "policy", "drop_ins", value={f"10-{n}.yaml": "#" * 300 for n in range(1000)}
    ),
    "4,000 mounts": lambda f, s, p: told(many_mounts(f, 4000), s, p),
    "nothing at all": lambda f, s, p: "",
    "words only": lambda f, s, p: "Host key for " * 2_000,
}
