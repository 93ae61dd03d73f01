# SPDX-License-Identifier: GPL-2.0-or-later
"""Read settings of vdsm.conf in the same way as VDSM.

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
# VDSM's default, with which it compares (NFSConnection.DEFAULT_OPTIONS).
DEFAULT = "soft,nosharecache"

# VDSM's folder (init/systemd/vdsm-tmpfiles.d.conf.in).
_RUN = "/run/vdsm"
# The limit for all drop-ins there together. Reading takes some 400 nanoseconds per
# byte; a drop-in has a few settings of some 30 bytes each.
_MOST_BYTES_OF_OTHERS = 1 << 18

# The folders of the files, for fixes.
FOLDERS = "/etc/vdsm /run/vdsm /usr/lib/vdsm"


def nfs_mount_options(root: Union[str, Path], problems: list[str]) -> Optional[str]:
    """Return the deprecated ``[irs] nfs_mount_options`` that a VDSM started now below
    ``root`` would use; DEFAULT if no file sets it.

    None, and a sentence in ``problems``, if the files are invalid; then VDSM does not
    start either. Files that cannot be opened are ignored, as in VDSM; those that the
    user vdsm could have made get a sentence.
    """
    return _setting(root, SECTION, OPTION, DEFAULT, problems)


def multipath_blacklist(
    root: Union[str, Path], problems: list[str]
) -> Optional[frozenset[str]]:
    """Return the names of multipath maps that VDSM leaves out (BLACKLIST,
    lib/vdsm/storage/multipath.py); None as for :func:`nfs_mount_options`.
    """
    text = _setting(root, "multipath", "blacklist", "", problems)
    return None if text is None else frozenset(map(str.strip, text.split(",")))


def _setting(
    root: Union[str, Path],
    section: str,
    option: str,
    default: str,
    problems: list[str],
) -> Optional[str]:
    parser = configparser.ConfigParser(interpolation=None)
    # In the section itself, so that it overrides a [DEFAULT] of the files.
    parser.read_dict({section: {option: default}})
    tree, left = FileTree(root), _MOST_BYTES_OF_OTHERS
    try:
        for path, others in ((VDSM_CONF, ""), *_dropins(tree)):
            failures: list[str] = []
            data = tree.data(path, failures, others=others)
            left -= len(data or b"") if others else 0
            if left < 0:
                raise _Refused(
                    f"{others} has more than {_MOST_BYTES_OF_OTHERS} bytes of them"
                )
            if data is not None:
                with io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") as file:
                    parser.read_file(file, source=str(under(root, path)))
            elif others:
                problems += failures
        return _plain(option, parser.get(section, option))
    except (configparser.Error, UnicodeDecodeError, _Refused) as error:
        reason = " ".join(str(error).split())
        problems.append(f"vdsm.conf or a drop-in of it cannot be read: {reason}")
        return None


class _Refused(ValueError):
    """To read it takes too much time or memory."""


def _plain(option: str, value: str) -> str:
    """Return ``value`` with ``%`` for ``%%``.

    Raises _Refused for any other ``%``, which refers to another setting. Such
    references can be nested, so that 1 kB could expand to more than the host's memory,
    and the user vdsm may have written the file.
    """
    if "%" in value.replace("%%", ""):
        raise _Refused(f"{option} has a % for another setting, which is not followed")
    return value.replace("%%", "%")


def replaces_nfs_connections(options: str) -> bool:
    """Whether VDSM mounts an export with only these ``nfs_mount_options`` if the engine
    sends no NFS version, timeout or retransmissions
    (storageServer.tryDeprecatedNfsParams).
    """
    return set(options.replace(" ", "").split(",")) != set(DEFAULT.split(","))


def _dropins(tree: FileTree) -> list[tuple[str, str]]:
    """List the drop-ins in the order of VDSM: by name, independent of the folder. Each
    has the folder in its path that others than root can write, or "".
    """
    paths = []
    for directory in VDSM_CONF_DROPIN_DIRECTORIES:
        others = _RUN if directory.startswith(f"{_RUN}/") else ""
        # As glob.glob("*.conf"): without hidden files.
        names = (n for n in tree.names(directory, others=others) if n[0] != ".")
        paths += [(f"{directory}/{n}", others) for n in names if n.endswith(".conf")]
    return sorted(paths, key=lambda entry: posixpath.basename(entry[0]))
