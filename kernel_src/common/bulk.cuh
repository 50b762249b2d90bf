/*
 * bulk.cuh: barriers in shared memory that count bytes, and what arrives at them: pieces of global
 * memory, and words from other blocks of a cluster (sm_90 and later).  Elsewhere nothing here may
 * be called: the planner makes no such kernels there.
 *
 * A barrier's phase ends when all that it was made for have arrived and all bytes that they told it
 * to expect are there.  A thread that waits names the phase by its parity, and then sees what
 * came with it.
 */
#pragma once
#include "common/types.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

constexpr bool bulk_here = true; /* may these functions be called? */

DEVICE u32 bulk_address(const void *shared)
{
	return static_cast<u32>(__cvta_generic_to_shared(shared));
}

DEVICE void bulk_barrier(u64 *barrier, u32 count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bulk_address(barrier)), "r"(count)
				 : "memory");
}

/* Before a cluster meets: its blocks then see barriers that are made. */
DEVICE void bulk_barriers_made()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

DEVICE void bulk_arrive(u64 *barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bulk_address(barrier))
				 : "memory");
}

DEVICE void bulk_expect(u64 *barrier, u32 bytes)
{
	asm volatile(
		"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bulk_address(barrier)),
		"r"(bytes)
		: "memory");
}

/* Waits for bytes that bulk_fetch() brings, and for threads of this block. */
DEVICE void bulk_wait(u64 *barrier, u32 parity)
{
	u32 over;

	do {
		asm volatile("{\n\t.reg .pred over;\n\t"
					 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%1], %2;\n\t"
					 "selp.u32 %0, 1, 0, over;\n\t}"
					 : "=r"(over)
					 : "r"(bulk_address(barrier)), "r"(parity)
					 : "memory");
	} while (!over);
}

/* Waits for words that other blocks put.  Each such wait invalidates the L1 cache. */
DEVICE void bulk_wait_put(u64 *barrier, u32 parity)
{
	u32 over;

	do {
		asm volatile("{\n\t.reg .pred over;\n\t"
					 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%1], %2;\n\t"
					 "selp.u32 %0, 1, 0, over;\n\t}"
					 : "=r"(over)
					 : "r"(bulk_address(barrier)), "r"(parity)
					 : "memory");
	} while (!over);
}

/* All addresses and the number of bytes are multiples of 16. */
DEVICE void bulk_fetch(void *shared, const void *global, u32 bytes, u64 *barrier)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
				 "[%0], [%1], %2, [%3];" ::"r"(bulk_address(shared)),
				 "l"(global), "r"(bytes), "r"(bulk_address(barrier))
				 : "memory");
}

/* Before bulk_store(), by all threads that wrote what it stores: then they meet. */
DEVICE void bulk_written()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The way back; nobody is told.  All addresses and the number of bytes are multiples of 16. */
DEVICE void bulk_store(void *global, const void *shared, u32 bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t"
				 "cp.async.bulk.commit_group;" ::"l"(global),
				 "r"(bulk_address(shared)), "r"(bytes)
				 : "memory");
}

/* By the thread that stored: all of it has left shared memory. */
DEVICE void bulk_left()
{
	asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* A word to the place that `place` names in this block's shared memory, in block `rank`, and four
 * bytes that its barrier expects. */
DEVICE void bulk_put(float *place, float value, u64 *barrier, u32 rank)
{
	u32 to, at;

	asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(bulk_address(place)), "r"(rank));
	asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(bulk_address(barrier)), "r"(rank));
	asm volatile(
		"st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
		"r"(__float_as_uint(value)), "r"(at)
		: "memory");
}

#else

constexpr bool bulk_here = false;

DEVICE u32 bulk_address(const void *)
{
	return 0;
}

DEVICE void bulk_barrier(u64 *, u32)
{
}
DEVICE void bulk_barriers_made()
{
}
DEVICE void bulk_arrive(u64 *)
{
}
DEVICE void bulk_expect(u64 *, u32)
{
}
DEVICE void bulk_wait(u64 *, u32)
{
}
DEVICE void bulk_wait_put(u64 *, u32)
{
}
DEVICE void bulk_written()
{
}
DEVICE void bulk_left()
{
}
#if KILN_CPU
DEVICE void bulk_fetch(void *shared, const void *global, u32 bytes, u64 *)
{
	for (u32 i = 0; i < bytes; i++)
		static_cast<u8 *>(shared)[i] = static_cast<const u8 *>(global)[i];
}
DEVICE void bulk_store(void *global, const void *shared, u32 bytes)
{
	for (u32 i = 0; i < bytes; i++)
		static_cast<u8 *>(global)[i] = static_cast<const u8 *>(shared)[i];
}
#else
DEVICE void bulk_store(void *, const void *, u32)
{
}
DEVICE void bulk_fetch(void *, const void *, u32, u64 *)
{
}
#endif
DEVICE void bulk_put(float *, float, u64 *, u32)
{
}

#endif
