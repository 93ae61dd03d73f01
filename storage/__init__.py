# SPDX-License-Identifier: GPL-2.0-or-later
"""How an export gets mounted: options, readiness, transport, proof, VDSM's side."""
