# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``bench``, and how its results are shown to people."""
