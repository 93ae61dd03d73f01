# SPDX-License-Identifier: GPL-2.0-or-later
"""The settings of vdsm.conf that go around the policy, read as VDSM reads them.

Files and order are those of VDSM's lib/vdsm/common/config.py.in.
"""

from __future__ import annotations

import configparser
import glob
import posixpath
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.paths import (
    VDSM_CONF,
    VDSM_CONF_DROPIN_DIRECTORIES,
    VDSM_MOUNTS,
    under,
)

SECTION = "irs"
OPTION = "nfs_mount_options"
# VDSM's default, and what it compares with (NFSConnection.DEFAULT_OPTIONS).
DEFAULT = "soft,nosharecache"
REPOSITORY = "repository"

# Where the files are, for a fix that says what to do.
FOLDERS = "/etc/vdsm /run/vdsm /usr/lib/vdsm"


def nfs_mount_options(root: Union[str, Path], problems: list[str]) -> Optional[str]:
    """Return VDSM's deprecated ``[irs] nfs_mount_options``, as a VDSM that starts now
    below ``root`` would have it; DEFAULT where no file sets it.

    None, with a sentence in ``problems``, where the files are broken, with which
    VDSM itself does not start. Files that cannot be opened are passed over, as VDSM
    does.
    """
    return _irs(OPTION, DEFAULT, root, problems)


def mounts_folder(root: Union[str, Path], problems: list[str]) -> Optional[str]:
    """Return the folder below which VDSM mounts: ``mnt`` in its ``[irs] repository``
    (storage/constants.py, REPO_MOUNT_DIR). Otherwise as :func:`nfs_mount_options`.
    """
    repository = _irs(REPOSITORY, posixpath.dirname(VDSM_MOUNTS), root, problems)
    return None if repository is None else posixpath.join(repository, "mnt")


def _irs(
    option: str, default: str, root: Union[str, Path], problems: list[str]
) -> Optional[str]:
    parser = configparser.ConfigParser()
    # In the section itself, so that a [DEFAULT] of the files does not count.
    parser.read_dict({SECTION: {option: default}})
    try:
        parser.read([under(root, VDSM_CONF), *_dropins(root)], encoding="utf-8")
        return parser.get(SECTION, option)
    except (configparser.Error, UnicodeDecodeError) as error:
        words = " ".join(str(error).split())
        problems.append(f"vdsm.conf or a drop-in of it cannot be read: {words}")
        return None


def replaces_nfs_connections(options: str) -> bool:
    """Whether VDSM, with these ``nfs_mount_options``, mounts an export with them alone
    where the engine sends no NFS version, timeout or retransmissions
    (storageServer.tryDeprecatedNfsParams).
    """
    return set(options.replace(" ", "").split(",")) != set(DEFAULT.split(","))


def _dropins(root: Union[str, Path]) -> list[str]:
    """List the drop-ins as VDSM merges them: by name, whatever the folder."""
    found = []
    for directory in VDSM_CONF_DROPIN_DIRECTORIES:
        # Not Path.glob, which takes hidden files too.
        found += glob.glob(f"{glob.escape(str(under(root, directory)))}/*.conf")  # noqa: PTH207
    return sorted(found, key=posixpath.basename)
