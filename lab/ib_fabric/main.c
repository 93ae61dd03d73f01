// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Parameters, load and unload. The top layer: ib_fabric.h has the order of the files.
 */
#include <linux/module.h>

#include "ib_fabric.h"

static char *pkeys = "0xffff";

module_param_named(hcas, fab_parameters.hcas, int, 0444);
MODULE_PARM_DESC(hcas, "number of HCAs, 1 to 8 (2)");
module_param_named(ports, fab_parameters.ports, int, 0444);
MODULE_PARM_DESC(ports, "ports of each, 1 or 2 (1)");
module_param_named(max_vfs, fab_parameters.max_vfs, int, 0444);
MODULE_PARM_DESC(max_vfs, "virtual functions of each, 0 to 16 (0: no SR-IOV)");
module_param_named(device_name, fab_parameters.device_name, charp, 0444);
MODULE_PARM_DESC(device_name, "pattern for the RDMA devices' names (mlx4_%d)");
module_param_named(driver, fab_parameters.driver, charp, 0444);
MODULE_PARM_DESC(driver, "name of the PCI driver that sysfs shows (ib_fabric)");
module_param_named(firmware, fab_parameters.firmware, charp, 0444);
MODULE_PARM_DESC(firmware, "firmware version (2.9.1000)");
module_param_named(board_id, fab_parameters.board_id, charp, 0444);
MODULE_PARM_DESC(board_id, "board id (MT_0000000000)");
module_param_named(hca_type, fab_parameters.hca_type, charp, 0444);
MODULE_PARM_DESC(hca_type, "model (MT and the PCI device, in decimal)");
module_param_named(pci_vendor, fab_parameters.pci_vendor, int, 0444);
MODULE_PARM_DESC(pci_vendor, "PCI vendor (0x15b3)");
module_param_named(pci_device, fab_parameters.pci_device, int, 0444);
MODULE_PARM_DESC(pci_device, "PCI device (0x634a: ConnectX, DDR)");
module_param_named(pci_revision, fab_parameters.pci_revision, int, 0444);
MODULE_PARM_DESC(pci_revision, "PCI revision (0xa0)");
module_param_named(pci_class, fab_parameters.pci_class, int, 0444);
MODULE_PARM_DESC(pci_class, "PCI class (0x0c0600: InfiniBand)");
module_param_named(hca_mtu, fab_parameters.hca_mtu, int, 0444);
MODULE_PARM_DESC(hca_mtu, "largest MTU of the HCAs in bytes (4096)");
module_param_named(active_mtu, fab_parameters.active_mtu, int, 0444);
MODULE_PARM_DESC(active_mtu, "MTU that the links have, in bytes (hca_mtu)");
module_param_cb(group_mtu, &fab_group_mtu_ops, NULL, 0644);
MODULE_PARM_DESC(group_mtu, "MTU of multicast groups in bytes (4096)");
module_param(pkeys, charp, 0444);
MODULE_PARM_DESC(pkeys, "P_Key table of every port (0xffff)");
module_param_named(tso, fab_parameters.tso, bool, 0444);
MODULE_PARM_DESC(tso, "can the HCAs segment TCP? (Y)");
module_param_named(fast_registration, fab_parameters.fast_registration, bool, 0444);
MODULE_PARM_DESC(fast_registration, "have they fast registration? (Y)");
module_param_cb(subnet_manager, &fab_subnet_manager_ops, NULL, 0644);
MODULE_PARM_DESC(subnet_manager, "is there a subnet manager? (Y)");

static bool is_within(const char *name, int value, int least, int most)
{
	if (value >= least && value <= most)
		return true;
	pr_err("ib_fabric: %s=%d: it is from %d to %d\n", name, value, least, most);
	return false;
}

static bool is_mtu(const char *name, int value)
{
	if (fab_mtu_enum(value))
		return true;
	pr_err("ib_fabric: %s=%d: it is 256, 512, 1024, 2048 or 4096\n", name, value);
	return false;
}

/* The core inserts a number for %d; any other % would read a missing argument. */
static bool is_device_name(const char *name)
{
	const char *number = strstr(name, "%d");

	if (number && !strchr(number + 1, '%') && strchr(name, '%') == number &&
	    strlen(name) < IB_DEVICE_NAME_MAX - 2)
		return true;
	pr_err("ib_fabric: device_name=%s: it has one %%d in it, and is short\n", name);
	return false;
}

static int check_parameters(void)
{
	struct fab_parameters *wanted = &fab_parameters;

	if (!wanted->active_mtu)
		wanted->active_mtu = wanted->hca_mtu;
	if (!is_within("hcas", wanted->hcas, 1, FAB_MAX_HCAS) ||
	    !is_within("ports", wanted->ports, 1, FAB_MAX_PORTS) ||
	    /* As with mlx5, a function that has VFs has one port. */
	    !is_within("max_vfs", wanted->max_vfs, 0,
		       wanted->ports == 1 ? FAB_MAX_VFS : 0) ||
	    !is_within("pci_vendor", wanted->pci_vendor, 1, 0xfffe) ||
	    !is_within("pci_device", wanted->pci_device, 0, 0xffff) ||
	    !is_within("pci_revision", wanted->pci_revision, 0, 0xff) ||
	    !is_within("pci_class", wanted->pci_class, 0, 0xffffff) ||
	    !is_mtu("hca_mtu", wanted->hca_mtu) ||
	    !is_mtu("active_mtu", wanted->active_mtu) ||
	    !is_within("active_mtu", wanted->active_mtu, 256, wanted->hca_mtu) ||
	    !is_device_name(wanted->device_name))
		return -EINVAL;
	return fab_parse_pkeys(pkeys, wanted->pkeys);
}

static int __init fab_init(void)
{
	int error = check_parameters();

	if (error)
		return error;
	fab_completions = alloc_workqueue("ib_fabric", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!fab_completions)
		return -ENOMEM;
	fab_transmit_start();
	error = fab_pci_add();
	if (error)
		destroy_workqueue(fab_completions);
	return error;
}

static void __exit fab_exit(void)
{
	fab_pci_remove();
	fab_transmit_stop();
	destroy_workqueue(fab_completions);
}

module_init(fab_init);
module_exit(fab_exit);
MODULE_LICENSE("GPL");
MODULE_AUTHOR("The ovirt-rdma project");
MODULE_DESCRIPTION("Pretend InfiniBand HCAs, fabric and subnet administrator, for tests");
