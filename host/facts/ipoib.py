# SPDX-License-Identifier: GPL-2.0-or-later
"""Name the transport modes, MTUs and bond modes of IPoIB. Constants.

VDSM's hooks use them and wait for each import, so this module has none.

Sources: drivers/infiniband/ulp/ipoib/ipoib.h and drivers/net/bonding/bond_main.c
(Linux 6.1), RFC 4391 section 6.
"""

DATAGRAM, CONNECTED = "datagram", "connected"
# The word of policies and logical networks for the best mode, and the largest MTU.
AUTO = "auto"
MODES = (AUTO, DATAGRAM, CONNECTED)
# The custom property of a network in the engine that asks for a mode.
MODE_PROPERTY = "ipoib_mode"

# IPOIB_ENCAP_LEN: bytes of IPoIB's own header, part of the IB MTU.
HEADER = 4
# The MTUs in bytes of broadcast groups, less the header: of IB, and of Omni-Path's two.
GROUP_MTUS = tuple(m - HEADER for m in (256, 512, 1024, 2048, 4096, 8192, 10240))
MOST_DATAGRAM_MTU = GROUP_MTUS[-1]
# opensm's default for a group. Every adapter supports it.
COMMON_GROUP_MTU = 2048 - HEADER
# IPOIB_CM_MTU: 64 KiB less the 16 bytes that the driver reserves.
CONNECTED_MTU = 65520

# Name and number of the only mode in which the kernel accepts IPoIB in a bond.
ACTIVE_BACKUP = ("active-backup", "1")
# A bond's mode if none is given (VDSM network/nmstate/bond.py; the kernel).
DEFAULT_BOND_MODE = "balance-rr"
