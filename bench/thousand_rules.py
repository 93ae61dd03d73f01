# SPDX-License-Identifier: GPL-2.0-or-later
"""Make policies with any number of rules, and exports that these name. Pure."""

from __future__ import annotations

from ovirt_rdma.host.policy.model import REQUIRE_RDMA, NfsPolicy, NfsRule, Policy

MANY = 1000

# Named by the first rule, by the last of MANY, and by none.
FIRST = "10.20.0.0:/exports/vm0"
LAST = f"rack{MANY - 1}-a.example.org:/exports/vm"
NONE = "192.0.2.1:/exports/vm"


def policy(rules: int) -> Policy:
    """Return a policy with ``rules`` rules, alternating between an address, a network,
    a name and a glob; half of them have a path.
    """
    kinds = (_address, _network, _name, _glob)
    return Policy(
        nfs=NfsPolicy(tuple(kinds[n % len(kinds)](n, n + 1) for n in range(rules)))
    )


def last(rules: int) -> str:
    """Return an export that the last of ``rules`` rules names, and no other: 1 or a
    multiple of 4.
    """
    if rules == 1:
        return FIRST
    return f"rack{rules - 1}-a.example.org:/exports/vm"


def yaml_text(rules: int) -> str:
    """Return policy.yaml for :func:`policy` with the same number."""
    lines = ["version: 1", "nfs:", "  rules:"]
    for rule in policy(rules).nfs.rules:
        lines += [
            f"    - name: {rule.name}",
            f'      server: "{rule.server}"',
            f'      path: "{rule.path}"',
            f"      transport: {rule.transport}",
            f"      options: {rule.options}",
        ]
    return "\n".join(lines) + "\n"


def _address(index: int, number: int) -> NfsRule:
    server = f"10.20.{index // 256}.{index % 256}"
    return _rule(number, server, f"/exports/vm{index}")


def _network(index: int, number: int) -> NfsRule:
    return _rule(number, f"10.{64 + index // 256}.{index % 256}.0/24", "*")


def _name(index: int, number: int) -> NfsRule:
    return _rule(number, f"nas{index}.example.org", "/exports/*")


def _glob(index: int, number: int) -> NfsRule:
    return _rule(number, f"rack{index}-*.example.org", "*")


def _rule(number: int, server: str, path: str) -> NfsRule:
    return NfsRule(
        number,
        f"storage-{number}",
        server,
        path,
        REQUIRE_RDMA,
        options="rsize=1048576,wsize=1048576",
    )
