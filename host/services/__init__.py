# SPDX-License-Identifier: GPL-2.0-or-later
"""Services that systemd and VDSM start: hook runs, capabilities, following P_Keys."""
