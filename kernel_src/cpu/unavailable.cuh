/*
 * unavailable: what CUDA C++ has and the cpu device has not, made to end in a sentence at compile
 * time.  A template that uses one of these offers a plain path under `#if KILN_CPU`.
 */
#pragma once

#define asm                                                            \
	static_assert(false, "inline PTX is not available on device cpu"); \
	asm
#define __cluster_dims__(...) \
	;                         \
	static_assert(false, "thread block clusters are not available on device cpu");

namespace kiln_cpu
{
template <class... T>
struct never {
	static constexpr bool value = false;
};
} // namespace kiln_cpu

#define KILN_CPU_UNAVAILABLE(name, what)                                                        \
	template <class R = void, class... A>                                                       \
	R name(A...)                                                                                \
	{                                                                                           \
		static_assert(kiln_cpu::never<R, A...>::value, what " is not available on device cpu"); \
	}

KILN_CPU_UNAVAILABLE(tex1Dfetch, "tex1Dfetch (textures)")
KILN_CPU_UNAVAILABLE(tex1D, "tex1D (textures)")
KILN_CPU_UNAVAILABLE(tex2D, "tex2D (textures)")
KILN_CPU_UNAVAILABLE(tex3D, "tex3D (textures)")
KILN_CPU_UNAVAILABLE(surf2Dread, "surf2Dread (surfaces)")
KILN_CPU_UNAVAILABLE(surf2Dwrite, "surf2Dwrite (surfaces)")
KILN_CPU_UNAVAILABLE(__pipeline_memcpy_async, "__pipeline_memcpy_async (asynchronous copies)")
KILN_CPU_UNAVAILABLE(__pipeline_commit, "__pipeline_commit (asynchronous copies)")
KILN_CPU_UNAVAILABLE(__pipeline_wait_prior, "__pipeline_wait_prior (asynchronous copies)")

namespace cooperative_groups
{
KILN_CPU_UNAVAILABLE(this_thread_block, "cooperative_groups")
KILN_CPU_UNAVAILABLE(this_grid, "cooperative_groups")
KILN_CPU_UNAVAILABLE(coalesced_threads, "cooperative_groups")
KILN_CPU_UNAVAILABLE(tiled_partition, "cooperative_groups")
} // namespace cooperative_groups

namespace nvcuda
{
namespace wmma
{
template <class... T>
struct fragment {
	static_assert(kiln_cpu::never<T...>::value, "wmma is not available on device cpu");
};
KILN_CPU_UNAVAILABLE(load_matrix_sync, "wmma")
KILN_CPU_UNAVAILABLE(store_matrix_sync, "wmma")
KILN_CPU_UNAVAILABLE(mma_sync, "wmma")
} // namespace wmma
} // namespace nvcuda
#undef KILN_CPU_UNAVAILABLE
