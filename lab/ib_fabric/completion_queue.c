// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Completion queues: each is a ring, with a work item that notifies its owner.
 *
 * The owner is notified from a workqueue, never from the place of the completion,
 * which may be inside the owner's own post_send.
 */
#include <linux/slab.h>

#include "ib_fabric.h"

struct workqueue_struct *fab_completions;

static void tell(struct work_struct *work)
{
	struct fab_cq *cq = container_of(work, struct fab_cq, work);

	/* As in an interrupt; a raised NAPI runs when bottom halves are enabled. */
	local_bh_disable();
	cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
	local_bh_enable();
}

int fab_create_cq(struct ib_cq *ib, const struct ib_cq_init_attr *attr,
		  struct fab_cq_user *user)
{
	struct fab_cq *cq = to_fab_cq(ib);

	if (user)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > FAB_MAX_CQE)
		return -EINVAL;
	cq->size = roundup_pow_of_two(attr->cqe);
	cq->ring = kvcalloc(cq->size, sizeof(*cq->ring), GFP_KERNEL);
	if (!cq->ring)
		return -ENOMEM;
	INIT_WORK(&cq->work, tell);
	ib->cqe = cq->size;
	return 0;
}

int fab_destroy_cq(struct ib_cq *ib, struct ib_udata *udata)
{
	struct fab_cq *cq = to_fab_cq(ib);

	cancel_work_sync(&cq->work);
	kvfree(cq->ring);
	return 0;
}

int fab_poll_cq(struct ib_cq *ib, int count, struct ib_wc *wc)
{
	struct fab_cq *cq = to_fab_cq(ib);
	unsigned long flags;
	int found;

	spin_lock_irqsave(&fab_lock, flags);
	for (found = 0; found < count && cq->tail != cq->head; found++) {
		wc[found] = cq->ring[cq->tail & (cq->size - 1)];
		cq->tail++;
	}
	spin_unlock_irqrestore(&fab_lock, flags);
	return found;
}

int fab_req_notify_cq(struct ib_cq *ib, enum ib_cq_notify_flags flags)
{
	struct fab_cq *cq = to_fab_cq(ib);
	unsigned long irq_flags;
	int missed = 0;

	spin_lock_irqsave(&fab_lock, irq_flags);
	/* Who waits for any completion must not wait for solicited ones only. */
	if (cq->armed != IB_CQ_NEXT_COMP)
		cq->armed = flags & IB_CQ_SOLICITED_MASK;
	if ((flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail)
		missed = 1;
	spin_unlock_irqrestore(&fab_lock, irq_flags);
	return missed;
}

/* Add a completion; under fab_lock. */
void fab_complete(struct ib_cq *ib, const struct ib_wc *wc, bool solicited)
{
	struct fab_cq *cq = to_fab_cq(ib);

	if (cq->head - cq->tail == cq->size) {
		pr_err_ratelimited("ib_fabric: a completion queue of %u is full\n",
				   cq->size);
		return;
	}
	cq->ring[cq->head & (cq->size - 1)] = *wc;
	cq->head++;
	if (cq->armed == IB_CQ_NEXT_COMP ||
	    (cq->armed == IB_CQ_SOLICITED && (solicited || wc->status))) {
		cq->armed = 0;
		queue_work(fab_completions, &cq->work);
	}
}
