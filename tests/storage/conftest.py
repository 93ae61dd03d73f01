# SPDX-License-Identifier: GPL-2.0-or-later
from vdsm_fixtures import kernel, loaded_vdsm, vdsm

__all__ = ["kernel", "loaded_vdsm", "vdsm"]
