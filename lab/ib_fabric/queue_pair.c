// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Queue pairs: SMI, GSI, UD and RC, with the states of the specification.
 */
#include <linux/slab.h>

#include "ib_fabric.h"

/* The owner of a shared receive queue waits for this before it destroys the pair. */
static void tell_last_buffer(struct work_struct *work)
{
	struct fab_qp *qp = container_of(work, struct fab_qp, event);
	struct ib_event event = {
		.device = qp->ib.device,
		.event = IB_EVENT_QP_LAST_WQE_REACHED,
		.element.qp = &qp->ib,
	};

	if (qp->ib.event_handler)
		qp->ib.event_handler(&event, qp->ib.qp_context);
}

static bool fits(const struct ib_qp_cap *cap)
{
	return cap->max_send_wr <= FAB_MAX_WR && cap->max_recv_wr <= FAB_MAX_WR &&
	       cap->max_send_sge <= FAB_MAX_SGE && cap->max_recv_sge <= FAB_MAX_SGE;
}

int fab_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *attr,
		  struct ib_udata *udata)
{
	struct fab_hca *hca = to_fab_hca(ib->device);
	struct fab_qp *qp = to_fab_qp(ib);
	unsigned long flags;

	if (udata)
		return -EOPNOTSUPP;
	if (!fits(&attr->cap))
		return -EINVAL;
	/* Inline data has no advantage: there is no bus whose reads it could save. */
	attr->cap.max_inline_data = 0;
	qp->cap = attr->cap;
	qp->state = IB_QPS_RESET;
	qp->signal_all = attr->sq_sig_type == IB_SIGNAL_ALL_WR;
	INIT_LIST_HEAD(&qp->sends);
	INIT_WORK(&qp->event, tell_last_buffer);
	fab_rq_init(&qp->rq, attr->cap.max_recv_wr);

	spin_lock_irqsave(&fab_lock, flags);
	switch (attr->qp_type) {
	case IB_QPT_SMI:
	case IB_QPT_GSI:
		ib->qp_num = attr->qp_type == IB_QPT_GSI ? 1 : 0;
		qp->port = attr->port_num;
		break;
	case IB_QPT_UD:
	case IB_QPT_RC:
		ib->qp_num = ++hca->last_qpn;
		break;
	default:
		spin_unlock_irqrestore(&fab_lock, flags);
		return -EOPNOTSUPP;
	}
	list_add_tail(&qp->entry, &hca->qps);
	spin_unlock_irqrestore(&fab_lock, flags);
	return 0;
}

/* Drop or flush posted requests, as the state requires; under fab_lock. */
static void settle(struct fab_qp *qp)
{
	if (qp->state == IB_QPS_RESET) {
		fab_sends_drop(qp);
		fab_rq_empty(&qp->rq, NULL);
	} else if (qp->state == IB_QPS_ERR) {
		fab_sends_flush(qp);
		fab_rq_empty(&qp->rq, &qp->ib);
		if (qp->ib.srq)
			queue_work(fab_completions, &qp->event);
	}
}

/* An error in transmission: the pair no longer sends or receives; under fab_lock. */
void fab_qp_fail(struct fab_qp *qp)
{
	qp->state = IB_QPS_ERR;
	settle(qp);
}

int fab_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		  struct ib_udata *udata)
{
	struct fab_qp *qp = to_fab_qp(ib);
	enum ib_qp_state from;
	enum ib_qp_state to;
	unsigned long flags;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	if (mask & IB_QP_PORT &&
	    (!attr->port_num || attr->port_num > ib->device->phys_port_cnt))
		return -EINVAL;
	if (mask & IB_QP_PKEY_INDEX && attr->pkey_index >= FAB_PKEYS)
		return -EINVAL;

	spin_lock_irqsave(&fab_lock, flags);
	from = mask & IB_QP_CUR_STATE ? attr->cur_qp_state : qp->state;
	to = mask & IB_QP_STATE ? attr->qp_state : from;
	if (!ib_modify_qp_is_ok(from, to, ib->qp_type, mask)) {
		spin_unlock_irqrestore(&fab_lock, flags);
		return -EINVAL;
	}
	if (mask & IB_QP_PORT)
		qp->port = attr->port_num;
	if (mask & IB_QP_PKEY_INDEX)
		qp->pkey_index = attr->pkey_index;
	if (mask & IB_QP_QKEY)
		qp->qkey = attr->qkey;
	if (mask & IB_QP_AV)
		qp->dlid = rdma_ah_get_dlid(&attr->ah_attr);
	if (mask & IB_QP_DEST_QPN)
		qp->dest_qpn = attr->dest_qp_num;
	if (mask & IB_QP_PATH_MTU)
		qp->path_mtu = attr->path_mtu;
	if (mask & IB_QP_ACCESS_FLAGS)
		qp->access = attr->qp_access_flags;
	if (to != qp->state) {
		qp->state = to;
		settle(qp);
		/* Pairs that wait for a buffer of this one must fail or continue now. */
		fab_resume(qp);
	}
	spin_unlock_irqrestore(&fab_lock, flags);
	return 0;
}

int fab_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		 struct ib_qp_init_attr *init)
{
	struct fab_qp *qp = to_fab_qp(ib);
	unsigned long flags;

	memset(attr, 0, sizeof(*attr));
	memset(init, 0, sizeof(*init));
	spin_lock_irqsave(&fab_lock, flags);
	attr->qp_state = qp->state;
	attr->cur_qp_state = qp->state;
	attr->port_num = qp->port;
	attr->pkey_index = qp->pkey_index;
	attr->qkey = qp->qkey;
	attr->dest_qp_num = qp->dest_qpn;
	attr->path_mtu = qp->path_mtu;
	attr->qp_access_flags = qp->access;
	attr->cap = qp->cap;
	spin_unlock_irqrestore(&fab_lock, flags);
	init->cap = qp->cap;
	init->qp_type = ib->qp_type;
	init->send_cq = ib->send_cq;
	init->recv_cq = ib->recv_cq;
	init->srq = ib->srq;
	init->sq_sig_type = qp->signal_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR;
	return 0;
}

int fab_destroy_qp(struct ib_qp *ib, struct ib_udata *udata)
{
	struct fab_qp *qp = to_fab_qp(ib);
	unsigned long flags;

	spin_lock_irqsave(&fab_lock, flags);
	qp->state = IB_QPS_RESET;
	list_del(&qp->entry);
	settle(qp);
	fab_resume(NULL);
	spin_unlock_irqrestore(&fab_lock, flags);
	cancel_work_sync(&qp->event);
	return 0;
}

int fab_attach_mcast(struct ib_qp *ib, union ib_gid *gid, u16 lid)
{
	struct fab_qp *qp = to_fab_qp(ib);
	unsigned long flags;
	int error = 0;

	spin_lock_irqsave(&fab_lock, flags);
	if (qp->num_mlids < ARRAY_SIZE(qp->mlids))
		qp->mlids[qp->num_mlids++] = lid;
	else
		error = -ENOMEM;
	spin_unlock_irqrestore(&fab_lock, flags);
	return error;
}

int fab_detach_mcast(struct ib_qp *ib, union ib_gid *gid, u16 lid)
{
	struct fab_qp *qp = to_fab_qp(ib);
	unsigned long flags;
	unsigned int i;
	int error = -EINVAL;

	spin_lock_irqsave(&fab_lock, flags);
	for (i = 0; i < qp->num_mlids; i++) {
		if (qp->mlids[i] == lid) {
			qp->mlids[i] = qp->mlids[--qp->num_mlids];
			error = 0;
			break;
		}
	}
	spin_unlock_irqrestore(&fab_lock, flags);
	return error;
}
