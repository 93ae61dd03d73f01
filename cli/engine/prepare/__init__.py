# SPDX-License-Identifier: GPL-2.0-or-later
"""Prepare hosts: the verbs of ``deploy-hook``, and ``hosts prepare``."""
