# SPDX-License-Identifier: GPL-2.0-or-later
"""Where this machine keeps what a run needs to go on, and the user's settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ovirt_rdma.host.problem import Problem

_OF_ROOT = Path("/var/lib/ovirt-rdma/engine")
_NAME = "ovirt-rdma"


def state_folder(environ: Mapping[str, str], euid: int) -> Path:
    """Return the folder of states: root's below /var/lib, else by the XDG Base
    Directory Specification. It need not be there. Raises Problem without a home.
    """
    if euid == 0:
        return _OF_ROOT
    return _base(environ, "XDG_STATE_HOME", ".local/state") / _NAME


def settings_file(environ: Mapping[str, str]) -> Path:
    """Return the name of the user's settings file. Raises Problem without a home."""
    return _base(environ, "XDG_CONFIG_HOME", ".config") / f"{_NAME}.conf"


def imageio_settings_file(environ: Mapping[str, str]) -> Path:
    """Return the name of ovirt-img's settings file, which has the same shape."""
    return settings_file(environ).with_name("ovirt-img.conf")


def ca_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the CAs that ``login --fetch-ca`` fetched."""
    return settings_file(environ).with_name(_NAME)


def made_folder(folder: Path) -> Path:
    """Make ``folder``, readable for its owner only, if need be; return it.

    Raises Problem where it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(f"{folder} cannot be made: {error.strerror}") from error
    return folder


def _base(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    # The specification: what is not absolute is to be ignored.
    named = environ.get(variable, "")
    if named.startswith("/"):
        return Path(named)
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        raise Problem(
            f"neither {variable} nor HOME says where files of yours are",
            f"set HOME, or {variable}",
        )
    return Path(home) / below_home
