# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of ``ovirt-rdma-host``: its verbs and options, and what help says."""

from __future__ import annotations

import argparse

from ovirt_rdma.cli.words import Parser, add_group, add_verb, add_verbs, file_name
from ovirt_rdma.host import __version__
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.storage.vdsm_options import AUTO, VERSIONS

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from ovirt_rdma.cli.words import Verbs

PROGRAM = "ovirt-rdma-host"

_EXIT_CODES = """\
exit codes:
  0    done, or nothing to do
  1    failed
  2    wrong words on the command line
  3    checks failed
  4    refused as unsafe
  75   another run is changing this host
  130  interrupted

'{program} VERB --help' shows a verb's options and examples;
{program}(8) is the manual."""

_EXPORT = "SERVER:/PATH"


def parser() -> Parser:
    """Build the parser of all verbs."""
    top = Parser(
        prog=PROGRAM,
        description="See and set how this oVirt hypervisor uses RDMA.",
        epilog=_EXIT_CODES.format(program=PROGRAM),
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = add_verbs(top)
    _facts(verbs)
    _policy(verbs)
    _nfs(verbs)
    _enablement(verbs)
    return top


def _facts(verbs: Verbs) -> None:
    facts = add_verb(
        verbs,
        "facts",
        "facts_verb:show",
        "show what is true of this host",
        codes="0 printed",
        examples=(
            "",
            "-o json > hv1.json       # for --facts, or for a bug report",
            "--route-to 10.20.0.1",
        ),
    )
    facts.add_argument(
        "--route-to",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="also read the route to this server address; may be given again",
    )
    _reads(facts)


def _policy(verbs: Verbs) -> None:
    group = add_group(verbs, "policy", "check, load and explain the policy")
    file_help = f"the policy file; default: {POLICY_YAML}"
    check = add_verb(
        group,
        "check",
        "policy_verbs:check",
        "say whether a policy file is in order",
        codes="0 in order, 1 it cannot be read, 3 it has mistakes",
        examples=("", "new.yaml"),
    )
    check.add_argument(
        "file", metavar="FILE", nargs="?", type=file_name, help=file_help
    )
    load = add_verb(
        group,
        "load",
        "policy_verbs:load",
        "put the policy file into force",
        codes="0 in force, 1 not in order or not stored, 4 mode nfsmount is on and\n"
        "cannot carry it, 75 another run is changing this host",
        examples=("", "new.yaml"),
        more="vdsmd follows with its next connect, or mount.nfs with its next mount;\n"
        "mounts that are there stay as they are.",
    )
    load.add_argument("file", metavar="FILE", nargs="?", type=file_name, help=file_help)
    _acts(load)
    show = add_verb(
        group,
        "show",
        "policy_verbs:show",
        "show the policy in force, or which of its rules names an export",
        codes="0 printed, also where no rule names the export",
        examples=(
            "",
            "--export nas1:/export/vm",
            "--policy new.yaml --export nas1:/export/vm",
        ),
    )
    show.add_argument(
        "--export", metavar=_EXPORT, help="say which rule names it, and why"
    )
    _policy_file(show)


def _policy_file(made: Parser) -> None:
    made.add_argument(
        "--policy",
        metavar="FILE",
        type=file_name,
        help="a policy file, in place of the one in force",
    )


def _nfs(verbs: Verbs) -> None:
    group = add_group(verbs, "nfs", "list NFS mounts, check and explain exports")
    listed = add_verb(
        group,
        "list",
        "nfs_list_verb:show",
        "list all NFS mounts with their transport, proven",
        codes="0 listed; with --exit-code 3 if a mount is not as its rule says",
        examples=("", "--exit-code", "-v --facts hv1.json"),
    )
    _policy_file(listed)
    listed.add_argument(
        "--exit-code",
        action="store_true",
        help="exit 3 if a mount is degraded or unproven",
    )
    listed.add_argument(
        "-v", "--verbose", action="store_true", help="also show the proof of each mount"
    )
    _reads(listed)
    check = add_verb(
        group,
        "check",
        "nfs_check_verb:check",
        "say step by step whether an export can be mounted over RDMA",
        codes="0 ready, 3 a step failed or could not be tried",
        examples=(
            "nas1:/export/vm",
            "--nfs-version 3 '[fd00:20::1]:/export/vm'",
        ),
        more="Mounts nothing. With --facts no network is asked, not even for a name.\n"
        "Port and time limits are those of the rule that names the export, or else\n"
        "built-in defaults.",
    )
    check.add_argument("export", metavar=_EXPORT, help="as the engine has it")
    _policy_file(check)
    _nfs_version(check)
    _reads(check)
    options = add_verb(
        group,
        "mount-options",
        "nfs_options_verb:show",
        "show the option string that VDSM passes to mount, and why",
        codes="0 printed, 3 the policy refuses the mount",
        examples=(
            "nas1:/export/vm --nfs-version 4.2",
            "nas1:/export/vm --engine-options rdma,port=20049",
        ),
        more="Mounts nothing. With --facts no network is asked, not even for a name.",
    )
    options.add_argument("export", metavar=_EXPORT, help="as the engine has it")
    _policy_file(options)
    options.add_argument(
        "--engine-options",
        metavar="OPTIONS",
        default="",
        help="the storage connection's additional mount options",
    )
    _nfs_version(options)
    _reads(options)


def _nfs_version(made: Parser) -> None:
    made.add_argument(
        "--nfs-version",
        choices=VERSIONS,
        default=AUTO,
        help="the storage connection's NFS version; default: auto",
    )


def _enablement(verbs: Verbs) -> None:
    codes = (
        "0 done or nothing to do, 1 failed, 4 refused as unsafe,\n"
        "75 another run is changing this host"
    )
    more = "A second run changes nothing. "
    enable = add_verb(
        verbs,
        "enable",
        "enablement_verbs:enable",
        "let the policy decide how NFS storage is mounted",
        codes=codes,
        examples=("", "--restart-vdsmd", "--mode nfsmount"),
        more=f"{more}Mode vdsmd puts the policy into vdsmd, from its\n"
        "next start on. Mode nfsmount writes the exports that the policy names into a\n"
        "file that mount.nfs reads, and refuses what that cannot carry; nothing of it\n"
        "runs inside vdsmd, and nothing is restarted. Only one mode can be on.",
    )
    enable.add_argument(
        "--mode", default="vdsmd", help="vdsmd, which is the default, or nfsmount"
    )
    disable = add_verb(
        verbs,
        "disable",
        "enablement_verbs:disable",
        "take back what enable did",
        codes=codes,
        examples=("", "--restart-vdsmd"),
        more=f"{more}vdsmd goes on as it is until it is restarted.",
    )
    for made in (enable, disable):
        made.add_argument(
            "--restart-vdsmd", action="store_true", help="restart vdsmd right away"
        )
        _acts(made)
    add_verb(
        verbs,
        "status",
        "status_verb:status",
        "show what is enabled, installed, running and loaded",
        codes="0 printed",
        examples=("", "-o json"),
    )


def _reads(made: Parser) -> None:
    made.add_argument(
        "--facts",
        metavar="FILE",
        type=file_name,
        help="read a host's facts file, from 'facts -o json', in place of this host",
    )


def _acts(made: Parser) -> None:
    # Taken only to be refused in a sentence.
    made.add_argument(
        "--facts", dest="refused_facts", nargs="?", const="", help=argparse.SUPPRESS
    )
