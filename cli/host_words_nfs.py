# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of ``nfs list``, ``nfs check`` and ``nfs mount-options``."""

from __future__ import annotations

from ovirt_rdma.cli.host_options import takes_facts, takes_policy
from ovirt_rdma.cli.words import Parser, add_verbs, be_verb
from ovirt_rdma.storage.vdsm_options import AUTO, VERSIONS


def nfs(made: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(made)
    group.add("list", "list all NFS mounts with their transport, proven", _list)
    group.add(
        "check", "say step by step whether an export can be mounted over RDMA", _check
    )
    group.add(
        "mount-options",
        "show the option string that VDSM passes to mount, and why",
        _mount_options,
    )


def _list(made: Parser) -> None:
    be_verb(
        made,
        "nfs_list_verb:show",
        codes="0 listed; with --exit-code 3 if a mount is not as its rule says",
        examples=("", "--exit-code", "-v --facts hv1.json"),
    )
    takes_policy(made)
    made.add_argument(
        "--exit-code",
        action="store_true",
        help="exit 3 if a mount is degraded, unproven or not covered",
    )
    made.add_argument(
        "-v", "--verbose", action="store_true", help="also show the proof of each mount"
    )
    takes_facts(made)


def _check(made: Parser) -> None:
    be_verb(
        made,
        "nfs_check_verb:check",
        codes="0 ready, 3 a step failed or could not be tried",
        examples=(
            "nas1:/export/vm",
            "--nfs-version 3 '[fd00:20::1]:/export/vm'",
        ),
        more="Mounts nothing. With --facts no network is asked, not even for a name.\n"
        "Port and time limits are those of the rule that names the export, or else\n"
        "built-in defaults.",
    )
    _export(made)
    takes_policy(made)
    _nfs_version(made)
    takes_facts(made)


def _mount_options(made: Parser) -> None:
    be_verb(
        made,
        "nfs_options_verb:show",
        codes="0 printed, 3 the policy refuses the mount",
        examples=(
            "nas1:/export/vm --nfs-version 4.2",
            "nas1:/export/vm --engine-options rdma,port=20049",
        ),
        more="Mounts nothing. With --facts no network is asked, not even for a name.",
    )
    _export(made)
    takes_policy(made)
    made.add_argument(
        "--engine-options",
        metavar="OPTIONS",
        default="",
        help="the storage connection's additional mount options",
    )
    _nfs_version(made)
    takes_facts(made)


def _export(made: Parser) -> None:
    made.add_argument("export", metavar="SERVER:/PATH", help="as the engine has it")


def _nfs_version(made: Parser) -> None:
    made.add_argument(
        "--nfs-version",
        choices=VERSIONS,
        default=AUTO,
        help="the storage connection's NFS version; default: auto",
    )
