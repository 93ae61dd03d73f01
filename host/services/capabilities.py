# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the file that the hook after_get_caps adds to the host's capabilities.

It depends on how the host is configured, never on the state of a link: the engine uses
what it reads until it reads the capabilities again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Union

from ovirt_rdma.host.enablement.state import MODE_NFSMOUNT, MODE_VDSMD, marker_mode
from ovirt_rdma.host.paths import CAPS_JSON, POLICY_JSON, under
from ovirt_rdma.host.policy.store import in_force
from ovirt_rdma.host.system.files import not_written, write_atomically
from ovirt_rdma.host.system.json_document import Envelope
from ovirt_rdma.host.system.safe_file import read_file

# The hook after_get_caps, which imports nothing of ours, reads version 1.
CAPS = Envelope("capabilities", 1, shows_kind=False)
FEATURES = ("NFS_RDMA",)
# Read by the user vdsm.
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755


def text_of_caps() -> str:
    """Return the text of the file if the host supports NFS over RDMA. Pure."""
    return CAPS.text({"additionalFeatures": list(FEATURES)}, indent=None)


def has_features(root: Union[str, Path]) -> bool:
    """Whether the host below ``root`` is configured for NFS over RDMA: it is enabled,
    and a valid policy is loaded. Mode nfsmount of an earlier version counts: an update
    alone must not make a host non-operational.
    """
    if marker_mode(Path(root)) not in {MODE_VDSMD, MODE_NFSMOUNT}:
        return False
    return in_force(under(root, POLICY_JSON)).stored is not None


def write_caps(root: Union[str, Path] = "/") -> bool:
    """Write or remove the file, as the host is configured; return True if that changed
    anything.

    Raises Problem where it cannot be written or removed.
    """
    path = under(root, CAPS_JSON)
    wanted = text_of_caps().encode() if has_features(root) else None
    try:
        if wanted == _present(path):
            return False
        if wanted is None:
            path.unlink()
            return True
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(_DIRECTORY_MODE)
        write_atomically(path, wanted, _FILE_MODE)
    except OSError as error:
        raise not_written(error, path) from error
    return True


def _present(path: Path) -> Union[bytes, None]:
    """Return the text of the file; None if there is none, "" if vdsm cannot read it."""
    try:
        readable = path.stat().st_mode & 0o777 == _FILE_MODE and path.is_file()
        return read_file(path) if readable else b""
    except FileNotFoundError:
        return b"" if path.is_symlink() else None
