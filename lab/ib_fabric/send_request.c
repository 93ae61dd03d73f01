// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Send requests: the execution of one, on the memory of both sides. Everything here
 * runs under fab_lock.
 */
#include <linux/ip.h>
#include <linux/jiffies.h>
#include <linux/tcp.h>
#include <net/ip.h>

#include "ib_fabric.h"

/* IPoIB's own header, before the IP header of data to segment (RFC 4391). */
#define IPOIB_HEADER	4

static struct fab_message message_of(const struct fab_qp *qp,
				     const struct fab_send *send)
{
	struct fab_message message = {
		.slid = fab_port_of(qp->ib.device, qp->port)->lid,
		.src_qpn = qp->ib.qp_num,
		.connected = qp->ib.qp_type == IB_QPT_RC,
		.data = { .pd = qp->ib.pd, .sge = send->sge, .left = send->num_sge },
		.length = send->length,
		.opcode = IB_WC_RECV,
		.imm = send->imm,
		.key = send->key,
		.solicited = send->flags & IB_SEND_SOLICITED,
	};

	if (send->opcode == IB_WR_SEND_WITH_IMM ||
	    send->opcode == IB_WR_RDMA_WRITE_WITH_IMM)
		message.wc_flags = IB_WC_WITH_IMM;
	else if (send->opcode == IB_WR_SEND_WITH_INV)
		message.wc_flags = IB_WC_WITH_INVALIDATE;
	return message;
}

/* Send to the connected pair. */
static int send_connected(struct fab_qp *qp, struct fab_send *send)
{
	struct fab_qp *peer = fab_find_peer(qp);
	struct fab_message message = message_of(qp, send);

	if (!peer)
		return IB_WC_RETRY_EXC_ERR;
	/* It is being connected, and will be able to receive. */
	if (peer->state == IB_QPS_INIT)
		return FAB_WAIT;
	if (send->opcode == IB_WR_RDMA_WRITE_WITH_IMM) {
		message.opcode = IB_WC_RECV_RDMA_WITH_IMM;
		message.written = send->length;
		message.length = 0;
	}
	switch (fab_deliver(peer, &message)) {
	case FAB_DELIVERED:
		return IB_WC_SUCCESS;
	case FAB_NO_BUFFER:
		return FAB_WAIT;
	case FAB_TOO_LONG:
		fab_qp_fail(peer);
		return IB_WC_REM_INV_REQ_ERR;
	case FAB_BAD_DATA:
		break;
	}
	return IB_WC_LOC_PROT_ERR;
}

/* Read or write the other side's memory. */
static int access_remote(struct fab_qp *qp, struct fab_send *send)
{
	bool read = send->opcode == IB_WR_RDMA_READ;
	int access = read ? IB_ACCESS_REMOTE_READ : IB_ACCESS_REMOTE_WRITE;
	struct fab_qp *peer = fab_find_peer(qp);
	struct fab_cursor local = { .pd = qp->ib.pd, .sge = send->sge };
	struct ib_sge place = {
		.addr = send->remote_addr,
		.length = send->length,
		.lkey = send->rkey,
	};
	struct fab_cursor remote = { .sge = &place, .left = 1, .access = access };

	if (!peer)
		return IB_WC_RETRY_EXC_ERR;
	if (peer->state == IB_QPS_INIT)
		return FAB_WAIT;
	local.left = send->num_sge;
	local.access = read ? IB_ACCESS_LOCAL_WRITE : 0;
	remote.pd = peer->ib.pd;
	if (!fab_reaches(local, send->length))
		return IB_WC_LOC_PROT_ERR;
	if (!(peer->access & access) || !fab_reaches(remote, send->length))
		return IB_WC_REM_ACCESS_ERR;
	if (read)
		fab_copy(&remote, &local, send->length);
	else
		fab_copy(&local, &remote, send->length);
	return IB_WC_SUCCESS;
}

static int write_with_imm(struct fab_qp *qp, struct fab_send *send)
{
	int status = access_remote(qp, send);

	/* While it waits for a buffer it writes repeatedly: the same data, unnoticed. */
	return status ? status : send_connected(qp, send);
}

/* Make the header of one segment, as if TCP had sent it. */
static void cut_header(u8 *header, const struct fab_send *send, u32 payload)
{
	struct iphdr *ip = (struct iphdr *)(header + IPOIB_HEADER);
	struct tcphdr *tcp = (struct tcphdr *)((u8 *)ip + ip->ihl * 4);

	ip->tot_len = htons(send->header_len - IPOIB_HEADER + payload);
	ip->id = htons(ntohs(ip->id) + send->sent / send->mss);
	ip_send_check(ip);
	tcp->seq = htonl(ntohl(tcp->seq) + send->sent);
	if (send->sent)
		tcp->cwr = 0;
	if (send->sent + payload < send->length) {
		tcp->fin = 0;
		tcp->psh = 0;
	}
}

/* IPoIB requests this for TCP over IPv4 only (NETIF_F_TSO without NETIF_F_TSO6). */
static bool can_segment(const struct fab_send *send)
{
	const struct iphdr *ip = send->header + IPOIB_HEADER;
	u32 least = IPOIB_HEADER + sizeof(struct iphdr) + sizeof(struct tcphdr);

	return send->mss && send->header_len >= least && ip->version == 4 &&
	       IPOIB_HEADER + ip->ihl * 4 + sizeof(struct tcphdr) <= send->header_len;
}

/* The other side never refuses datagrams: they arrive or are lost. */
static int datagram_status(struct fab_send *send, enum fab_delivery delivery)
{
	if (delivery == FAB_BAD_DATA)
		return IB_WC_LOC_PROT_ERR;
	if (delivery == FAB_NO_BUFFER &&
	    (!send->deadline || time_before(jiffies, send->deadline)))
		return FAB_WAIT;
	return IB_WC_SUCCESS;
}

static bool too_long(const struct fab_message *message)
{
	u32 length = message->header_len + message->length;

	return length > fab_parameters.active_mtu;
}

static int send_segments(struct fab_qp *qp, struct fab_send *send)
{
	struct fab_message message = message_of(qp, send);
	struct fab_cursor data = message.data;
	u8 header[FAB_MAX_HEADER] __aligned(4);
	int status;

	if (!can_segment(send))
		return IB_WC_LOC_QP_OP_ERR;
	message.header = header;
	message.header_len = send->header_len;
	while (send->sent < send->length) {
		message.length = min(send->mss, send->length - send->sent);
		message.data = data;
		if (too_long(&message))
			return IB_WC_LOC_LEN_ERR;
		if (!fab_skip(&message.data, send->sent))
			return IB_WC_LOC_PROT_ERR;
		memcpy(header, send->header, send->header_len);
		cut_header(header, send, message.length);
		status = datagram_status(send, fab_send_datagram(qp, send, &message));
		if (status)
			return status;
		send->sent += message.length;
		fab_stop_waiting(send);
	}
	return IB_WC_SUCCESS;
}

static int send_datagram(struct fab_qp *qp, struct fab_send *send)
{
	struct fab_message message = message_of(qp, send);

	if (too_long(&message))
		return IB_WC_LOC_LEN_ERR;
	return datagram_status(send, fab_send_datagram(qp, send, &message));
}

/* Execute one request; returns its completion status, or FAB_WAIT. */
int fab_carry_out(struct fab_qp *qp, struct fab_send *send)
{
	bool connected = qp->ib.qp_type == IB_QPT_RC;

	switch (send->opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		return connected ? send_connected(qp, send) : send_datagram(qp, send);
	case IB_WR_LSO:
		return connected ? IB_WC_LOC_QP_OP_ERR : send_segments(qp, send);
	default:
		break;
	}
	if (!connected)
		return IB_WC_LOC_QP_OP_ERR;
	switch (send->opcode) {
	case IB_WR_SEND_WITH_INV:
		return send_connected(qp, send);
	case IB_WR_RDMA_READ:
	case IB_WR_RDMA_WRITE:
		return access_remote(qp, send);
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return write_with_imm(qp, send);
	case IB_WR_REG_MR:
		fab_mr_register(send->mr, send->key, send->access);
		return IB_WC_SUCCESS;
	case IB_WR_LOCAL_INV:
		if (fab_mr_invalidate(qp->ib.pd, send->key))
			return IB_WC_SUCCESS;
		return IB_WC_MW_BIND_ERR;
	default:
		return IB_WC_LOC_QP_OP_ERR;
	}
}
