// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Receive queues: the posted buffers of a queue pair, or of several together (SRQ), and
 * the copying of a message into one.
 */
#include <linux/slab.h>

#include "ib_fabric.h"

void fab_rq_init(struct fab_rq *rq, u32 max)
{
	INIT_LIST_HEAD(&rq->posted);
	rq->count = 0;
	rq->max = max;
}

static int post(struct fab_rq *rq, const struct ib_recv_wr *wr)
{
	struct fab_recv *recv;

	if (wr->num_sge < 0 || wr->num_sge > FAB_MAX_SGE)
		return -EINVAL;
	if (rq->count == rq->max)
		return -ENOMEM;
	recv = kmalloc(struct_size(recv, sge, wr->num_sge), GFP_ATOMIC);
	if (!recv)
		return -ENOMEM;
	recv->wr_id = wr->wr_id;
	recv->num_sge = wr->num_sge;
	memcpy(recv->sge, wr->sg_list, wr->num_sge * sizeof(*recv->sge));
	list_add_tail(&recv->entry, &rq->posted);
	rq->count++;
	return 0;
}

/* Post a list of requests; under fab_lock. On an error *bad is the one that failed. */
static int post_all(struct fab_rq *rq, const struct ib_recv_wr *wr,
		    const struct ib_recv_wr **bad)
{
	int error;

	for (; wr; wr = wr->next) {
		error = post(rq, wr);
		if (error) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}

static void take(struct fab_rq *rq, struct fab_recv *recv)
{
	list_del(&recv->entry);
	rq->count--;
	kfree(recv);
}

/* Remove all buffers, as flushed for a queue pair in error; under fab_lock. */
void fab_rq_empty(struct fab_rq *rq, struct ib_qp *complete_for)
{
	struct fab_recv *recv;
	struct fab_recv *next;

	list_for_each_entry_safe(recv, next, &rq->posted, entry) {
		struct ib_wc wc = {
			.wr_id = recv->wr_id,
			.status = IB_WC_WR_FLUSH_ERR,
			.opcode = IB_WC_RECV,
			.qp = complete_for,
		};

		if (complete_for)
			fab_complete(complete_for->recv_cq, &wc, false);
		take(rq, recv);
	}
}

int fab_create_srq(struct ib_srq *ib, struct ib_srq_init_attr *attr,
		   struct ib_udata *udata)
{
	if (udata || attr->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	if (attr->attr.max_wr > FAB_MAX_WR || attr->attr.max_sge > FAB_MAX_SGE)
		return -EINVAL;
	fab_rq_init(&to_fab_srq(ib)->rq, attr->attr.max_wr);
	return 0;
}

int fab_destroy_srq(struct ib_srq *ib, struct ib_udata *udata)
{
	unsigned long flags;

	spin_lock_irqsave(&fab_lock, flags);
	fab_rq_empty(&to_fab_srq(ib)->rq, NULL);
	spin_unlock_irqrestore(&fab_lock, flags);
	return 0;
}

int fab_post_srq_recv(struct ib_srq *ib, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad)
{
	unsigned long flags;
	int error;

	spin_lock_irqsave(&fab_lock, flags);
	error = post_all(&to_fab_srq(ib)->rq, wr, bad);
	fab_resume(NULL);
	spin_unlock_irqrestore(&fab_lock, flags);
	return error;
}

int fab_post_recv(struct ib_qp *ib, const struct ib_recv_wr *wr,
		  const struct ib_recv_wr **bad)
{
	struct fab_qp *qp = to_fab_qp(ib);
	unsigned long flags;
	int error;

	spin_lock_irqsave(&fab_lock, flags);
	error = post_all(&qp->rq, wr, bad);
	if (qp->state == IB_QPS_ERR)
		fab_rq_empty(&qp->rq, ib);
	else
		fab_resume(NULL);
	spin_unlock_irqrestore(&fab_lock, flags);
	return error;
}

/* Copy plain memory into the buffer. */
static bool put(const void *from, u32 length, struct fab_cursor *to)
{
	struct ib_sge sge = {
		.addr = (uintptr_t)from,
		.length = length,
		.lkey = FAB_LOCAL_KEY,
	};
	struct fab_cursor memory = { .sge = &sge, .left = 1 };

	return fab_copy(&memory, to, length);
}

static bool fill(struct fab_cursor to, const struct fab_message *message)
{
	static const struct ib_grh no_grh;
	struct fab_cursor data = message->data;

	/* A datagram's first 40 bytes are for a GRH, even if it has none. */
	if (!message->connected &&
	    !put(message->grh ? message->grh : &no_grh, sizeof(no_grh), &to))
		return false;
	return put(message->header, message->header_len, &to) &&
	       fab_copy(&data, &to, message->length);
}

static u16 pkey_index(struct fab_qp *qp, u16 pkey)
{
	int found;

	if (qp->ib.qp_type != IB_QPT_GSI)
		return qp->pkey_index;
	found = fab_pkey_find(fab_port_of(qp->ib.device, qp->port), pkey);
	return max(found, 0);
}

/* Copy a message into the next buffer and complete it; under fab_lock. */
enum fab_delivery fab_deliver(struct fab_qp *qp, const struct fab_message *message)
{
	struct fab_rq *rq = qp->ib.srq ? &to_fab_srq(qp->ib.srq)->rq : &qp->rq;
	struct fab_recv *recv;
	struct fab_cursor to;
	struct ib_wc wc = {
		.status = IB_WC_SUCCESS,
		.opcode = message->opcode,
		.qp = &qp->ib,
		.src_qp = message->src_qpn,
		.slid = message->slid,
		.port_num = qp->port,
		.pkey_index = pkey_index(qp, message->pkey),
		/* Without a wire no checksum can be wrong. */
		.wc_flags = message->wc_flags | IB_WC_IP_CSUM_OK,
	};
	bool fits;

	if (!fab_reaches(message->data, message->length))
		return FAB_BAD_DATA;
	recv = list_first_entry_or_null(&rq->posted, struct fab_recv, entry);
	if (!recv)
		return FAB_NO_BUFFER;

	to.pd = qp->ib.srq ? qp->ib.srq->pd : qp->ib.pd;
	to.access = IB_ACCESS_LOCAL_WRITE;
	to.sge = recv->sge;
	to.left = recv->num_sge;
	to.offset = 0;
	fits = fill(to, message);

	wc.wr_id = recv->wr_id;
	wc.byte_len = message->header_len + message->length + message->written;
	if (!message->connected)
		wc.byte_len += sizeof(struct ib_grh);
	if (message->grh)
		wc.wc_flags |= IB_WC_GRH;
	if (message->wc_flags & IB_WC_WITH_INVALIDATE) {
		fab_mr_invalidate(qp->ib.pd, message->key);
		wc.ex.invalidate_rkey = message->key;
	} else if (message->wc_flags & IB_WC_WITH_IMM) {
		wc.ex.imm_data = message->imm;
	}
	if (!fits)
		wc.status = IB_WC_LOC_LEN_ERR;
	take(rq, recv);
	fab_complete(qp->ib.recv_cq, &wc, message->solicited);
	return fits ? FAB_DELIVERED : FAB_TOO_LONG;
}
