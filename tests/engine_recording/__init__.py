# SPDX-License-Identifier: GPL-2.0-or-later
"""Record the answers of an engine, and compare the engine's double with them.

A recording is a folder: docs/engine-double.md, "Recorded answers", has its format.
``RecordingProxy`` makes one at the wire, ``replay`` sends its requests to the double.
"""

from __future__ import annotations

from engine_recording.compare import Difference
from engine_recording.exchanges import Exchange, Recording, read_recording
from engine_recording.recorder import RecordingProxy
from engine_recording.replay import replay

__all__ = [
    "Difference",
    "Exchange",
    "Recording",
    "RecordingProxy",
    "read_recording",
    "replay",
]
