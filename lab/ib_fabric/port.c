// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Ports: changes by the cable, the subnet manager and the administrator, and the events
 * that report them to the kernel.
 */
#include <linux/if_link.h>
#include <linux/moduleparam.h>

#include "ib_fabric.h"

/* PortInfo CapabilityMask of a ConnectX-2. */
#define CAPABILITIES		0x02510868
/* Node GUIDs, 16 apart: Mellanox's prefix and a made-up rest. */
#define FIRST_GUID		0x0002c90300abc000ULL

bool fab_subnet_manager = true;
int fab_group_mtu = 4096;

/* The value of an MTU in bytes as the specification numbers it; 0: there is none. */
int fab_mtu_enum(int bytes)
{
	switch (bytes) {
	case 256:
		return IB_MTU_256;
	case 512:
		return IB_MTU_512;
	case 1024:
		return IB_MTU_1024;
	case 2048:
		return IB_MTU_2048;
	case 4096:
		return IB_MTU_4096;
	default:
		return 0;
	}
}

/* Is the link up? That of a VF is its PF's, unless the PF's policy says otherwise. */
bool fab_port_has_link(const struct fab_port *port)
{
	const struct fab_hca *hca = port->hca;

	if (!hca->pf || hca->own->link_state == IFLA_VF_LINK_STATE_ENABLE)
		return port->cable;
	if (hca->own->link_state == IFLA_VF_LINK_STATE_DISABLE)
		return false;
	return hca->pf->ports[port->number - 1].cable;
}

/*
 * Bring the state in line with cable and subnet manager; under fab_lock, or before
 * anything can reach the port. A port that was set up stays so without an SM. The SM
 * knows ports by their GUIDs: one without a GUID is never set up.
 */
static void update(struct fab_port *port)
{
	if (!fab_port_has_link(port) || !port->guid) {
		port->state = IB_PORT_DOWN;
	} else if (fab_subnet_manager) {
		port->lid = FAB_SM_LID + 1 + port->index;
		port->state = IB_PORT_ACTIVE;
	} else if (port->state == IB_PORT_DOWN) {
		port->state = IB_PORT_INIT;
	}
}

void fab_port_init(struct fab_port *port, struct fab_hca *hca, u32 number)
{
	port->hca = hca;
	port->number = number;
	port->index = hca->index * fab_parameters.ports + number - 1;
	port->guid = hca->own ? hca->own->port_guid :
				FIRST_GUID + 0x10 * hca->index + number;
	port->cable = true;
	port->state = IB_PORT_DOWN;
	port->capabilities = CAPABILITIES;
	memcpy(port->pkeys, fab_parameters.pkeys, sizeof(port->pkeys));
	update(port);
}

/* Raise an event in the kernel; under fab_mutex, which keeps the HCA registered. */
static void raise(struct fab_port *port, enum ib_event_type type)
{
	struct ib_event event = {
		.device = &port->hca->ib,
		.event = type,
		.element.port_num = port->number,
	};

	if (port->hca->registered)
		ib_dispatch_event(&event);
}

static void update_and_raise(struct fab_port *port)
{
	enum ib_port_state before = port->state;
	unsigned long flags;

	spin_lock_irqsave(&fab_lock, flags);
	update(port);
	/* Connections over it that wait for a buffer fail now. */
	fab_resume(NULL);
	spin_unlock_irqrestore(&fab_lock, flags);
	if (port->state == before)
		return;
	if (port->state == IB_PORT_ACTIVE)
		raise(port, IB_EVENT_PORT_ACTIVE);
	else if (before == IB_PORT_ACTIVE)
		raise(port, IB_EVENT_PORT_ERR);
}

/* The PF's cable, or its policy for a VF's link, has changed; under fab_mutex. */
void fab_vfs_update(struct fab_hca *pf)
{
	struct fab_hca *hca;
	u32 i;

	list_for_each_entry(hca, &fab_hcas, entry)
		for (i = 0; hca->pf == pf && i < hca->ib.phys_port_cnt; i++)
			update_and_raise(&hca->ports[i]);
}

/* Plug or pull a port's cable; under fab_mutex. */
void fab_port_set_cable(struct fab_port *port, bool plugged)
{
	port->cable = plugged;
	update_and_raise(port);
	fab_vfs_update(port->hca);
}

/* Set the P_Key table of a port; under fab_mutex. */
void fab_port_set_pkeys(struct fab_port *port, const u16 *pkeys)
{
	unsigned long flags;

	spin_lock_irqsave(&fab_lock, flags);
	memcpy(port->pkeys, pkeys, sizeof(port->pkeys));
	fab_resume(NULL);
	spin_unlock_irqrestore(&fab_lock, flags);
	raise(port, IB_EVENT_PKEY_CHANGE);
}

/* Return the index of a partition in a port's table, full member or not; -1: none. */
int fab_pkey_find(const struct fab_port *port, u16 pkey)
{
	int i;

	for (i = 0; i < FAB_PKEYS; i++)
		if (port->pkeys[i] && !((port->pkeys[i] ^ pkey) & 0x7fff))
			return i;
	return -1;
}

/* IBA 10.9.3: the same partition, and at least one is a full member (bit 15). */
bool fab_pkeys_match(u16 one, u16 other)
{
	return (one & 0x7fff) && !((one ^ other) & 0x7fff) && (one | other) & 0x8000;
}

static void sweep(struct fab_port *port)
{
	enum ib_port_state before = port->state;
	unsigned long flags;

	spin_lock_irqsave(&fab_lock, flags);
	update(port);
	spin_unlock_irqrestore(&fab_lock, flags);
	if (port->state != IB_PORT_ACTIVE)
		return;
	if (before != IB_PORT_ACTIVE)
		raise(port, IB_EVENT_PORT_ACTIVE);
	else
		raise(port, IB_EVENT_CLIENT_REREGISTER);
}

/* Start or stop the subnet manager, or change its settings; under fab_mutex. */
static void set_manager(bool there, int group_mtu)
{
	struct fab_hca *hca;
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&fab_lock, flags);
	fab_subnet_manager = there;
	fab_group_mtu = group_mtu;
	if (there)
		fab_groups_forget();
	spin_unlock_irqrestore(&fab_lock, flags);
	if (!there)
		return;
	list_for_each_entry(hca, &fab_hcas, entry)
		for (i = 0; i < hca->ib.phys_port_cnt; i++)
			sweep(&hca->ports[i]);
}

static int set_subnet_manager(const char *text, const struct kernel_param *kp)
{
	bool wanted;
	int error = kstrtobool(text, &wanted);

	if (error)
		return error;
	mutex_lock(&fab_mutex);
	if (wanted != fab_subnet_manager)
		set_manager(wanted, fab_group_mtu);
	mutex_unlock(&fab_mutex);
	return 0;
}

static int get_subnet_manager(char *text, const struct kernel_param *kp)
{
	return sysfs_emit(text, "%d\n", fab_subnet_manager);
}

static int set_group_mtu(const char *text, const struct kernel_param *kp)
{
	int wanted;
	int error = kstrtoint(text, 0, &wanted);

	if (error)
		return error;
	if (!fab_mtu_enum(wanted)) {
		pr_err("ib_fabric: group_mtu=%d: it is 256, 512, 1024, 2048 or 4096\n",
		       wanted);
		return -EINVAL;
	}
	mutex_lock(&fab_mutex);
	set_manager(fab_subnet_manager, wanted);
	mutex_unlock(&fab_mutex);
	return 0;
}

static int get_group_mtu(char *text, const struct kernel_param *kp)
{
	return sysfs_emit(text, "%d\n", fab_group_mtu);
}

const struct kernel_param_ops fab_subnet_manager_ops = {
	.set = set_subnet_manager,
	.get = get_subnet_manager,
};

const struct kernel_param_ops fab_group_mtu_ops = {
	.set = set_group_mtu,
	.get = get_group_mtu,
};
