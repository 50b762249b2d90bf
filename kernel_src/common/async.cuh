/*
 * async.cuh: 16 bytes from global to shared memory without a stop in registers (sm_80 and later;
 * elsewhere a plain copy).  Both addresses are aligned to 16.  A thread that has waited sees what
 * it copied itself; for what others copied a barrier follows.
 */
#pragma once
#include "common/types.cuh"
#include "common/vec.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

DEVICE void async_copy16(void *shared, const void *global)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
					 static_cast<u32>(__cvta_generic_to_shared(shared))),
				 "l"(global)
				 : "memory");
}

/* Does so by way of the L1 cache: for what other blocks of the multiprocessor copy too. */
DEVICE void async_copy16_shared(void *shared, const void *global)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(
					 static_cast<u32>(__cvta_generic_to_shared(shared))),
				 "l"(global)
				 : "memory");
}

/* Waits for all copies that this thread began. */
DEVICE void async_wait_all()
{
	asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Makes a batch of all that this thread began since the last one. */
DEVICE void async_batch()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all batches but the last LEFT. */
template <int LEFT>
DEVICE void async_wait_but()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#else

DEVICE void async_copy16(void *shared, const void *global)
{
	u32 words[4];
	vec_load<16>(global, words);
	vec_store<16>(shared, words);
}
DEVICE void async_copy16_shared(void *shared, const void *global)
{
	async_copy16(shared, global);
}

DEVICE void async_wait_all()
{
}
DEVICE void async_batch()
{
}
template <int LEFT>
DEVICE void async_wait_but()
{
}

#endif

/* Waits for all batches but the last `left`, 8 at most: a constant where loops are unrolled. */
DEVICE void async_wait_left(int left)
{
	switch (left) {
	case 0:
		async_wait_all();
		break;
	case 1:
		async_wait_but<1>();
		break;
	case 2:
		async_wait_but<2>();
		break;
	case 3:
		async_wait_but<3>();
		break;
	case 4:
		async_wait_but<4>();
		break;
	case 5:
		async_wait_but<5>();
		break;
	case 6:
		async_wait_but<6>();
		break;
	case 7:
		async_wait_but<7>();
		break;
	default:
		async_wait_but<8>();
	}
}
