# SPDX-License-Identifier: GPL-2.0-or-later
from support.storage.vdsm_fixtures import kernel, loaded_vdsm, vdsm
from support.storage.vdsm_site import site

__all__ = ["kernel", "loaded_vdsm", "site", "vdsm"]
