// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A plugin of QEMU that counts what the guest's processor executes, page by page.
 *
 * At each mark it appends to the file of out= the counts since the mark before: lines
 * "SLOT INSTRUCTIONS BYTES", then "mark". A slot is the number of a page of kernel
 * text, from KERNEL on; two more are for user space and for all other addresses.
 *
 * QEMU executes an iteration of a repeated string instruction as a block of its own. A
 * processor moves 32 bytes or more at a time there. So they are no instructions here,
 * but bytes that were copied or filled.
 *
 * A mark is the no-operation of load.c in user space. The declarations are those of
 * include/qemu/qemu-plugin.h of QEMU 7.2, which Debian has in no package.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mark.h"

struct qemu_info;
struct qemu_plugin_insn;
struct qemu_plugin_tb;
enum { ADD_U64 = 0, NO_REGISTERS = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(
	uint64_t id, void (*)(uint64_t id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(
	struct qemu_plugin_tb *, int what, void *counter, uint64_t summand);
void qemu_plugin_register_vcpu_insn_exec_cb(
	struct qemu_plugin_insn *, void (*)(unsigned int cpu, void *), int, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *,
						 size_t number);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);

#define EXPORT __attribute__((visibility("default")))

/* The last 2 GiB of addresses have the kernel and its modules (x86_64/mm.rst). */
#define KERNEL 0xffffffff80000000ull
#define PAGE_BITS 12
#define PAGES (0x80000000u >> PAGE_BITS)
enum { USER = PAGES, OTHER, SLOTS };

EXPORT int qemu_plugin_version = 1;

static uint64_t instructions[SLOTS], bytes[SLOTS];
static FILE *out;

static void mark(unsigned int cpu, void *data)
{
	for (size_t slot = 0; slot < SLOTS; slot++)
		if (instructions[slot] | bytes[slot])
			fprintf(out, "%zu %llu %llu\n", slot,
				(unsigned long long)instructions[slot],
				(unsigned long long)bytes[slot]);
	fputs("mark\n", out);
	if (fflush(out)) {
		perror("counter: the counts cannot be written");
		exit(1);
	}
	memset(instructions, 0, sizeof(instructions));
	memset(bytes, 0, sizeof(bytes));
}

static int is_mark(const struct qemu_plugin_insn *insn)
{
	static const uint8_t wanted[] = { MARK };

	return qemu_plugin_insn_size(insn) == sizeof(wanted) &&
	       !memcmp(qemu_plugin_insn_data(insn), wanted, sizeof(wanted));
}

/* The bytes that an iteration of `rep movs` or `rep stos` moves; 0 for others. */
static unsigned int repeated(const struct qemu_plugin_insn *insn)
{
	const uint8_t *code = qemu_plugin_insn_data(insn);
	size_t size = qemu_plugin_insn_size(insn);
	int wide = size == 3 && (code[1] & 0xf8) == 0x48; /* REX.W */

	if (code[0] != 0xf3 || (size != 2 && !wide))
		return 0;
	switch (code[size - 1]) {
	case 0xa4: case 0xaa:
		return 1;
	case 0xa5: case 0xab:
		return wide ? 8 : 4;
	}
	return 0;
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	size_t slot = address >= KERNEL ? (address - KERNEL) >> PAGE_BITS :
		      address >> 63 ? OTHER : USER;
	size_t n = qemu_plugin_tb_n_insns(tb);
	/* A string instruction ends its block. */
	unsigned int width = repeated(qemu_plugin_tb_get_insn(tb, n - 1));

	if (width)
		qemu_plugin_register_vcpu_tb_exec_inline(
			tb, ADD_U64, &bytes[slot], width);
	if (n > 1 || !width)
		qemu_plugin_register_vcpu_tb_exec_inline(
			tb, ADD_U64, &instructions[slot], n);
	for (size_t i = 0; slot == USER && i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (is_mark(insn))
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, mark, NO_REGISTERS, NULL);
	}
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc,
			       char **argv)
{
	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fputs("counter: takes out=FILE\n", stderr);
		return 1;
	}
	out = fopen(argv[0] + 4, "a");
	if (!out) {
		perror(argv[0] + 4);
		return 1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
