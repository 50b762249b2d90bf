#!/bin/sh
# examples.sh: builds every example against an installed Kiln, with the commands of
# examples/README.md word for word: by pkg-config and by find_package.  Both sets are run against
# the daemon installed there.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
source_dir=${SOURCE_DIR:-$(cd "$here/../.." && pwd)}
build=${BUILD_DIR:?BUILD_DIR names the build to install}
tmp=$(mktemp -d /tmp/kiln-examples.XXXXXX)
prefix=$tmp/prefix

clean_up() {
	status=$?
	trap - EXIT INT TERM
	[ $status = 0 ] || cat "$tmp"/*.log 2>/dev/null || true
	rm -rf "$tmp"
	exit $status
}
trap clean_up EXIT
trap 'exit 1' INT TERM

cmake --install "$build" --prefix "$prefix" >"$tmp/install.log"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name kiln.pc)")
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH")
CMAKE_PREFIX_PATH=$prefix
export PKG_CONFIG_PATH LD_LIBRARY_PATH CMAKE_PREFIX_PATH
mkdir "$tmp/bin"
ln -s "$(command -v "${CC:-cc}")" "$tmp/bin/cc"
PATH=$tmp/bin:$PATH
unset CC

# block WORD: the README's commands in the block that this word is in
block() {
	awk -v word="$1" '/^```$/ { if (on && index(text, word)) printf "%s", text; on = 0 }
		on { text = text $0 "\n" }
		/^```sh$/ { on = 1; text = "" }' "$source_dir/examples/README.md"
}

for way in pkg-config cmake; do
	echo "$way"
	cp -R "$source_dir/examples" "$tmp/$way"
	block "$way" >"$tmp/$way.sh"
	[ -s "$tmp/$way.sh" ]
	(cd "$tmp/$way" && sh -eu "$tmp/$way.sh") >"$tmp/$way.log" 2>&1
	bin=$tmp/$way
	[ $way = pkg-config ] || bin=$tmp/$way/build
	if [ -x "$prefix/bin/kilnd" ]; then
		KILN=$prefix/bin/kiln KILND=$prefix/bin/kilnd KILN_TEST_CACHE=$tmp/cache \
			sh "$source_dir/tests/integration/examples.sh" "$bin"
	fi
	echo "$way: right"
done
