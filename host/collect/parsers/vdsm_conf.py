# SPDX-License-Identifier: GPL-2.0-or-later
"""The settings of vdsm.conf that go around the policy, read as VDSM reads them.

Files and order are those of VDSM's lib/vdsm/common/config.py.in.
"""

from __future__ import annotations

import configparser
import io
import posixpath
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.paths import VDSM_CONF, VDSM_CONF_DROPIN_DIRECTORIES, under
from ovirt_rdma.host.system.tree import FileTree

SECTION = "irs"
OPTION = "nfs_mount_options"
# VDSM's default, and what it compares with (NFSConnection.DEFAULT_OPTIONS).
DEFAULT = "soft,nosharecache"

# VDSM's own (init/systemd/vdsm-tmpfiles.d.conf.in).
_RUN = "/run/vdsm"
# Of all drop-ins there together, which may be one file with many names; reading takes
# some 400 nanoseconds a byte. A drop-in has some settings, of some 30 bytes each.
_MOST_BYTES_OF_OTHERS = 1 << 18

# Where the files are, for a fix that says what to do.
FOLDERS = "/etc/vdsm /run/vdsm /usr/lib/vdsm"


def nfs_mount_options(root: Union[str, Path], problems: list[str]) -> Optional[str]:
    """Return VDSM's deprecated ``[irs] nfs_mount_options``, as a VDSM that starts now
    below ``root`` would have it; DEFAULT where no file sets it.

    None, with a sentence in ``problems``, where the files are broken, with which
    VDSM itself does not start. Files that cannot be opened are passed over, as VDSM
    does; of those that VDSM's user may have made, with a sentence.
    """
    parser = configparser.ConfigParser(interpolation=None)
    # In the section itself, so that a [DEFAULT] of the files does not count.
    parser.read_dict({SECTION: {OPTION: DEFAULT}})
    tree, left = FileTree(root), _MOST_BYTES_OF_OTHERS
    try:
        for path, others in ((VDSM_CONF, ""), *_dropins(tree)):
            passed_over: list[str] = []
            data = tree.data(path, passed_over, others=others)
            left -= len(data or b"") if others else 0
            if left < 0:
                words = f"{others} has more than {_MOST_BYTES_OF_OTHERS} bytes of them"
                raise _Refused(words)
            if data is not None:
                with io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") as file:
                    parser.read_file(file, source=str(under(root, path)))
            elif others:
                problems += passed_over
        return _plain(parser.get(SECTION, OPTION))
    except (configparser.Error, UnicodeDecodeError, _Refused) as error:
        words = " ".join(str(error).split())
        problems.append(f"vdsm.conf or a drop-in of it cannot be read: {words}")
        return None


class _Refused(ValueError):
    """It takes too long to read, or too much memory."""


def _plain(value: str) -> str:
    """Return ``value`` with ``%%`` as the one that it stands for. Raises _Refused for
    another: a name in it stands for a value that may have names, so that 1 kB can
    become more than a host has memory for, and VDSM's user may have written it.
    """
    if "%" in value.replace("%%", ""):
        raise _Refused(f"{OPTION} has a % for another setting, which is not followed")
    return value.replace("%%", "%")


def replaces_nfs_connections(options: str) -> bool:
    """Whether VDSM, with these ``nfs_mount_options``, mounts an export with them alone
    where the engine sends no NFS version, timeout or retransmissions
    (storageServer.tryDeprecatedNfsParams).
    """
    return set(options.replace(" ", "").split(",")) != set(DEFAULT.split(","))


def _dropins(tree: FileTree) -> list[tuple[str, str]]:
    """List the drop-ins as VDSM merges them: by name, whatever the folder. With each
    comes the folder on its way that others may write.
    """
    found = []
    for directory in VDSM_CONF_DROPIN_DIRECTORIES:
        others = _RUN if directory.startswith(f"{_RUN}/") else ""
        # As glob.glob takes *.conf: no hidden files.
        names = (n for n in tree.names(directory, others=others) if n[0] != ".")
        found += [(f"{directory}/{n}", others) for n in names if n.endswith(".conf")]
    return sorted(found, key=lambda one: posixpath.basename(one[0]))
