/* SPDX-License-Identifier: GPL-2.0-or-later */
/* nopl 0x0b17ec05(%rax,%rax,1), which does nothing and which no compiler makes. */
#define MARK 0x0f, 0x1f, 0x84, 0x00, 0x05, 0xec, 0x17, 0x0b
