// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The subnet administrator: its answers when a port requests a path or joins a
 * multicast group. They give an IPoIB netdev its carrier.
 *
 * Refusals and their statuses follow OpenSM (osm_sa_mcmember_record.c,
 * osm_sa_path_record.c). Everything here runs under fab_lock.
 */
#include <rdma/ib_sa.h>

#include "ib_fabric.h"

/* IBA 15.2.5.17; "selector" and value share a byte. */
struct member_record {
	u8 mgid[16];
	u8 port_gid[16];
	__be32 qkey;
	__be16 mlid;
	u8 mtu;
	u8 traffic_class;
	__be16 pkey;
	u8 rate;
	u8 life_time;
	__be32 sl_flow_hop;
	u8 scope_join_state;
	u8 proxy_join;
	__be16 reserved;
} __packed;

/* IBA 15.2.5.16. */
struct path_record {
	__be64 service_id;
	u8 dgid[16];
	u8 sgid[16];
	__be16 dlid;
	__be16 slid;
	__be32 flow_hop;
	u8 traffic_class;
	u8 num_path;
	__be16 pkey;
	__be16 qos_sl;
	u8 mtu;
	u8 rate;
	u8 life_time;
	u8 preference;
	u8 reserved[6];
} __packed;

/* IBA 15.2.3: statuses of the SA's own class. */
#define SA_NO_RESOURCES		0x0100
#define SA_REQ_INVALID		0x0200
#define SA_NO_RECORDS		0x0300
/* IBA 13.4.7: the method cannot be used with the attribute. */
#define MAD_UNSUPPORTED		0x000c

/* The selector that says "exactly this". */
#define EXACTLY			(2 << 6)
/* The Q_Key that OpenSM gives IPoIB's groups. */
#define GROUP_QKEY		0x0b1b
/* Multiples: 4.096 us * 2^18 = 1.07 s, OpenSM's defaults. */
#define LIFE_TIME		18
#define RESPONSE_TIME		18
/* The highest bit: the path is reversible. */
#define REVERSIBLE		0x80

static int member(struct fab_port *asker, struct ib_sa_mad *mad)
{
	struct member_record *record = (struct member_record *)mad->data;
	u16 pkey = be16_to_cpu(record->pkey);
	int mlid;

	if (mad->mad_hdr.method == IB_SA_METHOD_DELETE) {
		if (!fab_group_leave(record->mgid, asker))
			return SA_REQ_INVALID;
		return 0;
	}
	if (mad->mad_hdr.method != IB_MGMT_METHOD_SET)
		return MAD_UNSUPPORTED;
	/*
	 * A port must be in the partition, and its link must support the group's MTU
	 * (up to OpenSM 3.3.18 the port, whatever its link).
	 */
	if (fab_pkey_find(asker, pkey) < 0 ||
	    fab_group_mtu > fab_parameters.active_mtu)
		return SA_REQ_INVALID;
	mlid = fab_group_join(record->mgid, asker);
	if (mlid < 0)
		return SA_NO_RESOURCES;
	record->qkey = cpu_to_be32(GROUP_QKEY);
	record->mlid = cpu_to_be16(mlid);
	record->mtu = EXACTLY | fab_mtu_enum(fab_group_mtu);
	/* Supported by every port: 10 Gb/s, OpenSM's default for IPoIB. */
	record->rate = EXACTLY | IB_RATE_10_GBPS;
	record->life_time = EXACTLY | LIFE_TIME;
	record->sl_flow_hop = 0;
	return 0;
}

static struct fab_port *port_by_gid(const u8 *gid)
{
	return fab_find_port_by_guid(get_unaligned_be64(gid + 8));
}

static int path(struct ib_sa_mad *mad)
{
	struct path_record *record = (struct path_record *)mad->data;
	struct fab_port *from = port_by_gid(record->sgid);
	struct fab_port *to = port_by_gid(record->dgid);
	u16 pkey = be16_to_cpu(record->pkey);
	int from_index;
	int to_index;

	if (mad->mad_hdr.method != IB_MGMT_METHOD_GET)
		return MAD_UNSUPPORTED;
	if (!from || !to || from->state != IB_PORT_ACTIVE ||
	    to->state != IB_PORT_ACTIVE)
		return SA_NO_RECORDS;
	if (!(mad->sa_hdr.comp_mask & IB_SA_PATH_REC_PKEY))
		pkey = from->pkeys[0];
	from_index = fab_pkey_find(from, pkey);
	to_index = fab_pkey_find(to, pkey);
	if (from_index < 0 || to_index < 0 ||
	    !fab_pkeys_match(from->pkeys[from_index], to->pkeys[to_index]))
		return SA_NO_RECORDS;
	record->slid = cpu_to_be16(from->lid);
	record->dlid = cpu_to_be16(to->lid);
	record->flow_hop = 0;
	record->num_path = REVERSIBLE | 1;
	record->pkey = cpu_to_be16(pkey);
	record->qos_sl = 0;
	record->mtu = EXACTLY | fab_mtu_enum(fab_parameters.active_mtu);
	record->rate = EXACTLY | IB_RATE_40_GBPS;
	record->life_time = EXACTLY | LIFE_TIME;
	record->preference = 0;
	return 0;
}

static int class_port_info(struct ib_sa_mad *mad)
{
	struct ib_class_port_info *info = (struct ib_class_port_info *)mad->data;

	memset(info, 0, sizeof(*info));
	info->base_version = IB_MGMT_BASE_VERSION;
	info->class_version = IB_SA_CLASS_VERSION;
	ib_set_cpi_resp_time(info, RESPONSE_TIME);
	return 0;
}

/*
 * Turn a request into its answer. False if there is none: no subnet manager, or not a
 * request to the SA.
 */
bool fab_sa_answer(struct fab_port *asker, struct ib_sa_mad *mad)
{
	struct ib_mad_hdr *header = &mad->mad_hdr;
	int status;

	if (!fab_subnet_manager || header->mgmt_class != IB_MGMT_CLASS_SUBN_ADM ||
	    ib_response_mad(header))
		return false;
	switch (be16_to_cpu(header->attr_id)) {
	case IB_SA_ATTR_CLASS_PORTINFO:
		status = class_port_info(mad);
		break;
	case IB_SA_ATTR_MC_MEMBER_REC:
		status = member(asker, mad);
		break;
	case IB_SA_ATTR_PATH_REC:
		status = path(mad);
		break;
	/* Subscriptions and registrations are accepted, without effect. */
	case IB_SA_ATTR_INFORM_INFO:
	case IB_SA_ATTR_SERVICE_REC:
		status = 0;
		break;
	default:
		status = MAD_UNSUPPORTED;
	}
	header->status = cpu_to_be16(status);
	if (header->method == IB_SA_METHOD_DELETE)
		header->method = IB_SA_METHOD_DELETE_RESP;
	else
		header->method = IB_MGMT_METHOD_GET_RESP;
	return true;
}
