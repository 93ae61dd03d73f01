# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the files that others read about this host: a task of the daemon.

The hook after_get_caps adds the capabilities to those of VDSM. They depend on how the
host is configured, never on the state of a link: the engine uses what it reads until it
reads the capabilities again. The interfaces are for Ansible; the hook does not add
them, because the engine passes nothing on that it does not know (docs/hooks.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.daemon.loop import Result, Task, Turn
from ovirt_rdma.host.enablement.state import MODE_VDSMD, marker_mode
from ovirt_rdma.host.facts.uses import interfaces_of
from ovirt_rdma.host.paths import CAPS_JSON, INTERFACES_JSON, POLICY_JSON, under
from ovirt_rdma.host.policy.store import in_force
from ovirt_rdma.host.system.files import PUBLIC_MODE, not_written, write_public
from ovirt_rdma.host.system.json_codec import Envelope, plain
from ovirt_rdma.host.system.safe_file import read_file

# The hook after_get_caps, which imports nothing of ours, reads version 1.
CAPS = Envelope("capabilities")
FEATURES = ("NFS_RDMA",)
CAPS_S = 60.0
INTERFACES = Envelope("interfaces")


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


class Capabilities(Task):
    """Keeps the files as the host is configured."""

    name = "capabilities"
    every_s = CAPS_S

    def run(self, turn: Turn) -> Result:
        """Write or remove the files. Raises Problem where that is not possible."""
        has = has_features(self.root)
        _keep(under(self.root, CAPS_JSON), text_of_caps() if has else None)
        wanted = None
        if marker_mode(Path(self.root)) is not None:
            found = interfaces_of(HostReader(self.root, self.tools).interfaces())
            wanted = INTERFACES.text({"interfaces": plain(found)})
        _keep(under(self.root, INTERFACES_JSON), wanted)
        if has:
            return Result(f"the engine gets {', '.join(FEATURES)}")
        return Result("the engine gets nothing: mode vdsmd and a policy are needed")

    def end(self) -> None:
        """As :meth:`Task.end`."""
        if marker_mode(Path(self.root)) is None:
            for path in (CAPS_JSON, INTERFACES_JSON):
                _keep(under(self.root, path), None)


def _keep(path: Path, text: Optional[str]) -> None:
    """Give the file ``path`` this text, or remove it, unless it is so. Raises
    Problem.
    """
    try:
        present = _present(path)
        if text is None and present is not None:
            path.unlink()
    except OSError as error:
        raise not_written(error, path) from error
    if text is not None and text.encode() != present:
        write_public(path, text)


def _present(path: Path) -> Union[bytes, None]:
    """Return the text of the file; None if there is none, "" if vdsm cannot read it."""
    try:
        readable = path.stat().st_mode & 0o777 == PUBLIC_MODE and path.is_file()
        return read_file(path) if readable else b""
    except FileNotFoundError:
        return b"" if path.is_symlink() else None
