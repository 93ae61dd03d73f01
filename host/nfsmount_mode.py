# SPDX-License-Identifier: GPL-2.0-or-later
"""The file of mode nfsmount for this host: made from facts and policy, and proven."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ovirt_rdma.host import policy_store, vdsm_conf
from ovirt_rdma.host.commands import CommandFailed, Runner
from ovirt_rdma.host.nfsmount_conf import (
    NfsmountRefused,
    Rendered,
    Resolver,
    render,
)
from ovirt_rdma.host.nfsmount_conf_file import families_of, with_header
from ovirt_rdma.host.nfsmount_conf_proof import (
    lost,
    prove,
    read_settings,
    wanted_settings,
)
from ovirt_rdma.host.paths import (
    NFSMOUNT_CONF,
    NFSMOUNT_FILE,
    POLICY_JSON,
    VDSM_MOUNTS,
    under,
)
from ovirt_rdma.host.policy import Policy


@dataclass(frozen=True)
class WantedFile:
    """The whole text that should stand in our place, and what to say about it."""

    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FileReview:
    """Our file held against the policy in force: how many exports it names, and what
    is wrong, as (sentence, fix).
    """

    exports: int
    findings: tuple[tuple[str, str], ...]


def stored_policy(root: Path) -> Policy:
    """Return the policy in force below ``root``, an empty one before the first load.

    Raises StoredPolicyProblem where it cannot be read.
    """
    stored = policy_store.read(under(root, POLICY_JSON))
    return Policy() if stored is None else stored.policy


def wanted_file(
    policy: Policy, root: Path, resolve: Resolver, run: Optional[Runner]
) -> WantedFile:
    """Return what ``policy`` makes of our file on the host below ``root``.

    Proven with ``run``; None, for a tree that is no host, leaves that out. Raises
    NfsmountRefused where this mode, or this host's mount.nfs, cannot do it.
    """
    for sentence, fix in _mounts_elsewhere(root):
        raise NfsmountRefused(sentence, fix)
    rendered = render(policy, resolve)
    text = with_header(rendered.text)
    if run is not None:
        prove(rendered, text, root, run)
    return WantedFile(text, rendered.notes)


def review(text: str, policy: Policy, root: Path, run: Optional[Runner]) -> FileReview:
    """Hold our file ``text`` against ``policy``, and against what mount.nfs reads.

    No name is resolved: families are those that the file has.
    """
    findings = _mounts_elsewhere(root)
    try:
        rendered = render(policy, families_of(text))
    except NfsmountRefused as refused:
        sentence = "The policy in force does not fit mode nfsmount: " + "; ".join(
            str(refused).splitlines()
        )
        return FileReview(0, (*findings, (sentence, refused.fix)))
    if with_header(rendered.text) != text:
        findings.append(
            (
                f"{NFSMOUNT_FILE} is not what the policy in force says",
                "ovirt-rdma-host enable --mode nfsmount",
            )
        )
    elif run is not None:
        findings += _unread(rendered, root, run)
    return FileReview(len(rendered.sections), tuple(findings))


def _mounts_elsewhere(root: Path) -> list[tuple[str, str]]:
    """Say where VDSM does not mount below VDSM_MOUNTS, so that no section counts."""
    problems: list[str] = []
    folder = vdsm_conf.mounts_folder(root, problems)
    if folder is None:
        fix = f"correct it below {vdsm_conf.FOLDERS}"
        return [(problem, fix) for problem in problems]
    if folder == VDSM_MOUNTS:
        return []
    option = vdsm_conf.REPOSITORY
    return [
        (
            f"vdsm.conf sets [irs] {option}, so VDSM mounts below {folder}; in mode "
            f"nfsmount only mounts below {VDSM_MOUNTS} can be over RDMA",
            f"remove it (grep -r {option} {vdsm_conf.FOLDERS}) and restart vdsmd, or "
            "use mode vdsmd",
        )
    ]


def _unread(rendered: Rendered, root: Path, run: Runner) -> list[tuple[str, str]]:
    try:
        found = read_settings(root, run)
    except (OSError, CommandFailed) as failed:
        sentence = f"What mount.nfs reads cannot be told: nfsconf failed: {failed}"
        return [(sentence, "install the package that has mount.nfs (nfs-utils)")]
    gone = lost(wanted_settings(rendered), found)
    if not gone:
        return []
    return [
        (
            f"mount.nfs does not read {', '.join(gone)}: another section is in the way",
            f"nfsconf --file {NFSMOUNT_CONF} --dump shows what it reads; remove other "
            "MountPoint sections, or update nfs-utils (corrected in 2.8.3)",
        )
    ]
