// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Send queues: posted send requests, until they are completed. transmit.c executes
 * them. Everything here runs under fab_lock.
 */
#include <linux/slab.h>

#include "ib_fabric.h"

/* The number of queue pairs with waiting requests. */
unsigned int fab_waiting;

/* Is it a known request, with sizes that we support? */
static int check(const struct fab_qp *qp, const struct ib_send_wr *wr)
{
	if (qp->state != IB_QPS_RTS && qp->state != IB_QPS_SQD &&
	    qp->state != IB_QPS_ERR)
		return -EINVAL;
	if (wr->num_sge < 0 || wr->num_sge > FAB_MAX_SGE)
		return -EINVAL;
	if (wr->send_flags & IB_SEND_INLINE)
		return -EINVAL;
	if (wr->opcode == IB_WR_LSO && ud_wr(wr)->hlen > FAB_MAX_HEADER)
		return -EINVAL;
	if (qp->num_sends == qp->cap.max_send_wr)
		return -ENOMEM;
	return 0;
}

static void add_up(struct fab_send *send)
{
	int i;

	for (i = 0; i < send->num_sge; i++)
		send->length += send->sge[i].length;
}

/* The address handle may be destroyed before this is sent. */
static void copy_destination(struct fab_send *send, const struct ib_ud_wr *wr)
{
	send->ah = to_fab_ah(wr->ah)->attr;
	send->dest_qpn = wr->remote_qpn;
	send->qkey = wr->remote_qkey;
	send->pkey_index = wr->pkey_index;
	send->header = wr->header;
	send->header_len = wr->hlen;
	send->mss = wr->mss;
}

static struct fab_send *copy_request(const struct fab_qp *qp,
				     const struct ib_send_wr *wr)
{
	struct fab_send *send;

	send = kzalloc(struct_size(send, sge, wr->num_sge), GFP_ATOMIC);
	if (!send)
		return NULL;
	send->wr_id = wr->wr_id;
	send->opcode = wr->opcode;
	send->flags = wr->send_flags;
	send->num_sge = wr->num_sge;
	memcpy(send->sge, wr->sg_list, wr->num_sge * sizeof(*send->sge));
	add_up(send);
	switch (wr->opcode) {
	case IB_WR_REG_MR:
		send->mr = reg_wr(wr)->mr;
		send->key = reg_wr(wr)->key;
		send->access = reg_wr(wr)->access;
		return send;
	case IB_WR_LOCAL_INV:
	case IB_WR_SEND_WITH_INV:
		send->key = wr->ex.invalidate_rkey;
		break;
	case IB_WR_RDMA_READ:
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		send->remote_addr = rdma_wr(wr)->remote_addr;
		send->rkey = rdma_wr(wr)->rkey;
		send->imm = wr->ex.imm_data;
		break;
	default:
		send->imm = wr->ex.imm_data;
		if (qp->ib.qp_type != IB_QPT_RC)
			copy_destination(send, ud_wr(wr));
	}
	return send;
}

/* Put a request at the end of its queue. Returns 0 or an error. */
int fab_send_add(struct fab_qp *qp, const struct ib_send_wr *wr)
{
	struct fab_send *send;
	int error = check(qp, wr);

	if (error)
		return error;
	send = copy_request(qp, wr);
	if (!send)
		return -ENOMEM;
	list_add_tail(&send->entry, &qp->sends);
	qp->num_sends++;
	return 0;
}

static enum ib_wc_opcode completed_as(enum ib_wr_opcode opcode)
{
	switch (opcode) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return IB_WC_RDMA_WRITE;
	case IB_WR_RDMA_READ:
		return IB_WC_RDMA_READ;
	case IB_WR_LOCAL_INV:
		return IB_WC_LOCAL_INV;
	case IB_WR_REG_MR:
		return IB_WC_REG_MR;
	case IB_WR_LSO:
		return IB_WC_LSO;
	default:
		return IB_WC_SEND;
	}
}

/* It has progressed, or ends. */
void fab_stop_waiting(struct fab_send *send)
{
	if (send->deadline)
		fab_waiting--;
	send->deadline = 0;
}

/* Remove a request from its queue and complete it. */
void fab_send_finish(struct fab_qp *qp, struct fab_send *send, int status)
{
	struct ib_wc wc = {
		.wr_id = send->wr_id,
		.status = status,
		.opcode = completed_as(send->opcode),
		.qp = &qp->ib,
	};

	list_del(&send->entry);
	qp->num_sends--;
	fab_stop_waiting(send);
	if (status || qp->signal_all || send->flags & IB_SEND_SIGNALED)
		fab_complete(qp->ib.send_cq, &wc, false);
	kfree(send);
}

/* Complete all as flushed. */
void fab_sends_flush(struct fab_qp *qp)
{
	struct fab_send *send;
	struct fab_send *next;

	list_for_each_entry_safe(send, next, &qp->sends, entry)
		fab_send_finish(qp, send, IB_WC_WR_FLUSH_ERR);
}

/* Discard all. */
void fab_sends_drop(struct fab_qp *qp)
{
	struct fab_send *send;
	struct fab_send *next;

	list_for_each_entry_safe(send, next, &qp->sends, entry) {
		list_del(&send->entry);
		qp->num_sends--;
		fab_stop_waiting(send);
		kfree(send);
	}
}
