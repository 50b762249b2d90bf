/*
 * cluster.cuh: blocks of a cluster meet and write into each other's shared memory (sm_90 and
 * later).  Elsewhere nothing here may be called: the planner makes no clusters there.
 */
#pragma once
#include "common/types.cuh"

/* Attribute of a kernel: so many blocks to a cluster. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define CLUSTER_OF(blocks)
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

DEVICE void cluster_arrive()
{
	asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

DEVICE void cluster_wait()
{
	asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Writes value to the place that `place` names in this block's shared memory, in block `rank`. */
template <class Value>
DEVICE void cluster_put(Value *place, const Value &value, u32 rank)
{
	constexpr int words = sizeof(Value) / sizeof(u32);
	union {
		Value value;
		u32 word[words];
	} from = {value};
	u32 remote;
	asm("mapa.shared::cluster.u32 %0, %1, %2;"
		: "=r"(remote)
		: "r"(static_cast<u32>(__cvta_generic_to_shared(place))), "r"(rank));
#pragma unroll
	for (int w = 0; w < words; w++)
		asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(remote + 4 * w), "r"(from.word[w])
					 : "memory");
}

#else

DEVICE void cluster_arrive()
{
}
DEVICE void cluster_wait()
{
}
template <class Value>
DEVICE void cluster_put(Value *, const Value &, u32)
{
}

#endif
