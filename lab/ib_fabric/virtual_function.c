// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Virtual functions: the registers of SR-IOV in the configuration space of a PF, and
 * what a PF sets for its VFs: node and port GUID, and the policy for the link.
 *
 * As with mlx5 (drivers/infiniband/hw/mlx5/ib_virt.c), a VF has no GUID until the PF
 * gives it one, and the driver of a VF sees the GUIDs that were set before it was
 * bound. The registers are those of the PCI Express specification, 9.3.3.
 */
#include <linux/if_link.h>
#include <linux/pci.h>

#include "ib_fabric.h"

/* VFs are in the second half of the bus, by PF. */
#define FIRST_VF_DEVFN		128
/* Page sizes of 4 KiB to 4 MiB, as the specification wants them. */
#define PAGE_SIZES		0x553

static u8 registers[FAB_MAX_HCAS][FAB_SRIOV_SIZE];

/* Fill in the registers of all PFs. */
void fab_sriov_init(void)
{
	unsigned int pf;

	for (pf = 0; pf < FAB_MAX_HCAS; pf++) {
		u8 *bytes = registers[pf];
		unsigned int first = FIRST_VF_DEVFN + pf * FAB_MAX_VFS;

		put_unaligned_le32(PCI_EXT_CAP_ID_SRIOV | 1 << 16, bytes);
		put_unaligned_le16(fab_parameters.max_vfs, bytes + PCI_SRIOV_INITIAL_VF);
		put_unaligned_le16(fab_parameters.max_vfs, bytes + PCI_SRIOV_TOTAL_VF);
		put_unaligned_le16(first - PCI_DEVFN(pf, 0), bytes + PCI_SRIOV_VF_OFFSET);
		put_unaligned_le16(1, bytes + PCI_SRIOV_VF_STRIDE);
		put_unaligned_le16(fab_parameters.pci_device + 1,
				   bytes + PCI_SRIOV_VF_DID);
		put_unaligned_le32(PAGE_SIZES, bytes + PCI_SRIOV_SUP_PGSIZE);
	}
}

/* Is there a VF at this place of the bus: enabled, and one of those that were asked? */
bool fab_is_vf(unsigned int devfn)
{
	unsigned int number = devfn - FIRST_VF_DEVFN;
	const u8 *bytes;

	if (devfn < FIRST_VF_DEVFN || number / FAB_MAX_VFS >= fab_parameters.hcas)
		return false;
	bytes = registers[number / FAB_MAX_VFS];
	return get_unaligned_le16(bytes + PCI_SRIOV_CTRL) & PCI_SRIOV_CTRL_VFE &&
	       number % FAB_MAX_VFS < get_unaligned_le16(bytes + PCI_SRIOV_NUM_VF);
}

u8 fab_sriov_read(unsigned int pf, unsigned int offset)
{
	return registers[pf][offset];
}

/* Only these can be written. */
void fab_sriov_write(unsigned int pf, unsigned int offset, u32 value)
{
	if (offset == PCI_SRIOV_CTRL || offset == PCI_SRIOV_NUM_VF)
		put_unaligned_le16(value, registers[pf] + offset);
	else if (offset == PCI_SRIOV_SYS_PGSIZE)
		put_unaligned_le32(value, registers[pf] + offset);
}

/* Make or remove the VFs of a PF; what was set for earlier ones is forgotten. */
int fab_sriov_configure(struct pci_dev *function, int count)
{
	struct fab_hca *hca = pci_get_drvdata(function);
	int error;

	if (!count) {
		pci_disable_sriov(function);
		return 0;
	}
	mutex_lock(&fab_mutex);
	memset(hca->vfs, 0, sizeof(hca->vfs));
	mutex_unlock(&fab_mutex);
	error = pci_enable_sriov(function, count);
	return error ? error : count;
}

static struct fab_vf *vf_of(struct ib_device *ib, int number)
{
	if (number < 0 || number >= pci_num_vf(to_pci_dev(ib->dev.parent)))
		return NULL;
	return &to_fab_hca(ib)->vfs[number];
}

int fab_get_vf_config(struct ib_device *ib, int number, u32 port,
		      struct ifla_vf_info *info)
{
	const struct fab_vf *vf = vf_of(ib, number);

	if (!vf)
		return -EINVAL;
	memset(info, 0, sizeof(*info));
	info->linkstate = vf->link_state;
	return 0;
}

int fab_set_vf_link_state(struct ib_device *ib, int number, u32 port, int state)
{
	struct fab_vf *vf = vf_of(ib, number);

	if (!vf || state < IFLA_VF_LINK_STATE_AUTO ||
	    state > IFLA_VF_LINK_STATE_DISABLE)
		return -EINVAL;
	mutex_lock(&fab_mutex);
	vf->link_state = state;
	fab_vfs_update(to_fab_hca(ib));
	mutex_unlock(&fab_mutex);
	return 0;
}

int fab_set_vf_guid(struct ib_device *ib, int number, u32 port, u64 guid, int type)
{
	struct fab_vf *vf = vf_of(ib, number);

	if (!vf)
		return -EINVAL;
	mutex_lock(&fab_mutex);
	if (type == IFLA_VF_IB_NODE_GUID)
		vf->node_guid = guid;
	else
		vf->port_guid = guid;
	mutex_unlock(&fab_mutex);
	return 0;
}

int fab_get_vf_guid(struct ib_device *ib, int number, u32 port,
		    struct ifla_vf_guid *node_guid, struct ifla_vf_guid *port_guid)
{
	const struct fab_vf *vf = vf_of(ib, number);

	if (!vf)
		return -EINVAL;
	node_guid->guid = vf->node_guid;
	port_guid->guid = vf->port_guid;
	return 0;
}
