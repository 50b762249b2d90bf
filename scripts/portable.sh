#!/bin/sh
# portable.sh: builds a tree that runs on other distributions: the programs with everything but libc
# inside, libkiln, the kernel sources, the examples and what tests/gpu/run.sh needs.
# It must not install anything.
#
#   sh scripts/portable.sh [--out DIRECTORY] [--kernels OPTIONS] [CMAKE-ARGUMENT...]
#
# --out      where the tree goes; default build/portable-tree.  It is made anew.
# --kernels  puts the cubins of benchmarks into the tree, so that no time is spent on them there;
#            OPTIONS are bench_kernels', in one word: "--target sm_90 --choices --ops softmax"
#
# Exit status: 0 the tree is there and was checked, 1 it is not, 2 usage.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
tree=$root/build/portable-tree
newest_glibc=2.36
most_kib=28672

usage() {
	echo "usage: sh scripts/portable.sh [--out DIRECTORY] [--kernels OPTIONS] ..." >&2
	exit 2
}

kernels=
while [ $# -gt 0 ]; do
	case $1 in
	--out)
		[ $# -ge 2 ] || usage
		mkdir -p "$2"
		tree=$(cd "$2" && pwd)
		;;
	--kernels)
		[ $# -ge 2 ] || usage
		kernels=$2
		;;
	*) break ;;
	esac
	shift 2
done
cd "$root"

tests="gpu_cases gpu_first gpu_latency gpu_pools gpu_apart gpu_two gpu_raw gpu_local gpu_order
	gpu_faults bench_kernels bench_random bench_compile bench_launch bench_quiet
	bench_pool bench_shapes bench_load soak"
examples="permute softmax layer_norm streams raw photo make_photo
	attention_mask gather_ways online_norms giou_loss permutations"
programs="kilnd kiln $tests $examples"
targets="kilnd kiln kiln_cli $tests kiln_examples"

if [ -f build/portable/Makefile ] || ! command -v ninja >/dev/null 2>&1; then
	set -- -G "Unix Makefiles" "$@"
fi
cmake --preset portable -DKILN_BUILD_TESTS=ON -DKILN_BUILD_EXAMPLES=ON "$@" >/dev/null
# shellcheck disable=SC2086
cmake --build build/portable --parallel "$(nproc 2>/dev/null || echo 2)" --target $targets

# ---- The tree ------------------------------------------------------------------------------------

rm -rf "$tree"
mkdir -p "$tree/bin" "$tree/lib" "$tree/tests/gpu" "$tree/tests/bench" "$tree/tests/soak" \
	"$tree/include"
for program in $programs; do
	cp "build/portable/bin/$program" "$tree/bin/"
	strip "$tree/bin/$program"
done
cp -P build/portable/lib/libkiln.so* "$tree/lib/"
strip --strip-unneeded "$(readlink -f "$tree/lib/libkiln.so")"
cp -R include/kiln "$tree/include/"
cp -R kernel_src "$tree/"
rm -f "$tree/kernel_src/CMakeLists.txt"
cp tests/gpu/run.sh "$tree/tests/gpu/"
cp tests/soak/run.sh "$tree/tests/soak/"
cp tests/bench/torch_times.py tests/bench/torch_operators.py tests/bench/liger_operators.py \
	tests/bench/torch_shapes.py "$tree/tests/bench/"
if [ -d examples/data ]; then
	mkdir -p "$tree/examples"
	cp -R examples/data "$tree/examples/"
fi
cat >"$tree/run.sh" <<'END'
#!/bin/sh
# run.sh: the tests of this tree on a machine with a GPU; options as tests/gpu/run.sh --help says.
exec sh "$(dirname "$0")/tests/gpu/run.sh" "$@"
END
chmod +x "$tree/run.sh"

# ---- Is it what it should be? --------------------------------------------------------------------

wrong=0
complain() {
	echo "portable.sh: $*" >&2
	wrong=1
}

for file in "$tree"/bin/* "$(readlink -f "$tree/lib/libkiln.so")"; do
	name=$(basename "$file")
	for library in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		case $library in
		libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1) ;;
		ld-linux*.so.*) ;;
		libkiln.so.0) ;;
		*) complain "$name needs $library, which another distribution may not have" ;;
		esac
	done
	newest=$(readelf -V "$file" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV |
		tail -n 1)
	newer=$(printf '%s\n%s\n' "$newest_glibc" "$newest" | sort -V | tail -n 1)
	if [ "$newer" != "$newest_glibc" ]; then
		complain "$name needs glibc $newest and may need $newest_glibc: build on Debian 12"
	fi
	if readelf -d "$file" | grep -E 'RUNPATH|RPATH' | grep -qv '\[$ORIGIN/\.\./lib:*\]'; then
		complain "$name looks for libraries outside its tree"
	fi
done
"$tree/bin/kiln" --version >/dev/null || complain "kiln does not start from $tree"
"$tree/bin/kilnd" --version >/dev/null || complain "kilnd does not start from $tree"
size=$(du -sk "$tree" | cut -f1)
[ "$size" -le $most_kib ] || complain "the tree has $size KiB; the most is $most_kib"
[ $wrong = 0 ] || exit 1
if [ -n "$kernels" ]; then
	# Word splitting of the options is meant.
	# shellcheck disable=SC2086
	"$tree/bin/bench_kernels" --compile "$tree/objects" $kernels
	size=$(du -sk "$tree" | cut -f1)
fi
echo "portable.sh: $tree, $size KiB, for glibc $newest_glibc and newer"
