# SPDX-License-Identifier: GPL-2.0-or-later
"""VDSM's side of a mount: the launcher, our class, and what it keeps."""
