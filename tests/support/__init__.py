# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide what tests share: fake hosts, engines and kernels."""
