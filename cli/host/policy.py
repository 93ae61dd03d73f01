# SPDX-License-Identifier: GPL-2.0-or-later
"""``policy check``, ``policy load`` and ``policy show``.

The ``host:`` part of a policy for people, and how much a policy says.

``policy check``, ``policy load`` and ``policy show``.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Union

from ovirt_rdma.cli.host.arguments import export_of
from ovirt_rdma.cli.output import Screen, count
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.paths import POLICY_JSON, POLICY_YAML, under
from ovirt_rdma.host.policy.diagnostics import PolicyProblem, Remark
from ovirt_rdma.host.policy.json_form import host_to_json_dict
from ovirt_rdma.host.policy.model import (
    TCP,
    HostPolicy,
    InterfaceRule,
    NfsRule,
    Policy,
    rule_for,
)
from ovirt_rdma.host.policy.store import in_force, store


def policy_counts(policy: Policy) -> str:
    """Return ``2 NFS rules, 1 interface``; of the host part only what there is."""
    host = policy.host
    parts = [count(len(policy.nfs.rules), "NFS rule")]
    for things, noun in (
        (host.interfaces, "interface"),
        (host.modules, "module"),
        (host.module_options, "module option"),
    ):
        if things:
            parts.append(count(len(things), noun))
    return ", ".join(parts)


def show_host(host: HostPolicy, screen: Screen) -> None:
    """Add what the host part says, below the rest; nothing for an empty one."""
    if host.interfaces:
        screen.line()
        screen.table(
            ("INTERFACE", "MODE", "MTU", "TSO", "PORT_MTU", "CHILDREN", "MATCH"),
            [
                (
                    rule.name,
                    _shown(rule.transport_mode),
                    _shown(rule.mtu),
                    _shown(rule.tso),
                    _shown(rule.port_mtu),
                    ",".join(rule.pkey_children) or _shown(rule.partitions),
                    " ".join(_match(rule)),
                )
                for rule in host.interfaces
            ],
        )
        number = len(host.interfaces)
        order = "; the first that names a netdev wins" if number > 1 else ""
        screen.line(f"{count(number, 'interface')}{order}; - leaves it as it is.")
    pairs = [("module", name) for name in host.modules]
    pairs += [
        ("module option", f"{option.module} {option.name}={option.value}")
        for option in host.module_options
    ]
    if host.follows_partitions:
        pairs.append(("P_Key tables", f"looked at every {host.partitions_interval} s"))
    if pairs:
        screen.line()
        screen.fields(pairs)


def _match(rule: InterfaceRule) -> Iterator[str]:
    for key in ("link_layer", "device", "pci", "port", "guid", "pkey"):
        value = getattr(rule, key)
        if value is not None:
            yield f"{key}={value}"


def _shown(value: Union[str, int, None]) -> str:
    return "-" if value is None else str(value)


if TYPE_CHECKING:
    from ovirt_rdma.host.policy.load import PolicyFile


def check(words: Namespace, screen: Screen) -> int:
    """Say whether a policy file is in order: 0, or 3 with all mistakes.

    Raises PolicyProblem where there is nothing to check, because the file cannot
    be read.
    """
    from ovirt_rdma.host.policy.load import load_policy_file

    path = _file(words)
    errors: tuple[Remark, ...] = ()
    warnings: tuple[Remark, ...] = ()
    fix, counts = "", ""
    try:
        found = load_policy_file(path)
        warnings = found.warnings
        counts = policy_counts(found.policy)
    except PolicyProblem as problem:
        if isinstance(problem.__cause__, OSError):
            raise
        errors, fix = problem.errors, problem.fix
    if screen.for_people:
        for remark in errors:
            screen.line(remark.at(str(path)))
        for remark in warnings:
            screen.line(f"{remark.at(str(path))} (warning)")
        if errors:
            screen.line(f"{path} is not in order: {count(len(errors), 'mistake')}.")
            screen.fix(fix)
        else:
            screen.line(f"{path} is in order: {counts}.")
    else:
        screen.document(
            "policy-check",
            {
                "file": str(path),
                "in_order": not errors,
                "errors": list(map(_remark, errors)),
                "warnings": list(map(_remark, warnings)),
            },
        )
    return 3 if errors else 0


def _remark(remark: Remark) -> dict[str, object]:
    return {"id": remark.sentence.id, **remark._asdict()}


def load(words: Namespace, screen: Screen) -> int:
    """Validate a policy file and put it into force."""
    from ovirt_rdma.host.enablement.state import MODE_NFSMOUNT, marker_mode
    from ovirt_rdma.host.policy.load import load_policy_file
    from ovirt_rdma.host.system.lock import one_run

    path = _file(words)
    found = load_policy_file(path, own=True)
    _warn(found, path, screen)
    source, place = str(path.absolute()), under(words.root, POLICY_JSON)
    with one_run(words.root, by="policy load"):
        result = store(found.policy, source, place)
    remarks = list(result.remarks)
    if marker_mode(Path(words.root)) == MODE_NFSMOUNT:
        remarks.append(
            "mode nfsmount of an earlier version is on, and its file does not follow "
            "the policy any more; ovirt-rdma-host status says what to do"
        )
    for remark in remarks:
        screen.message(f"warning: {remark}")
    if screen.for_people:
        verb = "is in force now" if result.changed else "was in force already"
        counts = policy_counts(found.policy)
        screen.line(f"{path} {verb}: {counts}, {result.stored.digest}.")
    else:
        screen.document(
            "policy-load",
            {
                "file": str(path),
                "changed": result.changed,
                "digest": result.stored.digest,
                "rules": len(found.policy.nfs.rules),
                "interfaces": len(found.policy.host.interfaces),
                "modules": len(found.policy.host.modules),
                "module_options": len(found.policy.host.module_options),
                "notes": remarks,
            },
        )
    return 0


def show(words: Namespace, screen: Screen) -> int:
    """Show the whole policy, or the rule that wins for an export and why."""
    export = None if words.export is None else export_of(words.export)
    policy, source = policy_in_question(words, screen)
    if export is None:
        _show_policy(policy, source, screen)
    else:
        _show_rule_for(policy, source, export, screen)
    return 0


def policy_in_question(words: Namespace, screen: Screen) -> tuple[Policy, str]:
    """Return the policy of --policy, or the one in force, and where it is from.

    What looks odd in a policy file goes to stderr.
    """
    if words.policy is not None:
        from ovirt_rdma.host.policy.load import load_policy_file

        path = Path(words.policy)
        found = load_policy_file(path)
        _warn(found, path, screen)
        return found.policy, str(path)
    counts = in_force(under(words.root, POLICY_JSON))
    stored, problem = counts.stored, counts.problem
    if problem is not None and stored is None:
        raise problem
    if problem is not None:
        screen.message(f"warning: {problem}; {counts.consequence}; fix: {problem.fix}")
    if stored is None:
        return Policy(), "no policy is loaded"
    of_copy = ", of the copy" if problem else ""
    return stored.policy, f"{stored.source}, loaded {stored.loaded_at}{of_copy}"


def _file(words: Namespace) -> Path:
    if words.file is None:
        return under(words.root, POLICY_YAML)
    return Path(words.file)


def _warn(found: PolicyFile, path: Path, screen: Screen) -> None:
    for remark in found.warnings:
        screen.message(f"warning: {remark.at(str(path))}")


def _show_policy(policy: Policy, source: str, screen: Screen) -> None:
    if screen.for_people:
        _show_rules(policy.nfs.rules, source, screen)
        show_host(policy.host, screen)
        return
    screen.document(
        "policy",
        {
            "source": source,
            "nfs": {"rules": [asdict(rule) for rule in policy.nfs.rules]},
            "host": host_to_json_dict(policy.host),
        },
    )


def _show_rules(rules: tuple[NfsRule, ...], source: str, screen: Screen) -> None:
    if not rules:
        screen.line(f"No NFS rule: VDSM mounts every export as stock ({source}).")
        return
    screen.table(
        ("RULE", "SERVER", "PATH", "TRANSPORT", "PORT", "OPTIONS"),
        [
            (r.name, r.server, r.path, r.transport, _port(r), r.options or "-")
            for r in rules
        ],
    )
    order = "; the first that names an export wins" if len(rules) > 1 else ""
    screen.line(f"{count(len(rules), 'NFS rule')}{order} ({source}).")


def _show_rule_for(policy: Policy, source: str, export: Export, screen: Screen) -> None:
    match = rule_for(policy, export)
    if not screen.for_people:
        found = None
        if match:
            found = {**asdict(match.rule), "reason": match.reason}
        screen.document(
            "policy-rule", {"export": str(export), "source": source, "rule": found}
        )
        return
    if match is None:
        screen.line(f"No rule names {export}: VDSM mounts it as stock ({source}).")
        return
    rule = match.rule
    screen.fields(
        (
            ("export", str(export)),
            ("rule", _rule_name(rule)),
            ("why", match.reason),
            ("transport", rule.transport),
            ("port", _port(rule)),
            ("options", rule.options or "-"),
            ("policy", source),
        )
    )


def _port(rule: NfsRule) -> str:
    return "-" if rule.transport == TCP else str(rule.port)


def _rule_name(rule: NfsRule) -> str:
    plain = f"rule {rule.number}"
    return plain if rule.name == plain else f"{rule.name} ({plain})"
