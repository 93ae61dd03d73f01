# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the host's facts. Nothing here changes anything."""
