#!/bin/sh
# wheel.sh: builds the wheel of the Python package: the extension, libkiln, kilnd, kiln and the
# kernel sources, with everything but libc inside.
# It must not install anything outside build/.
#
#   sh scripts/wheel.sh [--out DIRECTORY] [--build DIRECTORY]
#
# --out    where the wheel goes; default build/wheel.  An older wheel there is removed.
# --build  a build tree to go on from, of the release preset with KILN_PORTABLE=ON; default one of
#          the wheel's own
# PYTHON   the interpreter that builds; default python3.  The wheel runs on CPython 3.10 and newer.
#
# Exit status: 0 the wheel is there and was checked, 1 it is not, 2 usage, 3 the tools could not be
# fetched.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/build/wheel
most_bytes=8388608
python=${PYTHON:-python3}

usage() {
	echo "usage: sh scripts/wheel.sh [--out DIRECTORY] [--build DIRECTORY]" >&2
	exit 2
}

tree=
while [ $# -gt 0 ]; do
	[ $# -ge 2 ] || usage
	case $1 in
	--out) mkdir -p "$2" && out=$(cd "$2" && pwd) ;;
	--build) tree=$(cd "$2" && pwd) ;;
	*) usage ;;
	esac
	shift 2
done
cd "$root"

# ---- The tools, in an environment below build/ ---------------------------------------------------

tools=$root/build/venv-wheel
if ! [ -e "$tools/ready" ]; then
	rm -rf "$tools"
	"$python" -m venv "$tools"
	"$tools/bin/python" -m pip install --quiet --disable-pip-version-check \
		'scikit-build-core>=0.10' 'wheel>=0.43' 'build>=1' 'auditwheel>=6' || {
		echo "wheel.sh: pip could not fetch the tools that build wheels" >&2
		exit 3
	}
	: >"$tools/ready"
fi

# ---- Building ------------------------------------------------------------------------------------

part=$root/build/wheel.part
rm -rf "$part"
"$tools/bin/python" -m build --wheel --no-isolation --outdir "$part" client/python \
	--config-setting=cmake.define.KILN_PORTABLE=ON \
	--config-setting=install.strip=true ${tree:+"--config-setting=build-dir=$tree"}

if grep -q '^KILN_CUDA_H:PATH=.*NOTFOUND' "${tree:-$(echo build/python-*)}/CMakeCache.txt"; then
	echo "wheel.sh: there is no cuda.h, and the wheel would know no GPU: sh scripts/setup.sh" >&2
	exit 1
fi

# The tag names the newest glibc that any of the files asks for.
"$tools/bin/python" -m zipfile -e "$part"/*.whl "$part/tree"
newest=$(find "$part/tree" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec readelf -V {} + |
	grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
tag=manylinux_$(echo "$newest" | tr . _)_$(uname -m)
"$tools/bin/python" -m wheel tags --remove --platform-tag "$tag" "$part"/*.whl >/dev/null

# ---- Is it what it should be? --------------------------------------------------------------------

wrong=0
complain() {
	echo "wheel.sh: $*" >&2
	wrong=1
}

wheel=$(echo "$part"/*.whl)
for file in "$part"/tree/kiln/*.so "$part"/tree/kiln/bin/* "$part"/tree/kiln/lib/*; do
	name=$(basename "$file")
	for library in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		case $library in
		libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux*.so.* | \
			libkiln.so.0) ;;
		*) complain "$name needs $library, which another distribution may not have" ;;
		esac
	done
	if readelf -d "$file" | grep -E 'RUNPATH|RPATH' | grep -qvE '\[\$ORIGIN/(\.\./)?lib:*\]'; then
		complain "$name looks for libraries outside the package"
	fi
done
case $wheel in
*-cp310-abi3-manylinux_*) ;;
*) complain "$(basename "$wheel") is not tagged as one of the stable ABI of CPython 3.10" ;;
esac
"$tools/bin/python" -m auditwheel show "$wheel" | tr '\n' ' ' | grep -q "\"$tag\"" ||
	complain "auditwheel does not agree that the wheel is $tag"
size=$(wc -c <"$wheel")
[ "$size" -le $most_bytes ] || complain "the wheel has $size bytes; the most is $most_bytes"
[ $wrong = 0 ] || exit 1
mkdir -p "$out"
rm -f "$out"/kiln_jit-*.whl
mv "$wheel" "$out/"
rm -rf "$part"
echo "wheel.sh: $out/$(basename "$wheel"), $size bytes, for glibc $newest and newer"
