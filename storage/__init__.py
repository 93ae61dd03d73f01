# SPDX-License-Identifier: GPL-2.0-or-later
"""Mount exports: options, readiness, transport, proof, and the part inside VDSM."""
