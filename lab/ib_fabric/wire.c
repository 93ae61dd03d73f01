// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The wire: finds the receivers of a message. Everything here runs under fab_lock.
 */
#include <rdma/ib_sa.h>

#include "ib_fabric.h"

/* A Q_Key with this bit is replaced by that of the sender's own pair. */
#define QKEY_CONTROLLED	0x80000000
/* IBA 8.3: "IPVer" and "NxtHdr" of a GRH before a BTH. */
#define GRH_VERSION	(6 << 28)
#define GRH_NEXT_HEADER	0x1b

static struct fab_port *find_port(u16 lid)
{
	struct fab_hca *hca;
	u32 i;

	if (!lid)
		return NULL;
	list_for_each_entry(hca, &fab_hcas, entry)
		for (i = 0; i < hca->ib.phys_port_cnt; i++)
			if (hca->ports[i].lid == lid)
				return &hca->ports[i];
	return NULL;
}

static struct fab_port *port_of(const struct fab_qp *qp)
{
	return fab_port_of(qp->ib.device, qp->port);
}

static struct fab_qp *find_qp(u16 lid, u32 qpn)
{
	struct fab_port *port = find_port(lid);
	struct fab_qp *qp;

	if (!port || port->state != IB_PORT_ACTIVE)
		return NULL;
	list_for_each_entry(qp, &port->hca->qps, entry)
		if (qp->ib.qp_num == qpn && qp->port == port->number)
			return qp;
	return NULL;
}

static bool receives(const struct fab_qp *qp)
{
	return qp->state == IB_QPS_RTR || qp->state == IB_QPS_RTS ||
	       qp->state == IB_QPS_SQD || qp->state == IB_QPS_SQE;
}

/*
 * Return the other end of a connection; NULL if it is missing, cannot be reached, or is
 * in another partition. It may still be in state INIT, before it can receive.
 */
struct fab_qp *fab_find_peer(const struct fab_qp *qp)
{
	struct fab_port *port = port_of(qp);
	struct fab_qp *peer;

	if (port->state != IB_PORT_ACTIVE)
		return NULL;
	peer = find_qp(qp->dlid, qp->dest_qpn);
	if (!peer || peer->ib.qp_type != IB_QPT_RC)
		return NULL;
	if (peer->state == IB_QPS_INIT)
		return peer;
	if (!receives(peer) || peer->dest_qpn != qp->ib.qp_num ||
	    peer->dlid != port->lid)
		return NULL;
	if (!fab_pkeys_match(port->pkeys[qp->pkey_index],
			     port_of(peer)->pkeys[peer->pkey_index]))
		return NULL;
	return peer;
}

/* Does the queue pair accept a datagram with these keys? */
static bool accepts(const struct fab_qp *qp, u16 pkey, u32 qkey)
{
	const struct fab_port *port = port_of(qp);
	int i;

	if (!receives(qp) || qp->qkey != qkey || port->state != IB_PORT_ACTIVE)
		return false;
	if (qp->ib.qp_type == IB_QPT_UD)
		return fab_pkeys_match(pkey, port->pkeys[qp->pkey_index]);
	if (qp->ib.qp_type != IB_QPT_GSI)
		return false;
	for (i = 0; i < FAB_PKEYS; i++)
		if (fab_pkeys_match(pkey, port->pkeys[i]))
			return true;
	return false;
}

/* To every member except the sender; none can delay the others. */
static void send_to_group(struct fab_qp *sender, u16 mlid, u32 qkey,
			  const struct fab_message *message)
{
	struct fab_hca *hca;
	struct fab_qp *qp;
	unsigned int i;

	list_for_each_entry(hca, &fab_hcas, entry) {
		list_for_each_entry(qp, &hca->qps, entry) {
			for (i = 0; i < qp->num_mlids; i++)
				if (qp->mlids[i] == mlid)
					break;
			if (i < qp->num_mlids && qp != sender &&
			    accepts(qp, message->pkey, qkey))
				fab_deliver(qp, message);
		}
	}
}

/* To the subnet administrator; its answer, if any, arrives at once. */
static enum fab_delivery ask_sa(struct fab_qp *qp, const struct fab_message *message)
{
	struct ib_sa_mad mad;
	struct ib_sge sge = {
		.addr = (uintptr_t)&mad,
		.length = sizeof(mad),
		.lkey = FAB_LOCAL_KEY,
	};
	struct fab_cursor to = { .sge = &sge, .left = 1 };
	struct fab_cursor from = message->data;
	struct fab_message answer = {
		.slid = FAB_SM_LID,
		.src_qpn = 1,
		.pkey = message->pkey,
		.data = { .sge = &sge, .left = 1 },
		.length = sizeof(mad),
		.opcode = IB_WC_RECV,
	};

	BUILD_BUG_ON(sizeof(mad) != IB_MGMT_MAD_SIZE);
	if (message->length != sizeof(mad))
		return FAB_DELIVERED;
	if (!fab_copy(&from, &to, sizeof(mad)))
		return FAB_BAD_DATA;
	/* An answer without a buffer is lost, and requested again. */
	if (fab_sa_answer(port_of(qp), &mad))
		fab_deliver(qp, &answer);
	return FAB_DELIVERED;
}

static void make_grh(struct ib_grh *grh, const struct fab_port *port,
		     const struct rdma_ah_attr *ah, const struct fab_message *message)
{
	memset(grh, 0, sizeof(*grh));
	grh->version_tclass_flow = cpu_to_be32(GRH_VERSION);
	grh->paylen = cpu_to_be16(message->header_len + message->length);
	grh->next_hdr = GRH_NEXT_HEADER;
	grh->hop_limit = rdma_ah_read_grh(ah)->hop_limit;
	grh->sgid.global.subnet_prefix = cpu_to_be64(FAB_SUBNET_PREFIX);
	grh->sgid.global.interface_id = cpu_to_be64(port->guid);
	grh->dgid = rdma_ah_read_grh(ah)->dgid;
}

/*
 * Send a datagram. FAB_NO_BUFFER only if its one receiver exists and has none; a
 * datagram without a receiver counts as delivered, as it does for its sender.
 */
enum fab_delivery fab_send_datagram(struct fab_qp *qp, const struct fab_send *send,
				    struct fab_message *message)
{
	bool management = qp->ib.qp_type != IB_QPT_UD;
	struct fab_port *port = port_of(qp);
	u16 dlid = rdma_ah_get_dlid(&send->ah);
	enum fab_delivery delivery;
	struct ib_grh grh;
	struct fab_qp *receiver;
	u32 qkey;

	/* Queue pair 0 is for subnet management packets, which nothing here answers. */
	if (port->state != IB_PORT_ACTIVE || !send->dest_qpn)
		return FAB_DELIVERED;
	if (management && send->pkey_index >= FAB_PKEYS)
		return FAB_DELIVERED;
	message->pkey = port->pkeys[management ? send->pkey_index : qp->pkey_index];
	qkey = send->qkey & QKEY_CONTROLLED ? qp->qkey : send->qkey;
	if (rdma_ah_get_ah_flags(&send->ah) & IB_AH_GRH) {
		make_grh(&grh, port, &send->ah, message);
		message->grh = &grh;
	}
	if (dlid == FAB_SM_LID) {
		delivery = send->dest_qpn == 1 ? ask_sa(qp, message) : FAB_DELIVERED;
	} else if (dlid >= FAB_FIRST_MLID) {
		send_to_group(qp, dlid, qkey, message);
		delivery = FAB_DELIVERED;
	} else {
		receiver = find_qp(dlid, send->dest_qpn);
		if (receiver && accepts(receiver, message->pkey, qkey))
			delivery = fab_deliver(receiver, message);
		else
			delivery = FAB_DELIVERED;
	}
	message->grh = NULL;
	return delivery;
}
