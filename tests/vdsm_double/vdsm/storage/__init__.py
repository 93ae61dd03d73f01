# SPDX-License-Identifier: GPL-2.0-or-later
"""Storage connections and the modules that they use."""
