/*
 * rows.c: statements with reductions on their right side.  Their answers are those of cases.c.
 */
#include "map.h"

#define SOFTMAX "y[i,j] = exp(x[i,j] - max[k](x[i,k])) / sum[k](exp(x[i,k] - max[l](x[i,l])))"
#define NORM "y[i,j] = (x[i,j] - sum[k](x[i,k]) / n) * rsqrt(sum[k](x[i,k] * x[i,k]) / n) * g[j]"

const struct map_row map_rows[] = {
	/* One for each element: a sum with something done to it, in pieces too. */
	{"y[i] = sum[j](x[i,j] * w[j])", "x,w,y", "f32 30x100; f32 100; f32 30", NULL, 0},
	{"y[i] = sum[j](x[i,j] * w[j])", "x,w,y", "bf16 5x2048; bf16 2048; bf16 5", NULL, 0},
	{"y[i] = sqrt(sum[j](x[i,j] * x[i,j])) + b[i]", "x,b,y", "f16 9x77; f32 9; f16 9", NULL, 0},
	{"y[j] = s / (1 + sum[i](x[i,j])) + b[j]", "x,b,y", "u8 70x64; f32 64; f32 64", "s=2.5", 0},
	{"y = sqrt(sum[i](x[i] * x[i]))", "x,y", "f64 70000; f64 ", NULL, 0},
	{"y[i] = max[j,k](x[i,j,k])", "x,y", "i16 9x5x33; i16 9", NULL, 0},
	{"y[j] = min[i](x[i,j])", "x,y", "f32 70x33 ~; f32 33", NULL, 0},
	{"y[i] = any[j](x[i,j] > s)", "x,y", "f32 9x100; bool 9", "s=2.5", 0},
	{"y[i] = !all[j](x[i,j])", "x,y", "bool 9x100; bool 9", NULL, 0},
	{"y[i] = prod[j](x[i,j])", "x,y", "i32 9x40; i64 9", NULL, 0},
	{"y[i] = sum[j](x[i,j]) + prod[j](1 + x[i,j])", "x,y", "f32 5x0; f32 5", NULL, 0},
	{"y[i] = any[j](x[i,j]) || !all[j](x[i,j])", "x,y", "bool 5x0; bool 5", NULL, 0},
	{"y[i] = sum[j](w[k[i,j]])", "w,k,y", "f32 40; i32 5x33 %40; f32 5", NULL, 0},
	{"y[i] = sum[j](w[k[i,j]])", "w,k,y", "f32 40; i32 5x33 !40; f32 5", "checked=1", CASES_STRAYS},
	/* Along rows: parts of a warp, warps, more than registers hold, vectors and none. */
	{SOFTMAX, "x,y", "f32 5x1024; f32 5x1024", NULL, 0},
	{SOFTMAX, "x,y", "f16 33x64; f16 33x64", NULL, 0},
	{SOFTMAX, "x,y", "bf16 3x777; f32 3x777", NULL, 0},
	{SOFTMAX, "x,y", "f64 2x33000; f64 2x33000", NULL, 0},
	{SOFTMAX, "x,y", "f16 3x8192; bf16 3x8192", NULL, 0},
	{SOFTMAX, "x,y", "f16 2x20000; f16 2x20000", NULL, 0},
	{"y[i,j] = exp(x[i,j] + a[i,j] + b[i,j] + c[i,j] + d[i,j]) / "
	 "sum[k](exp(x[i,k] + a[i,k] + b[i,k] + c[i,k] + d[i,k]))",
	 "x,a,b,c,d,y", "f16 2x4096; f16 2x4096; f32 2x4096; f16 2x4096; f32 2x4096; f16 2x4096", NULL,
	 0},
	{"y[i,j] = x[i,j] * s / max[k](abs(x[i,k]) * s)", "x,y", "bf16 9x64; bf16 9x64", "s=1e-30", 0},
	{SOFTMAX, "x,y", "f32 9x20 ~; f32 9x20", NULL, 0},
	{SOFTMAX, "x,y", "f32 0x20; f32 0x20", NULL, 0},
	{SOFTMAX, "x,y", "f32 6x40 @4 ^80,2; f32 6x40", NULL, 0},
	{NORM, "x,g,y", "f16 7x512; f32 512; f16 7x512", "n=512", 0},
	{"y[i,j] = x[i,j] - sum[k](abs(x[i,k] - sum[l](x[i,l]) / n))", "x,y", "f32 3x65; f32 3x65",
	 "n=65", 0},
	{"y[i,j,k] = x[i,j,k] / sum[l,m](x[i,l,m] * x[i,l,m])", "x,y", "f32 7x6x10; f32 7x6x10", NULL,
	 0},
	{"y[j,i] = x[i,j] - max[k](x[i,k])", "x,y", "f32 33x64; f32 64x33", NULL, 0},
	{"y[i] = sum[j](x[i,j] * x[i,j]) / n - sum[j](x[i,j] / n) * sum[j](x[i,j] / n)", "x,y",
	 "f32 40x300; f32 40", "n=300", 0},
	/* Rows side by side. */
	{"y[k,j] = exp(x[k,j]) / sum[i](exp(x[i,j]))", "x,y", "f16 70x64; f16 70x64", NULL, 0},
	{"y[i,k,j] = x[i,k,j] - max[l](x[i,l,j])", "x,y", "f32 3x3000x33; f32 3x3000x33", NULL, 0},
	{"y[l,j] = x[l,j] * sum[i](x[i,j] > k[j])", "x,k,y", "i32 50x12 %9; u8 12 %9; i64 50x12", NULL,
	 0},
	/* Other extents than the row's; within one another; computed subscripts. */
	{"y[i,j] = a[i,j] * sum[k](x[i,k]) + min[k](x[i,k])", "x,a,y", "f32 9x64; f16 9x40; f32 9x40",
	 NULL, 0},
	{"y[i] = sum[j](x[i,j] * max[k](a[j,k] - b[i]))", "x,a,b,y",
	 "f32 9x50; f32 50x20; f32 9; f32 9", NULL, 0},
	{"y[i,j] = x[i,j] - x[i,k[i]] * sum[l](x[i,l] * w[k[l]])", "x,k,w,y",
	 "f32 8x8; i32 8 !8; f32 8; f32 8x8", NULL, CASES_STRAYS},
	{"y[i,j] = x[i,j] - sum[l](w[k[i,l]])", "x,k,w,y", "f32 5x8; i32 5x8 !8; f32 8; f32 5x8",
	 "checked=1", CASES_STRAYS},
	{"y[i,j] = i * 100 + j + sum[k](x[i,k] * (k + j * 0))", "x,y", "i64 5x8 %9; i64 5x8", NULL, 0},
	/* Timed. */
	{"y[i] = sum[j](x[i,j] * w[j])", "x,w,y", "f32 16384x4096; f32 4096; f32 16384", NULL,
	 CASES_BENCH | CASES_BIG},
	{"y[i] = max[j](x[i,j])", "x,y", "f16 131072x1024; f16 131072", NULL, CASES_BENCH | CASES_BIG},
	{"y[j] = sum[i](x[i,j])", "x,y", "f32 8192x8192; f32 8192", NULL, CASES_BENCH | CASES_BIG},
	{SOFTMAX, "x,y", "f32 65536x1024; f32 65536x1024", NULL, CASES_BENCH | CASES_BIG},
	{SOFTMAX, "x,y", "f16 16384x8192; f16 16384x8192", NULL, CASES_BENCH | CASES_BIG},
	{NORM, "x,g,y", "f32 16384x4096; f32 4096; f32 16384x4096", "n=4096", CASES_BENCH | CASES_BIG},
	{NULL, NULL, NULL, NULL, 0},
};
