# SPDX-License-Identifier: GPL-2.0-or-later
"""Store the state of a preparation on disk, as those of conversions."""

from __future__ import annotations

from ovirt_rdma.engine_sdk_tools.conversion.state_file import (
    RecordFile,
    StateFileProblem,
    StateFolder,
)
from ovirt_rdma.engine_sdk_tools.preparation.model import (
    PREPARING,
    PreparationState,
)
from ovirt_rdma.engine_sdk_tools.refusals import Refused
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.system.json_document import Envelope

PREPARATION = Envelope("prepare", digested="state")


class PreparationFile(RecordFile[PreparationState]):
    """The state of the preparation of one data center's hosts."""

    record = PreparationState
    envelope = PREPARATION

    def invalid(self, reason: str, fix: str = "") -> StateFileProblem:
        """See RecordFile."""
        return StateFileProblem(
            "preparation-state-invalid",
            f"the state file {self.path} {reason}; nothing was changed, the file "
            "included",
            fix
            or "it records which hosts were moved to maintenance: activate those by "
            "hand, move the file away, and run the command again",
        )


def file_in(folder: StateFolder, data_center: str) -> PreparationFile:
    """Return the file of the data center with this id. Raises StateFileProblem."""
    return PreparationFile(folder.path_for(PREPARATION.kind, data_center))


def refuse_preparation(folder: StateFolder, data_center: str) -> None:
    """Raise Refused if a preparation of the data center's hosts was interrupted."""
    state = file_in(folder, data_center).read()
    if state is not None and state.stage == PREPARING:
        raise Refused(
            [
                Sentence(
                    "preparation-incomplete",
                    "an earlier 'ovirt-rdma hosts prepare' was interrupted and is not "
                    "complete; hosts may be in maintenance because of it",
                )
            ],
            "complete it first: ovirt-rdma hosts prepare",
        )
