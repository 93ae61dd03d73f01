# SPDX-License-Identifier: GPL-2.0-or-later
"""Let the engine prepare each host that it installs, by its file of post-tasks."""
