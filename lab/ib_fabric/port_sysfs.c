// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Attributes to change a port while the lab is running:
 *
 *	/sys/class/infiniband/DEVICE/ports/N/fabric/cable	1: plugged, 0: pulled
 *	/sys/class/infiniband/DEVICE/ports/N/fabric/pkeys	the P_Key table
 */
#include <linux/slab.h>
#include <linux/string.h>
#include <rdma/ib_sysfs.h>

#include "ib_fabric.h"

static int parse_pkey(const char *word, u16 *pkey)
{
	if (kstrtou16(word, 0, pkey) || !(*pkey & 0x7fff)) {
		pr_err("ib_fabric: pkeys: \"%s\" is no P_Key\n", word);
		return -EINVAL;
	}
	return 0;
}

/*
 * Read a table of P_Keys, "0xffff,0x8001"; the other entries are empty. Returns 0 or an
 * error, whose reason has been printed.
 */
int fab_parse_pkeys(const char *text, u16 *pkeys)
{
	char *copy = kstrdup(text, GFP_KERNEL);
	char *rest = copy ? strim(copy) : NULL;
	int count = 0;
	int error = 0;
	char *word;

	if (!copy)
		return -ENOMEM;
	memset(pkeys, 0, FAB_PKEYS * sizeof(*pkeys));
	while (!error && (word = strsep(&rest, ","))) {
		if (count == FAB_PKEYS) {
			pr_err("ib_fabric: pkeys: there is room for %d\n", FAB_PKEYS);
			error = -ENOSPC;
		} else {
			error = parse_pkey(word, &pkeys[count++]);
		}
	}
	kfree(copy);
	return error;
}

static ssize_t cable_show(struct ib_device *ib, u32 number,
			  struct ib_port_attribute *attr, char *text)
{
	return sysfs_emit(text, "%d\n", fab_port_of(ib, number)->cable);
}

static ssize_t cable_store(struct ib_device *ib, u32 number,
			   struct ib_port_attribute *attr, const char *text,
			   size_t count)
{
	bool plugged;
	int error = kstrtobool(text, &plugged);

	if (error)
		return error;
	mutex_lock(&fab_mutex);
	fab_port_set_cable(fab_port_of(ib, number), plugged);
	mutex_unlock(&fab_mutex);
	return count;
}

static ssize_t pkeys_show(struct ib_device *ib, u32 number,
			  struct ib_port_attribute *attr, char *text)
{
	const struct fab_port *port = fab_port_of(ib, number);
	ssize_t length = 0;
	int i;

	for (i = 0; i < FAB_PKEYS && port->pkeys[i]; i++)
		length += sysfs_emit_at(text, length, "%s0x%04x", i ? "," : "",
					port->pkeys[i]);
	return length + sysfs_emit_at(text, length, "\n");
}

static ssize_t pkeys_store(struct ib_device *ib, u32 number,
			   struct ib_port_attribute *attr, const char *text,
			   size_t count)
{
	u16 pkeys[FAB_PKEYS];
	int error = fab_parse_pkeys(text, pkeys);

	if (error)
		return error;
	mutex_lock(&fab_mutex);
	fab_port_set_pkeys(fab_port_of(ib, number), pkeys);
	mutex_unlock(&fab_mutex);
	return count;
}

static IB_PORT_ATTR_RW(cable);
static IB_PORT_ATTR_RW(pkeys);

static struct attribute *port_attributes[] = {
	&ib_port_attr_cable.attr,
	&ib_port_attr_pkeys.attr,
	NULL,
};

static const struct attribute_group port_group = {
	.name = "fabric",
	.attrs = port_attributes,
};

const struct attribute_group *fab_port_groups[] = {
	&port_group,
	NULL,
};
