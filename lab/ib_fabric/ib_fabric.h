/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ib_fabric: simulated InfiniBand HCAs, the fabric that joins them and a subnet
 * administrator, in one kernel. For tests only.
 *
 * The kernel's own ib_ipoib, rpcrdma, ib_srp etc. bind to these HCAs as to real ones.
 * There is no wire: data that one queue pair sends is copied directly into the buffers
 * that another one has posted.
 *
 *	main.c			parameters, load and unload
 *	pci_function.c		a PCI bus with a function for each HCA, and its driver
 *	hca.c			the RDMA device and its attributes
 *	virtual_function.c	SR-IOV: its registers, and what a PF sets for its VFs
 *	transmit.c		executes posted send requests, and waits for buffers
 *	send_request.c		executes one such request
 *	wire.c			finds the receivers of a message
 *	subnet_administrator.c	the SA: the SM's answers to requests
 *	port_sysfs.c		cable and P_Key table, from user space
 *	queue_pair.c		queue pairs and their states
 *	receive_queue.c		posted buffers, of a queue pair or shared
 *	port.c			cable, state, LID, P_Key table, and the SM's changes to them
 *	multicast_group.c	the multicast groups of the SM
 *	send_queue.c		send requests, until they are completed
 *	completion_queue.c	completions, and the notification of their owners
 *	memory_region.c		keys, and the memory that they name
 *	fabric.c		shared by all: locks, HCAs, parameters
 *
 * The files are layers: each uses only files below it in this list. Where a lower one
 * must wake an upper one up, it calls fab_resume(), which transmit.c sets on load.
 *
 * Locks. fab_lock, a spinlock, guards everything that packets use: HCAs, ports, queues,
 * memory regions, groups. Data is copied under it, with interrupts off: slow for
 * megabytes, but without races. fab_mutex is for changes of the configuration, and is
 * taken before fab_lock; events are raised under it.
 */
#ifndef IB_FABRIC_H
#define IB_FABRIC_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pack.h>
#include <rdma/ib_verbs.h>

/* All that differs between the kernels of the lab (lab/layer.py). */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#include <asm/unaligned.h>
#define fab_cq_user		ib_udata
#else
#include <linux/unaligned.h>
#define fab_cq_user		uverbs_attr_bundle
#endif

#define FAB_MAX_HCAS		8
#define FAB_MAX_PORTS		2
/* Of each HCA. */
#define FAB_MAX_VFS		16
/* Each HCA and each VF has ports. */
#define FAB_ALL_PORTS		(FAB_MAX_HCAS * (1 + FAB_MAX_VFS) * FAB_MAX_PORTS)
/* The capability of SR-IOV in the configuration space. */
#define FAB_SRIOV		PCI_CFG_SPACE_SIZE
#define FAB_SRIOV_SIZE		PCI_EXT_CAP_SRIOV_SIZEOF
/* Table sizes of ConnectX-2 and -3; the GID table is shorter, for fast reading. */
#define FAB_PKEYS		128
#define FAB_GIDS		8
#define FAB_MAX_SGE		32
#define FAB_MAX_WR		16384
/* Of LSO requests: more than IPoIB, IP and TCP headers have together. */
#define FAB_MAX_HEADER		128
#define FAB_MAX_CQE		1048576
/* The SM is on its own switch, so no port's cable disconnects it. */
#define FAB_SM_LID		1
#define FAB_FIRST_MLID		0xc000
#define FAB_GROUPS		1024
#define FAB_QP_GROUPS		128
#define FAB_SUBNET_PREFIX	0xfe80000000000000ULL
/*
 * The key of all memory: there is no IOMMU here, "DMA addresses" are kernel addresses
 * (a device without dma_device, see ib_uses_virt_dma()).
 */
#define FAB_LOCAL_KEY		0x10

/* Module parameters; main.c describes them. */
struct fab_parameters {
	int hcas;
	int ports;
	int max_vfs;
	char *device_name;
	char *driver;
	char *firmware;
	char *board_id;
	char *hca_type;
	int pci_vendor;
	int pci_device;
	int pci_revision;
	int pci_class;
	int hca_mtu;
	int active_mtu;
	bool tso;
	bool fast_registration;
	u16 pkeys[FAB_PKEYS];
};

struct fab_hca;

/**
 * struct fab_port - one port of an HCA
 * @hca: whose it is
 * @number: from 1
 * @index: its number among all ports: for its LID, and for multicast groups
 * @guid: the lower half of its GID
 * @lid: given by the SM; 0 until then
 * @cable: is one plugged in?
 * @state: DOWN without cable, INIT until an SM has been there, ACTIVE then
 * @capabilities: CapabilityMask of PortInfo
 * @pkeys: P_Key table; 0 is an empty entry
 */
struct fab_port {
	struct fab_hca *hca;
	u32 number;
	unsigned int index;
	u64 guid;
	u16 lid;
	bool cable;
	enum ib_port_state state;
	u32 capabilities;
	u16 pkeys[FAB_PKEYS];
};

/**
 * struct fab_vf - what a PF has set for a VF
 * @node_guid: 0 until it is set
 * @port_guid: 0 until it is set: then the SM cannot configure the port
 * @link_state: IFLA_VF_LINK_STATE_*; AUTO: as the PF's own link
 */
struct fab_vf {
	u64 node_guid;
	u64 port_guid;
	int link_state;
};

/**
 * struct fab_hca - one HCA
 * @ib: what the RDMA core knows of it
 * @entry: in fab_hcas, as long as anything can reach it
 * @registered: may events be raised? Changes under fab_mutex
 * @index: its slot on the pretend bus; for VFs, a number above all slots
 * @pf: of a VF; NULL for others
 * @own: of a VF: what its PF has set for it
 * @vfs: of a PF: what it has set
 * @qps: its queue pairs
 * @last_qpn: the queue pair number given last
 * @ports: as many as phys_port_cnt says
 */
struct fab_hca {
	struct ib_device ib;
	struct list_head entry;
	bool registered;
	unsigned int index;
	struct fab_hca *pf;
	const struct fab_vf *own;
	struct fab_vf vfs[FAB_MAX_VFS];
	struct list_head qps;
	u32 last_qpn;
	struct fab_port ports[FAB_MAX_PORTS];
};

/**
 * struct fab_cq - completion queue: a ring
 * @ib: what the RDMA core knows of it
 * @ring: the completions
 * @size: of the ring, a power of two
 * @head: where the next one goes; counts on, as @tail does
 * @tail: where the next one is read
 * @armed: for which completion the owner wants to be told; 0 for none
 * @work: tells the owner
 */
struct fab_cq {
	struct ib_cq ib;
	struct ib_wc *ring;
	u32 size;
	u32 head;
	u32 tail;
	enum ib_cq_notify_flags armed;
	struct work_struct work;
};

/**
 * struct fab_recv - a posted receive buffer
 * @entry: in its receive queue
 * @wr_id: the owner's name for it
 * @num_sge: pieces
 * @sge: the pieces
 */
struct fab_recv {
	struct list_head entry;
	u64 wr_id;
	int num_sge;
	struct ib_sge sge[];
};

/**
 * struct fab_rq - receive queue, of one queue pair or shared
 * @posted: buffers, the oldest first
 * @count: how many
 * @max: how many may be
 */
struct fab_rq {
	struct list_head posted;
	u32 count;
	u32 max;
};

struct fab_srq {
	struct ib_srq ib;
	struct fab_rq rq;
};

/**
 * struct fab_send - a posted send request
 * @entry: in its send queue
 * @wr_id: the owner's name for it
 * @opcode: what is to be done
 * @flags: IB_SEND_*
 * @imm: immediate data
 * @key: the key to invalidate, or to give to @mr
 * @mr: REG_MR: which one
 * @access: REG_MR: what it then allows
 * @remote_addr: RDMA: where, at the other side
 * @rkey: RDMA: the key for that
 * @ah: UD: where to
 * @dest_qpn: UD: to which queue pair there
 * @qkey: UD: that one's Q_Key
 * @pkey_index: UD from a GSI queue pair: its P_Key
 * @header: LSO: what every segment begins with
 * @header_len: LSO: its length
 * @mss: LSO: payload of a segment
 * @length: of all pieces
 * @sent: LSO: how much of that has left
 * @deadline: UD: waits for a buffer no longer than this, in jiffies; 0: not waiting
 * @num_sge: pieces
 * @sge: the pieces
 */
struct fab_send {
	struct list_head entry;
	u64 wr_id;
	enum ib_wr_opcode opcode;
	int flags;
	__be32 imm;
	u32 key;
	struct ib_mr *mr;
	int access;
	u64 remote_addr;
	u32 rkey;
	struct rdma_ah_attr ah;
	u32 dest_qpn;
	u32 qkey;
	u16 pkey_index;
	void *header;
	u32 header_len;
	u32 mss;
	u32 length;
	u32 sent;
	unsigned long deadline;
	int num_sge;
	struct ib_sge sge[];
};

/**
 * struct fab_qp - queue pair
 * @ib: what the RDMA core knows of it
 * @entry: in its HCA's list
 * @state: as of the last modify_qp, or error
 * @port: number; 0 until it is given one
 * @pkey_index: which P_Key of that port
 * @qkey: UD: which Q_Key a packet must have
 * @dlid: RC: the other side's port
 * @dest_qpn: RC: and queue pair
 * @path_mtu: RC: as it was set; nothing is cut into packets here
 * @access: RC: what the other side may do
 * @signal_all: every send request completes visibly
 * @cap: its sizes
 * @rq: its own receive queue, where it has no shared one
 * @sends: send requests not carried out yet
 * @num_sends: how many
 * @mlids: the multicast groups it gets
 * @num_mlids: how many
 * @event: tells the owner that the last buffer was used
 */
struct fab_qp {
	struct ib_qp ib;
	struct list_head entry;
	enum ib_qp_state state;
	u32 port;
	u16 pkey_index;
	u32 qkey;
	u16 dlid;
	u32 dest_qpn;
	enum ib_mtu path_mtu;
	int access;
	bool signal_all;
	struct ib_qp_cap cap;
	struct fab_rq rq;
	struct list_head sends;
	u32 num_sends;
	u16 mlids[FAB_QP_GROUPS];
	unsigned int num_mlids;
	struct work_struct event;
};

/**
 * struct fab_mr - memory region
 * @ib: what the RDMA core knows of it; the lower 8 bits of its keys are the owner's
 * @index: the upper 24 bits of its keys; 0: all memory
 * @access: IB_ACCESS_*, as it was registered
 * @valid: registered, and not invalidated since?
 * @pages: where its pages are
 * @num_pages: how many are mapped
 * @max_pages: how many can be
 */
struct fab_mr {
	struct ib_mr ib;
	u32 index;
	int access;
	bool valid;
	u32 num_pages;
	u32 max_pages;
	u64 pages[];
};

struct fab_ah {
	struct ib_ah ib;
	struct rdma_ah_attr attr;
};

/**
 * struct fab_cursor - a place in scattered memory
 * @pd: whose keys count
 * @access: what the keys must allow; 0: to read here
 * @sge: the present piece
 * @left: pieces, this one included
 * @offset: in this piece
 */
struct fab_cursor {
	struct ib_pd *pd;
	int access;
	const struct ib_sge *sge;
	int left;
	u32 offset;
};

/**
 * struct fab_message - what arrives at a queue pair
 * @slid: LID it is from
 * @src_qpn: queue pair it is from
 * @pkey: UD: its P_Key
 * @connected: RC, so no room is left for a GRH
 * @grh: UD: its GRH, or NULL
 * @header: comes before the data (LSO), or NULL
 * @header_len: length of @header
 * @data: the data
 * @length: length of the data
 * @opcode: what the receiver is told it is
 * @written: RDMA WRITE with immediate data: how much was written
 * @wc_flags: IB_WC_WITH_IMM, IB_WC_WITH_INVALIDATE
 * @imm: immediate data
 * @key: key to invalidate
 * @solicited: the sender wants the receiver to be told
 */
struct fab_message {
	u16 slid;
	u32 src_qpn;
	u16 pkey;
	bool connected;
	const struct ib_grh *grh;
	void *header;
	u32 header_len;
	struct fab_cursor data;
	u32 length;
	enum ib_wc_opcode opcode;
	u32 written;
	int wc_flags;
	__be32 imm;
	u32 key;
	bool solicited;
};

/* The result of an attempt to deliver a message. */
enum fab_delivery {
	FAB_DELIVERED,
	FAB_NO_BUFFER,		/* none is posted: wait */
	FAB_TOO_LONG,		/* for the buffer, which was used up */
	FAB_BAD_DATA,		/* the sender's keys are wrong; nothing was used up */
};

/* Not a completion status: the request stays at the head of its queue. */
#define FAB_WAIT	(-1)

static inline struct fab_hca *to_fab_hca(struct ib_device *ib)
{
	return container_of(ib, struct fab_hca, ib);
}

static inline struct fab_cq *to_fab_cq(struct ib_cq *ib)
{
	return container_of(ib, struct fab_cq, ib);
}

static inline struct fab_srq *to_fab_srq(struct ib_srq *ib)
{
	return container_of(ib, struct fab_srq, ib);
}

static inline struct fab_qp *to_fab_qp(struct ib_qp *ib)
{
	return container_of(ib, struct fab_qp, ib);
}

static inline struct fab_mr *to_fab_mr(struct ib_mr *ib)
{
	return container_of(ib, struct fab_mr, ib);
}

static inline struct fab_ah *to_fab_ah(struct ib_ah *ib)
{
	return container_of(ib, struct fab_ah, ib);
}

static inline struct fab_port *fab_port_of(struct ib_device *ib, u32 number)
{
	return &to_fab_hca(ib)->ports[number - 1];
}

/* fabric.c */
extern struct fab_parameters fab_parameters;
extern spinlock_t fab_lock;
extern struct mutex fab_mutex;
extern struct list_head fab_hcas;
/*
 * Buffers, states or ports have changed: continue with @first, which may be NULL, and
 * with all that wait; under fab_lock.
 */
extern void (*fab_resume)(struct fab_qp *first);
struct fab_port *fab_find_port_by_guid(u64 guid);

/* pci_function.c */
int fab_pci_add(void);
void fab_pci_remove(void);

/* hca.c */
struct fab_hca *fab_hca_create(struct pci_dev *function);
void fab_hca_destroy(struct fab_hca *hca);

/* virtual_function.c */
void fab_sriov_init(void);
bool fab_is_vf(unsigned int devfn);
u8 fab_sriov_read(unsigned int pf, unsigned int offset);
void fab_sriov_write(unsigned int pf, unsigned int offset, u32 value);
int fab_sriov_configure(struct pci_dev *function, int count);
int fab_get_vf_config(struct ib_device *ib, int number, u32 port,
		      struct ifla_vf_info *info);
int fab_set_vf_link_state(struct ib_device *ib, int number, u32 port, int state);
int fab_set_vf_guid(struct ib_device *ib, int number, u32 port, u64 guid, int type);
int fab_get_vf_guid(struct ib_device *ib, int number, u32 port,
		    struct ifla_vf_guid *node_guid, struct ifla_vf_guid *port_guid);

/* port.c */
extern bool fab_subnet_manager;
extern int fab_group_mtu;
extern const struct kernel_param_ops fab_subnet_manager_ops;
extern const struct kernel_param_ops fab_group_mtu_ops;
void fab_port_init(struct fab_port *port, struct fab_hca *hca, u32 number);
bool fab_port_has_link(const struct fab_port *port);
void fab_port_set_cable(struct fab_port *port, bool plugged);
void fab_vfs_update(struct fab_hca *pf);
void fab_port_set_pkeys(struct fab_port *port, const u16 *pkeys);
int fab_pkey_find(const struct fab_port *port, u16 pkey);
bool fab_pkeys_match(u16 one, u16 other);
int fab_mtu_enum(int bytes);

/* port_sysfs.c */
extern const struct attribute_group *fab_port_groups[];
int fab_parse_pkeys(const char *text, u16 *pkeys);

/* subnet_administrator.c */
bool fab_sa_answer(struct fab_port *asker, struct ib_sa_mad *mad);

/* multicast_group.c */
int fab_group_join(const u8 *mgid, const struct fab_port *port);
bool fab_group_leave(const u8 *mgid, const struct fab_port *port);
void fab_groups_forget(void);

/* completion_queue.c */
extern struct workqueue_struct *fab_completions;
int fab_create_cq(struct ib_cq *ib, const struct ib_cq_init_attr *attr,
		  struct fab_cq_user *user);
int fab_destroy_cq(struct ib_cq *ib, struct ib_udata *udata);
int fab_poll_cq(struct ib_cq *ib, int count, struct ib_wc *wc);
int fab_req_notify_cq(struct ib_cq *ib, enum ib_cq_notify_flags flags);
void fab_complete(struct ib_cq *ib, const struct ib_wc *wc, bool solicited);

/* memory_region.c */
struct ib_mr *fab_get_dma_mr(struct ib_pd *pd, int access);
struct ib_mr *fab_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova,
			      int access, struct ib_udata *udata);
struct ib_mr *fab_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_pages);
int fab_dereg_mr(struct ib_mr *ib, struct ib_udata *udata);
int fab_map_mr_sg(struct ib_mr *ib, struct scatterlist *sg, int count,
		  unsigned int *offset);
void fab_mr_register(struct ib_mr *ib, u32 key, int access);
bool fab_mr_invalidate(struct ib_pd *pd, u32 key);
bool fab_copy(struct fab_cursor *from, struct fab_cursor *to, u32 length);
bool fab_skip(struct fab_cursor *cursor, u32 length);
bool fab_reaches(struct fab_cursor cursor, u32 length);

/* receive_queue.c */
void fab_rq_init(struct fab_rq *rq, u32 max);
void fab_rq_empty(struct fab_rq *rq, struct ib_qp *complete_for);
int fab_create_srq(struct ib_srq *ib, struct ib_srq_init_attr *attr,
		   struct ib_udata *udata);
int fab_destroy_srq(struct ib_srq *ib, struct ib_udata *udata);
int fab_post_srq_recv(struct ib_srq *ib, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad);
int fab_post_recv(struct ib_qp *ib, const struct ib_recv_wr *wr,
		  const struct ib_recv_wr **bad);
enum fab_delivery fab_deliver(struct fab_qp *qp, const struct fab_message *message);

/* queue_pair.c */
int fab_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *attr,
		  struct ib_udata *udata);
int fab_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		  struct ib_udata *udata);
int fab_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		 struct ib_qp_init_attr *init);
int fab_destroy_qp(struct ib_qp *ib, struct ib_udata *udata);
int fab_attach_mcast(struct ib_qp *ib, union ib_gid *gid, u16 lid);
int fab_detach_mcast(struct ib_qp *ib, union ib_gid *gid, u16 lid);
void fab_qp_fail(struct fab_qp *qp);

/* send_queue.c */
extern unsigned int fab_waiting;
int fab_send_add(struct fab_qp *qp, const struct ib_send_wr *wr);
void fab_send_finish(struct fab_qp *qp, struct fab_send *send, int status);
void fab_stop_waiting(struct fab_send *send);
void fab_sends_flush(struct fab_qp *qp);
void fab_sends_drop(struct fab_qp *qp);

/* transmit.c */
void fab_transmit_start(void);
void fab_transmit_stop(void);
int fab_post_send(struct ib_qp *ib, const struct ib_send_wr *wr,
		  const struct ib_send_wr **bad);

/* send_request.c */
int fab_carry_out(struct fab_qp *qp, struct fab_send *send);

/* wire.c */
struct fab_qp *fab_find_peer(const struct fab_qp *qp);
enum fab_delivery fab_send_datagram(struct fab_qp *qp, const struct fab_send *send,
				    struct fab_message *message);

#endif /* IB_FABRIC_H */
