# SPDX-License-Identifier: GPL-2.0-or-later
"""What keeps a mode from being turned on or off: another mode that is on, and things of
others in our places. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from ovirt_rdma.host.enablement_state import (
    EDITED,
    FOREIGN,
    MODE_HOST,
    MODE_NFSMOUNT,
    MODE_VDSMD,
    OURS,
    EnablementState,
)
from ovirt_rdma.host.paths import (
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    ENABLED,
    FOLDER_NOTE,
    NFSMOUNT_DIRECTORY,
    NFSMOUNT_FILE,
)
from ovirt_rdma.host.problem import Problem

Places = tuple[tuple[str, str], ...]


class EnablementRefused(Problem):
    """Going on would be unsafe; nothing was changed."""

    exit_code = 4


def modes_on(state: EnablementState) -> tuple[str, ...]:
    """Return the modes of which anything of ours is there, half done or whole."""
    signs = {
        MODE_VDSMD: state.link == OURS,
        MODE_NFSMOUNT: state.conf in {OURS, EDITED},
        MODE_HOST: False,  # it has the marker only
    }
    return tuple(m for m, sign in signs.items() if sign or state.marker_mode == m)


def own_places(state: EnablementState) -> Places:
    """Return where all modes have something: what is there, and the path."""
    return ((state.marker, ENABLED), (state.note, FOLDER_NOTE))


def vdsmd_places(state: EnablementState) -> Places:
    """The same of mode vdsmd."""
    return (
        (state.directory.state, DROPIN_DIRECTORY),
        (state.link, DROPIN_LINK),
    )


def nfsmount_places(state: EnablementState) -> Places:
    """The same of mode nfsmount."""
    return (
        (state.conf_directory.state, NFSMOUNT_DIRECTORY),
        (state.conf, NFSMOUNT_FILE),
    )


def refuse_foreign(*places: tuple[str, str]) -> None:
    """Raise EnablementRefused where something of another stands in one of them."""
    for found, path in places:
        if found == FOREIGN:
            raise EnablementRefused(
                f"{path} is there already and is not ours",
                "look what it is for, move it away, and run this command again",
            )


def refuse_untrusted(refused: Sequence[str]) -> None:
    """Raise EnablementRefused where fapolicyd would not let programs of ours run."""
    if refused:
        raise EnablementRefused(
            f"fapolicyd runs on this host and does not trust {', '.join(refused)}: "
            "VDSM could not start what it refuses",
            "install ovirt-rdma-host from its RPM, or run: "
            + "; ".join(
                f"fapolicyd-cli --file add {path} --trust-file ovirt-rdma"
                for path in refused
            )
            + "; fapolicyd-cli --update",
        )


def refuse_other_mode(state: EnablementState, wanted: str) -> None:
    """Raise EnablementRefused where another mode than ``wanted`` is on.

    Mode nfsmount is not turned off on the way: whoever chose it wanted no code of ours
    inside vdsmd, and until vdsmd is restarted its exports would be mounted over TCP.
    """
    for mode in modes_on(state):
        if mode != wanted:
            raise EnablementRefused(
                f"mode {mode} is on, and only one mode can be",
                f"ovirt-rdma-host disable, then ovirt-rdma-host enable --mode {wanted}",
            )
