// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The multicast groups of the fabric: their MGIDs, LIDs and members. A group ends with
 * its last member. Everything here runs under fab_lock.
 */
#include <linux/bitmap.h>

#include "ib_fabric.h"

struct group {
	u8 mgid[16];
	DECLARE_BITMAP(members, FAB_ALL_PORTS);
};

/* The index in the table is a group's LID; an entry without members is free. */
static struct group groups[FAB_GROUPS];

static bool is_free(const struct group *group)
{
	return bitmap_empty(group->members, FAB_ALL_PORTS);
}

static struct group *find(const u8 *mgid)
{
	int i;

	for (i = 0; i < FAB_GROUPS; i++)
		if (!is_free(&groups[i]) &&
		    !memcmp(groups[i].mgid, mgid, sizeof(groups[i].mgid)))
			return &groups[i];
	return NULL;
}

static struct group *add(const u8 *mgid)
{
	int i;

	for (i = 0; i < FAB_GROUPS; i++) {
		if (is_free(&groups[i])) {
			memcpy(groups[i].mgid, mgid, sizeof(groups[i].mgid));
			return &groups[i];
		}
	}
	return NULL;
}

/* Return the group's LID, or -ENOSPC if the table is full. */
int fab_group_join(const u8 *mgid, const struct fab_port *port)
{
	struct group *group = find(mgid);

	if (!group)
		group = add(mgid);
	if (!group)
		return -ENOSPC;
	__set_bit(port->index, group->members);
	return FAB_FIRST_MLID + (group - groups);
}

/* False if the port is not a member. */
bool fab_group_leave(const u8 *mgid, const struct fab_port *port)
{
	struct group *group = find(mgid);

	return group && __test_and_clear_bit(port->index, group->members);
}

/* A new subnet manager knows no groups. */
void fab_groups_forget(void)
{
	memset(groups, 0, sizeof(groups));
}
