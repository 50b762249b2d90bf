#!/bin/sh
# test_half.sh: what users' kernels get for cuda_fp16.h and cuda_bf16.h: every number of 16 bits
# there and back, what lies between two of them, arithmetic and pairs.
. "$(dirname "$0")/lib.sh"
tools=$(cd "$(dirname "$0")" && pwd)

npy() {
	(cd "$DIR" && python3 "$tools/npy.py" "$@") >"$DIR/why" 2>&1 || fails "$(cat "$DIR/why")"
}
raw() {
	(cd "$DIR" && "$KILN" run raw half.cu "$@") >"$DIR/out" 2>&1 || fails "$*: $(cat "$DIR/out")"
}

cat >"$DIR/half.cu" <<'CU'
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <typename T>
__global__ void widen(const T *x, float *y, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		y[i] = x[i];
}
/* Halfway to the next number, which goes to the even one, and a little to each side. */
template <typename T>
__global__ void between(const T *x, T *y, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	float middle = (float)x[i] / 2 + (float)x[i + 1] / 2;
	y[3 * i] = middle;
	y[3 * i + 1] = __uint_as_float(__float_as_uint(middle) - 1);
	y[3 * i + 2] = __uint_as_float(__float_as_uint(middle) + 1);
}
template <typename T>
__global__ void sums(T *y, float nan)
{
	T a = 3, b = 0.5, lane = (int)threadIdx.x;
	T other = __shfl_xor_sync(~0u, lane, 1), below = __shfl_down_sync(~0u, lane, 2);
	T all[] = {a + b, a - b, a * b, a / b, -a, __hfma(a, b, a), __hmax(a, b), __hmin(a, b),
			   hsqrt(T(4)), a > b ? T(1) : T(0), T(1e30f) * T(1e30f), T(nan), other, below};
	a += b;
	all[0] = all[0] == a ? a : T(-1);
	if (threadIdx.x == 4)
		for (int i = 0; i < 14; i++)
			y[i] = all[i];
}
__global__ void pairs(const half2 *x, half2 *y, float2 *z)
{
	half2 sum = __hadd2(x[0], __halves2half2(__float2half(1.0f), __float2half(2.0f)));
	y[0] = sum * __half2half2(2);
	y[1] = __hfma2(sum, sum, __float2half2_rn(-1));
	y[2] = __float22half2_rn(make_float2(__low2float(sum), __half2float(__high2half(sum))));
	z[0] = __half22float2(sum);
	__nv_bfloat162 wide = __halves2bfloat162(__float2bfloat16(0.5f), __float2bfloat16_rn(-7));
	z[1] = __bfloat1622float2(wide - __float2bfloat162_rn(1));
}
CU
daemon

# f16: the finite ones of both signs, with Python's own reading of them; bf16: a float's upper half.
number='(i if i < 31744 else i + 1024)'
npy write all.npy '<u2' 63488 "$number"
raw --entry 'widen<half>' --grid 248 --block 256 --in all.npy --out wide.npy:f32:63488 \
	--scalar i32:63488
npy check wide.npy '<f4' 63488 \
	"__import__('struct').unpack('<e', $number.to_bytes(2, 'little'))[0]"
number='(i if i < 32640 else i + 128)'
npy write all.npy '<u2' 65280 "$number"
raw --entry 'widen<nv_bfloat16>' --grid 255 --block 256 --in all.npy --out wide.npy:f32:65280 \
	--scalar i32:65280
npy check wide.npy '<f4' 65280 \
	"__import__('struct').unpack('<f', bytes(2) + $number.to_bytes(2, 'little'))[0]"

npy write up.npy '<u2' 32640 'i'
for type in half:31743 nv_bfloat16:32639; do
	n=${type#*:}
	raw --entry "between<${type%:*}>" --grid 128 --block 256 --in up.npy \
		--out "near.npy:u16:$((3 * n))" --scalar "i32:$n"
	npy check near.npy '<u2' $((3 * n)) '[i // 3 + (i // 3 & 1), i // 3, i // 3 + 1][i % 3]'
done

want='0x4300, 0x4100, 0x3e00, 0x4600, 0xc200, 0x4480, 0x4200, 0x3800'
last='0x4000, 0x3c00, 0x7c00, 0x7fff'
raw --entry 'sums<half>' --grid 1 --block 32 --out s.npy:u16:14 --scalar f32:nan
npy check s.npy '<u2' 14 "[$want, $last, 0x4500, 0x4600][i]"
want='0x4060, 0x4020, 0x3fc0, 0x40c0, 0xc040, 0x4090, 0x4040, 0x3f00'
last='0x4000, 0x3f80, 0x7f80, 0x7fff'
raw --entry 'sums<nv_bfloat16>' --grid 1 --block 32 --out s.npy:u16:14 --scalar f32:nan
npy check s.npy '<u2' 14 "[$want, $last, 0x40a0, 0x40c0][i]"

npy write two.npy '<f2' 2 '[1.5, -4][i]'
raw --entry pairs --grid 1 --block 1 --in two.npy --out y.npy:f16:6 --out z.npy:f32:4
npy check y.npy '<f2' 6 '[5, -4, 5.25, 3, 2.5, -2][i]'
npy check z.npy '<f4' 4 '[2.5, -2, -0.5, -8][i]'
finish
