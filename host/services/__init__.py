# SPDX-License-Identifier: GPL-2.0-or-later
"""What systemd and VDSM run: hooks' runs, VDSM's capabilities, following P_Keys."""
