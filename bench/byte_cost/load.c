// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Read or write blocks of a file without the page cache, with marks for counter.c.
 *
 * load FILE read|write BLOCK COUNT WORKERS REPEATS: 3 * COUNT operations to warm up;
 * then, REPEATS times, a mark, COUNT operations, a mark, 3 * COUNT operations; and a
 * last mark. The WORKERS are processes with one operation under way each.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mark.h"

#define BYTE(b) ".byte " #b "\n"
#define CODE(a, b, c, d, e, f, g, h) \
	BYTE(a) BYTE(b) BYTE(c) BYTE(d) BYTE(e) BYTE(f) BYTE(g) BYTE(h)
#define EXPANDED(...) CODE(__VA_ARGS__)
#define mark() __asm__ volatile(EXPANDED(MARK) ::: "memory")

static const off_t file_size = 16 << 20;
/* Microseconds; until then the hosts have done what the operations left to do. */
static const useconds_t pause_us = 50000;

static int file, writes;
static char *block;
static size_t block_size;
static int workers;

static void work(int worker, int count)
{
	for (int i = worker; i < count; i += workers) {
		off_t at = i * (off_t)block_size % file_size;
		ssize_t done = writes ? pwrite(file, block, block_size, at) :
					pread(file, block, block_size, at);

		if (done != (ssize_t)block_size)
			err(1, "operation %d moved %zd bytes", i, done);
	}
}

static void operations(int count)
{
	int status;

	if (workers == 1)
		work(0, count);
	else
		for (int worker = 0; worker < workers; worker++)
			switch (fork()) {
			case -1:
				err(1, "fork");
			case 0:
				work(worker, count);
				_exit(0);
			}
	while (workers > 1 && wait(&status) > 0)
		if (status)
			errx(1, "a worker failed");
	usleep(pause_us);
}

int main(int argc, char **argv)
{
	int count, repeats;

	if (argc != 7)
		errx(2, "FILE read|write BLOCK COUNT WORKERS REPEATS");
	writes = !strcmp(argv[2], "write");
	block_size = strtoul(argv[3], NULL, 10);
	count = atoi(argv[4]);
	workers = atoi(argv[5]);
	repeats = atoi(argv[6]);
	file = open(argv[1], O_RDWR | O_DIRECT);
	if (file < 0)
		err(1, "%s", argv[1]);
	block = mmap(NULL, block_size, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (block == MAP_FAILED)
		err(1, "mmap");
	memset(block, 'x', block_size);
	operations(3 * count);
	while (repeats--) {
		mark();
		operations(count);
		mark();
		operations(3 * count);
	}
	mark();
	return 0;
}
