# SPDX-License-Identifier: GPL-2.0-or-later
"""Find out if the NFS mounts of this host work, and what is wrong if they do not."""
