// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory regions: keys, and the memory that they name.
 *
 * One key, FAB_LOCAL_KEY, is valid for all memory. The others belong to regions of fast
 * registration, which a REG_MR request makes valid and an invalidation ends.
 */
#include <linux/math64.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "ib_fabric.h"

/* By index, so that no list is searched for a key. */
static DEFINE_XARRAY_ALLOC1(regions);
static u32 last_index;

struct ib_mr *fab_get_dma_mr(struct ib_pd *pd, int access)
{
	struct fab_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->ib.lkey = FAB_LOCAL_KEY;
	mr->ib.rkey = FAB_LOCAL_KEY;
	return &mr->ib;
}

/* For the kernel only: user space would need pinned pages, and queues to map. */
struct ib_mr *fab_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova,
			      int access, struct ib_udata *udata)
{
	return ERR_PTR(-EOPNOTSUPP);
}

struct ib_mr *fab_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_pages)
{
	struct fab_mr *mr;
	int error;

	if (!fab_parameters.fast_registration || type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	mr = kvzalloc(struct_size(mr, pages, max_pages), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->max_pages = max_pages;
	error = xa_alloc_cyclic_irq(&regions, &mr->index, mr, XA_LIMIT(1, 0xfffff),
				    &last_index, GFP_KERNEL);
	if (error < 0) {
		kvfree(mr);
		return ERR_PTR(error);
	}
	mr->ib.lkey = mr->index << 8;
	mr->ib.rkey = mr->ib.lkey;
	return &mr->ib;
}

int fab_dereg_mr(struct ib_mr *ib, struct ib_udata *udata)
{
	struct fab_mr *mr = to_fab_mr(ib);
	unsigned long flags;

	if (mr->index) {
		/* A user that found it by its key keeps the lock until it has finished. */
		spin_lock_irqsave(&fab_lock, flags);
		xa_erase(&regions, mr->index);
		spin_unlock_irqrestore(&fab_lock, flags);
	}
	kvfree(mr);
	return 0;
}

static int add_page(struct ib_mr *ib, u64 address)
{
	struct fab_mr *mr = to_fab_mr(ib);

	if (mr->num_pages == mr->max_pages)
		return -ENOMEM;
	mr->pages[mr->num_pages++] = address;
	return 0;
}

int fab_map_mr_sg(struct ib_mr *ib, struct scatterlist *sg, int count,
		  unsigned int *offset)
{
	to_fab_mr(ib)->num_pages = 0;
	return ib_sg_to_pages(ib, sg, count, offset, add_page);
}

/* REG_MR; under fab_lock. */
void fab_mr_register(struct ib_mr *ib, u32 key, int access)
{
	struct fab_mr *mr = to_fab_mr(ib);

	ib->lkey = key;
	ib->rkey = key;
	mr->access = access;
	mr->valid = true;
}

static struct fab_mr *find(struct ib_pd *pd, u32 key)
{
	struct fab_mr *mr = xa_load(&regions, key >> 8);

	if (!mr || mr->ib.rkey != key || mr->ib.pd != pd)
		return NULL;
	return mr;
}

/* LOCAL_INV, or the other side's SEND_WITH_INV; under fab_lock. */
bool fab_mr_invalidate(struct ib_pd *pd, u32 key)
{
	struct fab_mr *mr = find(pd, key);

	if (!mr)
		return false;
	mr->valid = false;
	return true;
}

/*
 * Return where (key, address) is, and shorten *length to what is contiguous there;
 * NULL if the key does not allow it.
 */
static void *locate(struct ib_pd *pd, u32 key, int access, u64 address, u32 *length)
{
	struct fab_mr *mr;
	u64 place;
	u64 page;
	u32 in_page;

	if (key == FAB_LOCAL_KEY)
		return (void *)(uintptr_t)address;
	mr = find(pd, key);
	if (!mr || !mr->valid || (mr->access & access) != access)
		return NULL;
	if (address < mr->ib.iova || address - mr->ib.iova >= mr->ib.length)
		return NULL;
	/* The region begins somewhere in its first page. */
	place = address - mr->ib.iova + (mr->ib.iova & (mr->ib.page_size - 1));
	page = div_u64(place, mr->ib.page_size);
	in_page = place & (mr->ib.page_size - 1);
	if (page >= mr->num_pages)
		return NULL;
	*length = min_t(u64, *length, mr->ib.length - (address - mr->ib.iova));
	*length = min_t(u64, *length, mr->ib.page_size - in_page);
	return (void *)(uintptr_t)(mr->pages[page] + in_page);
}

/* Return the memory at the cursor and shorten *length to what is contiguous there. */
static void *peek(struct fab_cursor *cursor, u32 *length)
{
	while (cursor->left && cursor->offset == cursor->sge->length) {
		cursor->sge++;
		cursor->left--;
		cursor->offset = 0;
	}
	if (!cursor->left)
		return NULL;
	*length = min(*length, cursor->sge->length - cursor->offset);
	return locate(cursor->pd, cursor->sge->lkey, cursor->access,
		      cursor->sge->addr + cursor->offset, length);
}

/*
 * The copying that a real HCA does. It is in this module's own text, so that a count of
 * instructions by module (bench/byte_cost) can tell it from the hosts' copying.
 */
static void transfer(void *target, const void *source, size_t length)
{
#ifdef CONFIG_X86_64
	asm volatile("rep movsb"
		     : "+D" (target), "+S" (source), "+c" (length)
		     :
		     : "memory");
#else
	memcpy(target, source, length);
#endif
}

/* Copy, and advance both; false if either ends or its key does not allow it. */
bool fab_copy(struct fab_cursor *from, struct fab_cursor *to, u32 length)
{
	while (length) {
		u32 piece = length;
		void *source = peek(from, &piece);
		void *target = source ? peek(to, &piece) : NULL;

		if (!target)
			return false;
		transfer(target, source, piece);
		from->offset += piece;
		to->offset += piece;
		length -= piece;
	}
	return true;
}

/* Advance without copying; false if it ends or a key does not allow it. */
bool fab_skip(struct fab_cursor *cursor, u32 length)
{
	while (length) {
		u32 piece = length;

		if (!peek(cursor, &piece))
			return false;
		cursor->offset += piece;
		length -= piece;
	}
	return true;
}

/* Does all of it exist, and is it allowed? */
bool fab_reaches(struct fab_cursor cursor, u32 length)
{
	return fab_skip(&cursor, length);
}
