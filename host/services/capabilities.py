# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the files that others read about this host, and change with it.

The hook after_get_caps adds the capabilities to those of VDSM. They depend on how the
host is configured, never on the state of a link: the engine uses what it reads until it
reads the capabilities again. The interfaces are for Ansible; the hook does not add
them, because the engine passes nothing on that it does not know (docs/hooks.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.enablement.state import MODE_VDSMD, marker_mode
from ovirt_rdma.host.paths import CAPS_JSON, INTERFACES_JSON, POLICY_JSON, under
from ovirt_rdma.host.policy.store import in_force
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.files import not_written, write_atomically
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.host.system.json_document import Envelope
from ovirt_rdma.host.system.safe_file import read_file

# The hook after_get_caps, which imports nothing of ours, reads version 1.
CAPS = Envelope("capabilities")
FEATURES = ("NFS_RDMA",)
INTERFACES = Envelope("interfaces")
# Read by the user vdsm, and by users of Ansible.
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755


def text_of_caps() -> str:
    """Return the text of the file if the host supports NFS over RDMA. Pure."""
    return CAPS.text({"additionalFeatures": list(FEATURES)}, indent=None)


def has_features(root: Union[str, Path]) -> bool:
    """Whether the host below ``root`` is configured for NFS over RDMA: it is enabled,
    and a valid policy is loaded.
    """
    if marker_mode(Path(root)) != MODE_VDSMD:
        return False
    return in_force(under(root, POLICY_JSON)).stored is not None


def write_caps(root: Union[str, Path] = "/") -> bool:
    """Write or remove the file, as the host is configured; return True if that changed
    anything.

    Raises Problem where it cannot be written or removed.
    """
    wanted = text_of_caps() if has_features(root) else None
    return _keep(under(root, CAPS_JSON), wanted)


def write_interfaces(
    root: Union[str, Path] = "/", run: Optional[Runner] = None
) -> bool:
    """Write what each netdev is, or remove it where nothing is enabled; return True if
    that changed anything.

    ``run`` runs tools, as for HostReader. Raises Problem as :func:`write_caps`.
    """
    wanted = None
    if marker_mode(Path(root)) is not None:
        # Imported here: the hook's file needs no facts.
        from ovirt_rdma.host.collect.collector import HostReader  # noqa: PLC0415
        from ovirt_rdma.host.facts.interfaces import interfaces_of  # noqa: PLC0415

        found = interfaces_of(HostReader(root, run).interfaces())
        wanted = INTERFACES.text({"interfaces": plain(found)})
    return _keep(under(root, INTERFACES_JSON), wanted)


def _keep(path: Path, text: Optional[str]) -> bool:
    """Give the file ``path`` this text, or remove it; return True if it changed."""
    wanted = None if text is None else text.encode()
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
