// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sending: posted requests are executed at once and in order, as long as the other side
 * has a buffer. If it has none, the queue waits: a connected pair without a limit, a
 * datagram for a short time, as if the link were busy.
 */
#include <linux/jiffies.h>

#include "ib_fabric.h"

/* How long a datagram waits for a buffer: a reader needs some of it to be scheduled. */
#define PATIENCE	msecs_to_jiffies(40)

static void give_up(struct work_struct *work);
static DECLARE_DELAYED_WORK(give_up_work, give_up);

static void wait_for_buffer(struct fab_send *send)
{
	if (send->deadline)
		return;
	/* 0 means "not waiting". */
	send->deadline = (jiffies + PATIENCE) | 1;
	fab_waiting++;
	schedule_delayed_work(&give_up_work, PATIENCE);
}

/* Execute the posted requests of a queue pair, up to the first that must wait. */
static void run(struct fab_qp *qp)
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
		 * A pair that is connected to itself may have failed meanwhile: then
		 * this request was flushed with the rest.
		 */
		if (qp->state != IB_QPS_RTS)
			return;
		fab_send_finish(qp, send, status);
		if (status && qp->ib.qp_type == IB_QPT_RC)
			fab_qp_fail(qp);
	}
}

/* fab_resume: @first may continue, and so may all that wait; under fab_lock. */
static void resume(struct fab_qp *first)
{
	struct fab_hca *hca;
	struct fab_qp *qp;

	if (first)
		run(first);
	if (!fab_waiting)
		return;
	list_for_each_entry(hca, &fab_hcas, entry)
		list_for_each_entry(qp, &hca->qps, entry)
			run(qp);
}

/* Datagrams are dropped after their deadline. */
static void give_up(struct work_struct *work)
{
	unsigned long flags;

	spin_lock_irqsave(&fab_lock, flags);
	resume(NULL);
	if (fab_waiting)
		schedule_delayed_work(&give_up_work, PATIENCE);
	spin_unlock_irqrestore(&fab_lock, flags);
}

/* On load, before there is an HCA. */
void fab_transmit_start(void)
{
	fab_resume = resume;
}

/* On unload, when no queue pair is left. */
void fab_transmit_stop(void)
{
	cancel_delayed_work_sync(&give_up_work);
}

int fab_post_send(struct ib_qp *ib, const struct ib_send_wr *wr,
		  const struct ib_send_wr **bad)
{
	struct fab_qp *qp = to_fab_qp(ib);
	unsigned long flags;
	int error = 0;

	spin_lock_irqsave(&fab_lock, flags);
	for (; wr; wr = wr->next) {
		error = fab_send_add(qp, wr);
		if (error) {
			*bad = wr;
			break;
		}
	}
	if (qp->state == IB_QPS_ERR)
		fab_sends_flush(qp);
	else
		run(qp);
	spin_unlock_irqrestore(&fab_lock, flags);
	return error;
}
