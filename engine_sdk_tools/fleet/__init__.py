# SPDX-License-Identifier: GPL-2.0-or-later
"""Many hosts at once: their readiness, their policy, and their preparation."""
