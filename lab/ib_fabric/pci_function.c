// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A simulated PCI bus with a function for each HCA, and the driver that binds to them:
 * so that sysfs shows the same about an HCA as about a real one, and its driver can be
 * unbound.
 *
 * Functions have a configuration header and nothing else: no memory, no interrupt, and
 * of capabilities only those that SR-IOV needs, where it is wanted.
 */
#include <linux/pci.h>

#include "ib_fabric.h"

/* A separate domain without a real bus: 001b:00:00.0 etc. */
#define DOMAIN		0x1b

/* Where the capability of PCI Express is, without which there is no SR-IOV. */
#define PCI_EXPRESS		PCI_STD_HEADER_SIZEOF

static struct pci_bus *bus;
static u8 header[PCI_EXPRESS + PCI_CAP_EXP_RC_ENDPOINT_SIZEOF_V1];

static void make_header(void)
{
	put_unaligned_le16(fab_parameters.pci_vendor, header + PCI_VENDOR_ID);
	put_unaligned_le16(fab_parameters.pci_device, header + PCI_DEVICE_ID);
	put_unaligned_le32(fab_parameters.pci_class << 8 | fab_parameters.pci_revision,
			   header + PCI_CLASS_REVISION);
	put_unaligned_le16(fab_parameters.pci_vendor, header + PCI_SUBSYSTEM_VENDOR_ID);
	put_unaligned_le16(fab_parameters.pci_device, header + PCI_SUBSYSTEM_ID);
	if (!fab_parameters.max_vfs)
		return;
	header[PCI_STATUS] = PCI_STATUS_CAP_LIST;
	header[PCI_CAPABILITY_LIST] = PCI_EXPRESS;
	header[PCI_EXPRESS] = PCI_CAP_ID_EXP;
	/* On the root bus, without a port above it. */
	put_unaligned_le16(PCI_EXP_TYPE_RC_END << 4 | 1,
			   header + PCI_EXPRESS + PCI_EXP_FLAGS);
	fab_sriov_init();
}

static bool is_pf(unsigned int devfn)
{
	return !PCI_FUNC(devfn) && PCI_SLOT(devfn) < fab_parameters.hcas;
}

static bool is_there(unsigned int devfn)
{
	return is_pf(devfn) || (fab_parameters.max_vfs && fab_is_vf(devfn));
}

/* Is this in the registers of SR-IOV, which only PFs have? */
static bool in_sriov(unsigned int devfn, int where)
{
	return fab_parameters.max_vfs && is_pf(devfn) && where >= FAB_SRIOV &&
	       where < FAB_SRIOV + FAB_SRIOV_SIZE;
}

static int read_config(struct pci_bus *on, unsigned int devfn, int where, int size,
		       u32 *value)
{
	u8 bytes[4] = {};
	int i;

	if (!is_there(devfn)) {
		PCI_SET_ERROR_RESPONSE(value);
		return PCIBIOS_DEVICE_NOT_FOUND;
	}
	for (i = 0; i < size; i++) {
		if (where + i < sizeof(header))
			bytes[i] = header[where + i];
		else if (in_sriov(devfn, where + i))
			bytes[i] = fab_sriov_read(PCI_SLOT(devfn),
						  where + i - FAB_SRIOV);
	}
	*value = get_unaligned_le32(bytes);
	return PCIBIOS_SUCCESSFUL;
}

/* But for SR-IOV, accepted and ignored, as by registers that are wired to 0. */
static int write_config(struct pci_bus *on, unsigned int devfn, int where, int size,
			u32 value)
{
	if (in_sriov(devfn, where))
		fab_sriov_write(PCI_SLOT(devfn), where - FAB_SRIOV, value);
	return is_there(devfn) ? PCIBIOS_SUCCESSFUL : PCIBIOS_DEVICE_NOT_FOUND;
}

static struct pci_ops config_ops = {
	.read = read_config,
	.write = write_config,
};

static struct pci_sysdata sysdata = {
	.domain = DOMAIN,
	.node = NUMA_NO_NODE,
};

static struct resource bus_numbers = {
	.name = "ib_fabric",
	.start = 0,
	.end = 0,
	.flags = IORESOURCE_BUS,
};

static int probe(struct pci_dev *function, const struct pci_device_id *id)
{
	struct fab_hca *hca;

	/* Real adapters with this identity belong to their own driver. */
	if (function->sysdata != &sysdata)
		return -ENODEV;
	hca = fab_hca_create(function);
	if (IS_ERR(hca)) {
		dev_err(&function->dev, "ib_fabric: no RDMA device: error %ld\n",
			PTR_ERR(hca));
		return PTR_ERR(hca);
	}
	pci_set_drvdata(function, hca);
	return 0;
}

static void remove(struct pci_dev *function)
{
	/* Before what they refer to. */
	if (pci_num_vf(function))
		pci_disable_sriov(function);
	fab_hca_destroy(pci_get_drvdata(function));
}

/* Set from the parameters: PFs, then VFs if there can be some. */
static struct pci_device_id ids[3];

static struct pci_driver driver = {
	.id_table = ids,
	.probe = probe,
	.remove = remove,
	.sriov_configure = fab_sriov_configure,
};

/*
 * Stands for the driver that gives a function to a virtual machine, which needs an
 * IOMMU. As that one, it is bound only where driver_override names it.
 */
static int probe_for_guest(struct pci_dev *function, const struct pci_device_id *id)
{
	return function->sysdata == &sysdata ? 0 : -ENODEV;
}

static struct pci_driver guest_driver = {
	.name = "vfio-pci",
	.probe = probe_for_guest,
};

static int scan(void)
{
	LIST_HEAD(resources);

	pci_add_resource(&resources, &bus_numbers);
	bus = pci_scan_root_bus(NULL, 0, &config_ops, &sysdata, &resources);
	if (!bus) {
		pci_free_resource_list(&resources);
		return -ENOMEM;
	}
	pci_bus_add_devices(bus);
	return 0;
}

static void unregister_drivers(void)
{
	if (fab_parameters.max_vfs)
		pci_unregister_driver(&guest_driver);
	pci_unregister_driver(&driver);
}

/* Add the bus, the functions and the driver: the HCAs exist when it returns. */
int fab_pci_add(void)
{
	int error;
	int i;

	make_header();
	for (i = 0; i < (fab_parameters.max_vfs ? 2 : 1); i++) {
		ids[i].vendor = fab_parameters.pci_vendor;
		ids[i].device = fab_parameters.pci_device + i;
		ids[i].subvendor = PCI_ANY_ID;
		ids[i].subdevice = PCI_ANY_ID;
	}
	driver.name = fab_parameters.driver;
	/* The driver first, so that no other one is searched. */
	error = pci_register_driver(&driver);
	if (error)
		return error;
	if (fab_parameters.max_vfs) {
		error = pci_register_driver(&guest_driver);
		if (error) {
			pci_unregister_driver(&driver);
			return error;
		}
	}
	pci_lock_rescan_remove();
	error = scan();
	pci_unlock_rescan_remove();
	if (error)
		unregister_drivers();
	return error;
}

void fab_pci_remove(void)
{
	pci_lock_rescan_remove();
	pci_stop_root_bus(bus);
	pci_remove_root_bus(bus);
	pci_unlock_rescan_remove();
	unregister_drivers();
}
