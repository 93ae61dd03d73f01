// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The fabric: data that all other files share.
 */
#include "ib_fabric.h"

/* ib_fabric.h describes what each of the two guards. */
DEFINE_SPINLOCK(fab_lock);
DEFINE_MUTEX(fab_mutex);
LIST_HEAD(fab_hcas);
void (*fab_resume)(struct fab_qp *first);

struct fab_parameters fab_parameters = {
	.hcas = 2,
	.ports = 1,
	.device_name = "mlx4_%d",
	.driver = "ib_fabric",
	.firmware = "2.9.1000",
	.board_id = "MT_0000000000",
	.hca_type = "",
	.pci_vendor = 0x15b3,
	.pci_device = 0x634a,
	.pci_revision = 0xa0,
	.pci_class = 0x0c0600,
	.hca_mtu = 4096,
	.tso = true,
	.fast_registration = true,
};

struct fab_port *fab_find_port_by_guid(u64 guid)
{
	struct fab_hca *hca;
	u32 i;

	list_for_each_entry(hca, &fab_hcas, entry)
		for (i = 0; i < hca->ib.phys_port_cnt; i++)
			if (hca->ports[i].guid == guid)
				return &hca->ports[i];
	return NULL;
}
