#!/bin/sh
# headers.sh [C-COMPILER [C++-COMPILER [INCLUDE-DIRECTORY]]]: the public headers compile as C99,
# C11, C++11 and C++17 with every warning an error, twice over, and with their helpers in use.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cc=${1:-${CC:-cc}}
cxx=${2:-${CXX:-c++}}
include=${3:-${SOURCE_DIR:-$(cd "$here/../.." && pwd)}/include}
tmp=$(mktemp -d /tmp/kiln-headers.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"

# Stands for the part of DLPack that dlpack.h needs, so that the adapter compiles without DLPack.
mkdir "$tmp/dlpack"
cat >"$tmp/dlpack/dlpack.h" <<'END'
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
#include <stdint.h>
typedef struct { int device_type; int32_t device_id; } DLDevice;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
	void *data;
	DLDevice device;
	int32_t ndim;
	DLDataType dtype;
	int64_t *shape;
	int64_t *strides;
	uint64_t byte_offset;
} DLTensor;
#endif
END

cat >"$tmp/alone.c" <<'END'
#include <kiln/kiln.h>
#include <kiln/kiln.h>
int use(void);
int use(void) { return KILN_VERSION_MAJOR + (int)sizeof(kiln_tensor) + KILN_EFORK + KILN_C128; }
END

cat >"$tmp/ops.c" <<'END'
#include <kiln/ops.h>
#include <kiln/ops.h>
int use(kiln_client *client, kiln_buffer *buffer);
int use(kiln_client *client, kiln_buffer *buffer)
{
	const int64_t shape[2] = {2, 3}, perm[2] = {1, 0};
	kiln_tensor x = kiln_tensor_make(buffer, 0, KILN_F32, 2, shape), none = kiln_tensor_none();
	kiln_mask_options mask = kiln_mask_make("causal");
	kiln_norm norm = kiln_norm_make();
	kiln_norm_grad grad = kiln_norm_grad_make();
	return kiln_permute(client, x, x, perm) + kiln_softmax(client, x, x, -1, 1.0) +
		kiln_log_softmax(client, x, x, -1, 1.0) + kiln_softmax_backward(client, x, x, x, 0, 0.5) +
		kiln_log_softmax_backward(client, x, x, x, 0, 0.5) +
		kiln_masked_softmax(client, x, none, x, &mask) +
		kiln_masked_softmax_backward(client, x, x, none, x, &mask) +
		kiln_layer_norm(client, x, none, none, x, 1e-5) + kiln_rms_norm(client, x, none, x, 1e-5) +
		kiln_layer_norm_with(client, x, x, &norm) + kiln_rms_norm_with(client, x, x, &norm) +
		kiln_layer_norm_backward(client, x, x, &grad) + kiln_rms_norm_backward(client, x, x, &grad);
}
END

cat >"$tmp/dlpack.c" <<'END'
#include <dlpack/dlpack.h>
#include <kiln/dlpack.h>
#include <kiln/dlpack.h>
int use(kiln_client *client, const DLTensor *source, kiln_tensor *tensor, kiln_buffer **out);
int use(kiln_client *client, const DLTensor *source, kiln_tensor *tensor, kiln_buffer **out)
{
	return kiln_dlpack_lend(client, source, "x", tensor, out);
}
END

# The adapter without DLPack compiles, but a use of it does not, and says why.
sed '1d' "$tmp/dlpack.c" >"$tmp/without.c"
printf '#include <kiln/dlpack.h>\nextern int nothing;\n' >"$tmp/unused.c"

for unit in alone ops dlpack unused; do
	for standard in c99 c11; do
		# Word splitting of the flags is meant.
		# shellcheck disable=SC2086
		"$cc" -std=$standard $warnings -I"$include" -I"$tmp" -fsyntax-only "$tmp/$unit.c"
	done
	for standard in c++11 c++17; do
		# shellcheck disable=SC2086
		"$cxx" -std=$standard $warnings -I"$include" -I"$tmp" -x c++ -fsyntax-only "$tmp/$unit.c"
	done
done
if "$cc" -std=c11 -I"$include" -fsyntax-only "$tmp/without.c" 2>"$tmp/said"; then
	echo "kiln/dlpack.h can be used without dlpack/dlpack.h"
	exit 1
fi

# The adapter's arithmetic, in a program.
cat >"$tmp/check.c" <<'END'
#include <dlpack/dlpack.h>
#include <kiln/dlpack.h>
#include <stdio.h>
static int failed;
#define CHECK(holds) \
	do { \
		if (!(holds)) { \
			printf("line %d: %s\n", __LINE__, #holds); \
			failed = 1; \
		} \
	} while (0)
int main(void)
{
	int64_t shape[3] = {2, 3, 4}, strides[3] = {40, 0, 2}, huge[2] = {INT64_MAX, INT64_MAX};
	int64_t down[3] = {12, 4, -1};
	DLTensor t = {0, {2, 0}, 3, {2, 32, 1}, shape, 0, 8};
	DLTensor keep = t;
	kiln_tensor k;
	uint64_t bytes = 0;
	CHECK(kiln_dlpack_describe(&t, &k, &bytes) == KILN_OK);
	CHECK(k.dtype == KILN_F32 && k.rank == 3 && k.contiguous == 1 && k.offset == 0 && bytes == 96);
	CHECK(k.stride[0] == 12 && k.stride[1] == 4 && k.stride[2] == 1);
	t.strides = strides;
	CHECK(kiln_dlpack_describe(&t, &k, &bytes) == KILN_OK);
	CHECK(k.contiguous == 0 && k.stride[0] == 40 && k.stride[1] == 0 && bytes == 47 * 4);
	t.strides = down;
	CHECK(kiln_dlpack_describe(&t, &k, &bytes) == KILN_EINVAL);
	t = keep;
	t.ndim = 2;
	t.shape = huge;
	CHECK(kiln_dlpack_describe(&t, &k, &bytes) == KILN_EINVAL);
	t.ndim = 9;
	CHECK(kiln_dlpack_describe(&t, &k, &bytes) == KILN_EINVAL);
	t.ndim = 0;
	CHECK(kiln_dlpack_describe(&t, &k, &bytes) == KILN_OK && bytes == 4);
	shape[1] = 0;
	t = keep;
	CHECK(kiln_dlpack_describe(&t, &k, &bytes) == KILN_OK && bytes == 0);
	DLDataType bf16 = {4, 16, 1}, c128 = {5, 128, 1}, boolean = {6, 8, 1}, pair = {2, 32, 2};
	DLDataType odd = {0, 4, 1}, f8 = {2, 8, 1}, newer = {11, 8, 1};
	DLDataType e4m3 = {10, 8, 1}, e5m2 = {12, 8, 1}, wide = {12, 16, 1};
	CHECK(kiln_dlpack_dtype(bf16) == KILN_BF16 && kiln_dlpack_dtype(c128) == KILN_C128);
	CHECK(kiln_dlpack_dtype(boolean) == KILN_BOOL && kiln_dlpack_dtype(pair) == KILN_DTYPE_NONE);
	CHECK(kiln_dlpack_dtype(odd) == KILN_DTYPE_NONE && kiln_dlpack_dtype(f8) == KILN_DTYPE_NONE);
	CHECK(kiln_dlpack_dtype(newer) == KILN_DTYPE_NONE);
	CHECK(kiln_dlpack_dtype(e4m3) == KILN_F8E4M3 && kiln_dlpack_dtype(e5m2) == KILN_F8E5M2);
	CHECK(kiln_dlpack_dtype(wide) == KILN_DTYPE_NONE);
	return failed;
}
END
if [ -n "${LIBKILN:-}" ] && [ -z "${KILN_SANITIZE:-}" ]; then
	"$cc" -std=c11 -I"$include" -I"$tmp" "$tmp/check.c" "$LIBKILN" \
		-Wl,-rpath,"$(dirname "$LIBKILN")" -o "$tmp/check"
	"$tmp/check"
fi
echo "the public headers compile"
