// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Let Soft-RoCE of Linux 6.12 lose what it sends without a carrier, as adapters
 * and Linux 6.1 do.
 *
 * A netdev without a carrier answers NET_XMIT_CN. rxe_send() returns that
 * (rxe_net.c:372; 6.1 has net_xmit_eval there), and the requester takes it for an
 * error that ends the queue pair (rxe_req.c:845). The GSI's never comes back: the
 * port gets no RDMA connection any more, connections that were to end there do
 * not, and the device cannot be removed.
 */

#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/netdevice.h>

static int sent(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	if ((int)regs_return_value(regs) == NET_XMIT_CN)
		regs_set_return_value(regs, 0);
	return 0;
}

static struct kretprobe probe = {
	.kp.symbol_name = "rxe_xmit_packet",
	.handler = sent,
	.maxactive = 64,
};

static int __init begin(void)
{
	return register_kretprobe(&probe);
}

static void __exit end(void)
{
	unregister_kretprobe(&probe);
}

module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("Soft-RoCE without a carrier");
MODULE_LICENSE("GPL");
