// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Send queues: what is posted is carried out at once and in order, as long as the other
 * side has a buffer for it. If it has none, the queue waits: a connected pair as long
 * as it takes, a datagram for a short while, as if the link held it back.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "ib_fabric.h"

/* How long a datagram waits for a buffer: a reader needs some of it to be scheduled. */
#define PATIENCE	msecs_to_jiffies(40)

static void resume(struct work_struct *work);
static DECLARE_DELAYED_WORK(resume_work, resume);

/* How many queue pairs have something that waits; under fab_lock. */
static unsigned int waiting;

/* Is it one of ours, with sizes that we have promised? */
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

/* It has got on, or ends; under fab_lock. */
void fab_stop_waiting(struct fab_send *send)
{
	if (send->deadline)
		waiting--;
	send->deadline = 0;
}

/* Take a request off its queue and complete it. */
static void finish(struct fab_qp *qp, struct fab_send *send, int status)
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

static void wait_for_buffer(struct fab_send *send)
{
	if (send->deadline)
		return;
	/* 0 means "not waiting". */
	send->deadline = (jiffies + PATIENCE) | 1;
	waiting++;
	schedule_delayed_work(&resume_work, PATIENCE);
}

/* Carry out what is posted, up to what has to wait; under fab_lock. */
void fab_sends_run(struct fab_qp *qp)
{
	struct fab_send *send;
	int status;

	while (qp->state == IB_QPS_RTS) {
		send = list_first_entry_or_null(&qp->sends, struct fab_send, entry);
		if (!send)
			return;
		status = fab_carry_out(qp, send);
		if (status == FAB_WAIT) {
			wait_for_buffer(send);
			return;
		}
		/*
		 * A connected pair may have failed itself meanwhile, where it was
		 * connected to itself: then this request was flushed with the rest.
		 */
		if (qp->state != IB_QPS_RTS)
			return;
		finish(qp, send, status);
		if (status && qp->ib.qp_type == IB_QPT_RC)
			fab_qp_fail(qp);
	}
}

/* Complete all as flushed; under fab_lock. */
void fab_sends_flush(struct fab_qp *qp)
{
	struct fab_send *send;
	struct fab_send *next;

	list_for_each_entry_safe(send, next, &qp->sends, entry)
		finish(qp, send, IB_WC_WR_FLUSH_ERR);
}

/* Forget all; under fab_lock. */
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

/* Something has changed for those that wait: buffers, states, ports; under fab_lock. */
void fab_sends_resume(void)
{
	struct fab_hca *hca;
	struct fab_qp *qp;

	if (!waiting)
		return;
	list_for_each_entry(hca, &fab_hcas, entry)
		list_for_each_entry(qp, &hca->qps, entry)
			fab_sends_run(qp);
}

/* Datagrams that have waited long enough are given up. */
static void resume(struct work_struct *work)
{
	unsigned long flags;

	spin_lock_irqsave(&fab_lock, flags);
	fab_sends_resume();
	if (waiting)
		schedule_delayed_work(&resume_work, PATIENCE);
	spin_unlock_irqrestore(&fab_lock, flags);
}

/* On unload, when no queue pair is left. */
void fab_sends_stop(void)
{
	cancel_delayed_work_sync(&resume_work);
}

int fab_post_send(struct ib_qp *ib, const struct ib_send_wr *wr,
		  const struct ib_send_wr **bad)
{
	struct fab_qp *qp = to_fab_qp(ib);
	struct fab_send *send;
	unsigned long flags;
	int error = 0;

	spin_lock_irqsave(&fab_lock, flags);
	for (; wr; wr = wr->next) {
		error = check(qp, wr);
		if (!error) {
			send = copy_request(qp, wr);
			if (!send)
				error = -ENOMEM;
		}
		if (error) {
			*bad = wr;
			break;
		}
		list_add_tail(&send->entry, &qp->sends);
		qp->num_sends++;
	}
	if (qp->state == IB_QPS_ERR)
		fab_sends_flush(qp);
	else
		fab_sends_run(qp);
	spin_unlock_irqrestore(&fab_lock, flags);
	return error;
}
