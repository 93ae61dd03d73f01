// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The RDMA device: its attributes, and the functions that the kernel's RDMA core calls.
 */
#include <linux/slab.h>

#include "ib_fabric.h"

/* Mellanox in the verbs (an OUI, not the PCI vendor). */
#define VENDOR_OUI		0x2c9
/* librxe in user space opens devices of this ABI; see the ops below. */
#define RXE_ABI			2

/* "2.9.1000" as 16 bits each, which is how Soft-RoCE's library shows a number. */
static u64 firmware_number(const char *text)
{
	unsigned int parts[3] = {};

	if (sscanf(text, "%u.%u.%u", &parts[0], &parts[1], &parts[2]) < 1)
		return 0;
	return (u64)parts[0] << 32 | (parts[1] & 0xffff) << 16 | (parts[2] & 0xffff);
}

static int query_device(struct ib_device *ib, struct ib_device_attr *attr,
			struct ib_udata *udata)
{
	struct fab_hca *hca = to_fab_hca(ib);

	attr->fw_ver = firmware_number(fab_parameters.firmware);
	attr->sys_image_guid = cpu_to_be64(be64_to_cpu(hca->ib.node_guid) + 3);
	attr->vendor_id = VENDOR_OUI;
	attr->vendor_part_id = fab_parameters.pci_device;
	attr->hw_ver = fab_parameters.pci_revision;
	attr->max_mr_size = ~0ULL;
	attr->page_size_cap = ~(PAGE_SIZE - 1);
	attr->max_qp = 65536;
	attr->max_qp_wr = FAB_MAX_WR;
	attr->max_send_sge = FAB_MAX_SGE;
	attr->max_recv_sge = FAB_MAX_SGE;
	attr->max_sge_rd = FAB_MAX_SGE;
	attr->max_cq = 65536;
	attr->max_cqe = FAB_MAX_CQE;
	attr->max_mr = 1 << 19;
	attr->max_pd = 32768;
	attr->max_ah = 1 << 20;
	attr->max_srq = 65536;
	attr->max_srq_wr = FAB_MAX_WR;
	attr->max_srq_sge = FAB_MAX_SGE - 1;
	attr->max_qp_rd_atom = 16;
	attr->max_qp_init_rd_atom = 16;
	attr->max_res_rd_atom = 1 << 20;
	attr->max_mcast_grp = FAB_GROUPS;
	attr->max_mcast_qp_attach = 248;
	attr->max_total_mcast_qp_attach = FAB_GROUPS * 8;
	attr->max_pkeys = FAB_PKEYS;
	attr->local_ca_ack_delay = 15;
	attr->device_cap_flags = IB_DEVICE_UD_IP_CSUM | IB_DEVICE_SYS_IMAGE_GUID |
				 IB_DEVICE_RC_RNR_NAK_GEN;
	attr->kernel_cap_flags = IBK_LOCAL_DMA_LKEY;
	if (hca->pf)
		attr->kernel_cap_flags |= IBK_VIRTUAL_FUNCTION;
	if (fab_parameters.tso)
		attr->kernel_cap_flags |= IBK_UD_TSO;
	if (fab_parameters.fast_registration) {
		attr->device_cap_flags |= IB_DEVICE_MEM_MGT_EXTENSIONS;
		attr->max_fast_reg_page_list_len = 511;
	}
	return 0;
}

static int query_port(struct ib_device *ib, u32 number, struct ib_port_attr *attr)
{
	const struct fab_port *port = fab_port_of(ib, number);

	attr->subnet_prefix = FAB_SUBNET_PREFIX;
	attr->state = port->state;
	attr->phys_state = fab_port_has_link(port) ? IB_PORT_PHYS_STATE_LINK_UP :
					 IB_PORT_PHYS_STATE_POLLING;
	attr->max_mtu = fab_mtu_enum(fab_parameters.hca_mtu);
	attr->active_mtu = fab_mtu_enum(fab_parameters.active_mtu);
	attr->gid_tbl_len = FAB_GIDS;
	attr->pkey_tbl_len = FAB_PKEYS;
	attr->lid = port->lid;
	attr->sm_lid = port->lid ? FAB_SM_LID : 0;
	attr->max_msg_sz = 0x40000000;
	attr->max_vl_num = 4;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_QDR;
	attr->port_cap_flags = port->capabilities;
	attr->subnet_timeout = 18;
	return 0;
}

static int get_port_immutable(struct ib_device *ib, u32 number,
			      struct ib_port_immutable *immutable)
{
	immutable->pkey_tbl_len = FAB_PKEYS;
	immutable->gid_tbl_len = FAB_GIDS;
	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_IB;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static enum rdma_link_layer get_link_layer(struct ib_device *ib, u32 number)
{
	return IB_LINK_LAYER_INFINIBAND;
}

static int query_pkey(struct ib_device *ib, u32 number, u16 index, u16 *pkey)
{
	if (index >= FAB_PKEYS)
		return -EINVAL;
	*pkey = fab_port_of(ib, number)->pkeys[index];
	return 0;
}

/* The first GID is the port's; the others are for virtual functions, and empty. */
static int query_gid(struct ib_device *ib, u32 number, int index, union ib_gid *gid)
{
	if (index < 0 || index >= FAB_GIDS)
		return -EINVAL;
	memset(gid, 0, sizeof(*gid));
	if (index)
		return 0;
	gid->global.subnet_prefix = cpu_to_be64(FAB_SUBNET_PREFIX);
	gid->global.interface_id = cpu_to_be64(fab_port_of(ib, number)->guid);
	return 0;
}

static void get_dev_fw_str(struct ib_device *ib, char *text)
{
	strscpy(text, fab_parameters.firmware, IB_FW_VERSION_NAME_MAX);
}

static int modify_port(struct ib_device *ib, u32 number, int mask,
		       struct ib_port_modify *modify)
{
	struct fab_port *port = fab_port_of(ib, number);
	unsigned long flags;

	spin_lock_irqsave(&fab_lock, flags);
	port->capabilities |= modify->set_port_cap_mask;
	port->capabilities &= ~modify->clr_port_cap_mask;
	spin_unlock_irqrestore(&fab_lock, flags);
	return 0;
}

static int modify_device(struct ib_device *ib, int mask,
			 struct ib_device_modify *modify)
{
	if (mask & ~IB_DEVICE_MODIFY_NODE_DESC)
		return -EOPNOTSUPP;
	if (mask & IB_DEVICE_MODIFY_NODE_DESC)
		memcpy(ib->node_desc, modify->node_desc, sizeof(ib->node_desc));
	return 0;
}

/* Protection domains and user contexts: neither has data. */
static int alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int alloc_ucontext(struct ib_ucontext *context, struct ib_udata *udata)
{
	return 0;
}

static void dealloc_ucontext(struct ib_ucontext *context)
{
}

/* Lets an HCA be removed while a program has it open: it has no queues mapped. */
static void disassociate_ucontext(struct ib_ucontext *context)
{
}

static int create_ah(struct ib_ah *ib, struct rdma_ah_init_attr *init,
		     struct ib_udata *udata)
{
	struct fab_ah *ah = to_fab_ah(ib);

	if (udata)
		return -EOPNOTSUPP;
	ah->attr = *init->ah_attr;
	/* The reference belongs to the caller. */
	ah->attr.grh.sgid_attr = NULL;
	return 0;
}

/* The kernel's MAD layer compares addresses to match an answer with its request. */
static int query_ah(struct ib_ah *ib, struct rdma_ah_attr *attr)
{
	*attr = to_fab_ah(ib)->attr;
	return 0;
}

static int destroy_ah(struct ib_ah *ib, u32 flags)
{
	return 0;
}

/* The name of the model in Mellanox's drivers, if no other is given. */
static ssize_t hca_type_show(struct device *device, struct device_attribute *attr,
			     char *text)
{
	if (*fab_parameters.hca_type)
		return sysfs_emit(text, "%s\n", fab_parameters.hca_type);
	return sysfs_emit(text, "MT%d\n", fab_parameters.pci_device);
}

static ssize_t hw_rev_show(struct device *device, struct device_attribute *attr,
			   char *text)
{
	return sysfs_emit(text, "%x\n", fab_parameters.pci_revision);
}

static ssize_t board_id_show(struct device *device, struct device_attribute *attr,
			     char *text)
{
	return sysfs_emit(text, "%s\n", fab_parameters.board_id);
}

static DEVICE_ATTR_RO(hca_type);
static DEVICE_ATTR_RO(hw_rev);
static DEVICE_ATTR_RO(board_id);

static struct attribute *device_attributes[] = {
	&dev_attr_hca_type.attr,
	&dev_attr_hw_rev.attr,
	&dev_attr_board_id.attr,
	NULL,
};

static const struct attribute_group device_group = {
	.attrs = device_attributes,
};

static const struct ib_device_ops ops = {
	.owner = THIS_MODULE,
	/*
	 * ibv_devinfo needs a number that user space knows; that of Soft-RoCE needs
	 * nothing when a device is opened. There are no queues for user space:
	 * creating one is refused.
	 */
	.driver_id = RDMA_DRIVER_RXE,
	.uverbs_abi_ver = RXE_ABI,
	.device_group = &device_group,
	.port_groups = fab_port_groups,

	.query_device = query_device,
	.query_port = query_port,
	.query_pkey = query_pkey,
	.query_gid = query_gid,
	.get_port_immutable = get_port_immutable,
	.get_link_layer = get_link_layer,
	.get_dev_fw_str = get_dev_fw_str,
	.modify_port = modify_port,
	.modify_device = modify_device,

	.get_vf_config = fab_get_vf_config,
	.set_vf_link_state = fab_set_vf_link_state,
	.set_vf_guid = fab_set_vf_guid,
	.get_vf_guid = fab_get_vf_guid,

	.alloc_ucontext = alloc_ucontext,
	.dealloc_ucontext = dealloc_ucontext,
	.disassociate_ucontext = disassociate_ucontext,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.create_ah = create_ah,
	.query_ah = query_ah,
	.destroy_ah = destroy_ah,

	.create_cq = fab_create_cq,
	.destroy_cq = fab_destroy_cq,
	.poll_cq = fab_poll_cq,
	.req_notify_cq = fab_req_notify_cq,

	.create_srq = fab_create_srq,
	.destroy_srq = fab_destroy_srq,
	.post_srq_recv = fab_post_srq_recv,

	.create_qp = fab_create_qp,
	.modify_qp = fab_modify_qp,
	.query_qp = fab_query_qp,
	.destroy_qp = fab_destroy_qp,
	.post_send = fab_post_send,
	.post_recv = fab_post_recv,
	.attach_mcast = fab_attach_mcast,
	.detach_mcast = fab_detach_mcast,

	.get_dma_mr = fab_get_dma_mr,
	.reg_user_mr = fab_reg_user_mr,
	.alloc_mr = fab_alloc_mr,
	.map_mr_sg = fab_map_mr_sg,
	.dereg_mr = fab_dereg_mr,

	INIT_RDMA_OBJ_SIZE(ib_ah, fab_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, fab_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, fab_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_srq, fab_srq, ib),
	/* They have no data beyond the core's, but the size is required. */
	.size_ib_pd = sizeof(struct ib_pd),
	.size_ib_ucontext = sizeof(struct ib_ucontext),
};

static void unlist(struct fab_hca *hca)
{
	unsigned long flags;

	spin_lock_irqsave(&fab_lock, flags);
	list_del(&hca->entry);
	spin_unlock_irqrestore(&fab_lock, flags);
}

static int add_to_core(struct fab_hca *hca)
{
	unsigned long flags;
	int error;

	mutex_lock(&fab_mutex);
	/* First, because IPoIB asks the SA while the device is being registered. */
	spin_lock_irqsave(&fab_lock, flags);
	list_add_tail(&hca->entry, &fab_hcas);
	spin_unlock_irqrestore(&fab_lock, flags);
	/* No device for DMA: addresses are the kernel's own. */
	error = ib_register_device(&hca->ib, fab_parameters.device_name, NULL);
	if (error)
		unlist(hca);
	else
		hca->registered = true;
	mutex_unlock(&fab_mutex);
	return error;
}

/* A function is an HCA of its own, or a VF of one. */
static void set_place(struct fab_hca *hca, struct pci_dev *function)
{
	int vf = function->is_virtfn ? pci_iov_vf_id(function) : 0;

	hca->index = PCI_SLOT(function->devfn);
	if (!function->is_virtfn)
		return;
	hca->pf = pci_get_drvdata(pci_physfn(function));
	hca->own = &hca->pf->vfs[vf];
	hca->index = FAB_MAX_HCAS + hca->pf->index * FAB_MAX_VFS + vf;
}

/* Make the HCA of a PCI function; returns an ERR_PTR on failure. */
struct fab_hca *fab_hca_create(struct pci_dev *function)
{
	struct fab_hca *hca = ib_alloc_device(fab_hca, ib);
	int error;
	u32 i;

	if (!hca)
		return ERR_PTR(-ENOMEM);
	set_place(hca, function);
	hca->last_qpn = 0x40;
	INIT_LIST_HEAD(&hca->qps);
	for (i = 0; i < fab_parameters.ports; i++)
		fab_port_init(&hca->ports[i], hca, i + 1);
	hca->ib.dev.parent = &function->dev;
	hca->ib.node_type = RDMA_NODE_IB_CA;
	hca->ib.node_guid = cpu_to_be64(hca->own ? hca->own->node_guid :
						   hca->ports[0].guid - 1);
	hca->ib.phys_port_cnt = fab_parameters.ports;
	hca->ib.num_comp_vectors = 2;
	hca->ib.local_dma_lkey = FAB_LOCAL_KEY;
	snprintf(hca->ib.node_desc, sizeof(hca->ib.node_desc), "ib_fabric HCA-%u",
		 hca->index + 1);
	ib_set_device_ops(&hca->ib, &ops);
	error = add_to_core(hca);
	if (error) {
		ib_dealloc_device(&hca->ib);
		return ERR_PTR(error);
	}
	return hca;
}

void fab_hca_destroy(struct fab_hca *hca)
{
	/* No event after this. Released at once: a writer to sysfs may wait for it. */
	mutex_lock(&fab_mutex);
	hca->registered = false;
	mutex_unlock(&fab_mutex);
	/* Packets still pass, so that IPoIB can leave its groups. */
	ib_unregister_device(&hca->ib);
	mutex_lock(&fab_mutex);
	unlist(hca);
	mutex_unlock(&fab_mutex);
	ib_dealloc_device(&hca->ib);
}
