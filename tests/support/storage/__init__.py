# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide VDSM, its kernel and its network for tests of mounts."""
