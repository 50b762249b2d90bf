#!/bin/sh
# stranger.sh: installs into an empty prefix and builds a stranger's project against it, by
# find_package and by pkg-config, in C and in C++, and with the archive; runs all against the daemon
# installed there.  The whole prefix is moved in between, and uninstalled at the end.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD_DIR:?BUILD_DIR names the build to install}
cc=${CC:-cc}
cxx=${CXX:-c++}
tmp=$(mktemp -d /tmp/kiln-install.XXXXXX)
prefix=$tmp/prefix
daemon=

clean_up() {
	status=$?
	trap - EXIT INT TERM
	if [ -n "$daemon" ]; then
		kill -TERM "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	[ $status = 0 ] || cat "$tmp"/*.log 2>/dev/null || true
	rm -rf "$tmp"
	exit $status
}
trap clean_up EXIT
trap 'exit 1' INT TERM

cmake --install "$build" --prefix "$prefix" >"$tmp/install.log"
pc=$(find "$prefix" -name kiln.pc)
libdir=$(dirname "$(dirname "$pc")")
[ -f "$prefix/include/kiln/kiln.h" ] && [ -f "$prefix/include/kiln/ops.h" ]
[ -f "$prefix/include/kiln/dlpack.h" ]
if [ -x "$prefix/bin/kilnd" ]; then
	grep -qx "ExecStart=$prefix/bin/kilnd" "$prefix/share/systemd/user/kilnd.service"
	[ -f "$prefix/share/systemd/user/kilnd.socket" ]
fi
if [ -x "$prefix/bin/kiln" ]; then
	for file in man/man1/kiln.1 man/man8/kilnd.8 bash-completion/completions/kiln \
		zsh/site-functions/_kiln fish/vendor_completions.d/kiln.fish; do
		[ -s "$prefix/share/$file" ] || {
			echo "share/$file is not installed"
			exit 1
		}
	done
fi
[ -L "$libdir/libkiln.so" ] && [ -L "$libdir/libkiln.so.0" ]

echo "find_package"
cmake -S "$here/stranger" -B "$tmp/stranger" -DCMAKE_PREFIX_PATH="$prefix" \
	-DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$tmp/configure.log" 2>&1
cmake --build "$tmp/stranger" >"$tmp/build.log" 2>&1

echo "pkg-config, from a prefix that was moved"
mv "$prefix" "$tmp/moved"
moved_libdir=$tmp/moved${libdir#"$prefix"}
PKG_CONFIG_PATH=$moved_libdir/pkgconfig
export PKG_CONFIG_PATH
flags="$(pkg-config --cflags --libs kiln) -Wl,-rpath,$moved_libdir -Wall -Wextra -Wpedantic -Werror"
# Word splitting of the flags is meant.
# shellcheck disable=SC2086
"$cc" -std=c11 "$here/stranger/stranger.c" $flags -o "$tmp/pc_c"
# shellcheck disable=SC2086
"$cxx" -std=c++17 -x c++ "$here/stranger/stranger.c" -x none $flags -o "$tmp/pc_cxx"
archive=
if [ -f "$moved_libdir/libkiln.a" ]; then
	archive=$tmp/pc_archive
	# shellcheck disable=SC2046
	"$cc" -std=c11 "$here/stranger/stranger.c" $(pkg-config --cflags kiln) \
		"$moved_libdir/libkiln.a" $(pkg-config --static --libs kiln | sed 's/-lkiln//') \
		-o "$archive"
	if readelf -d "$archive" | grep libkiln; then
		echo "a program with the archive needs the library"
		exit 1
	fi
fi
mv "$tmp/moved" "$prefix"

socket=
if [ -x "$prefix/bin/kilnd" ]; then
	socket=$tmp/kiln.sock
	"$prefix/bin/kilnd" --socket "$socket" --cache-dir "$tmp/cache" --device cpu \
		>"$tmp/kilnd.log" 2>&1 &
	daemon=$!
	tries=0
	until KILN_SOCKET=$socket timeout 5 "$prefix/bin/kiln" status >/dev/null 2>"$tmp/status.log"; do
		tries=$((tries + 1))
		if [ $tries -gt 2000 ] || ! kill -0 "$daemon"; then
			echo "the installed kilnd does not answer"
			exit 1
		fi
		sleep 0.1
	done
fi
LD_LIBRARY_PATH=$libdir
export LD_LIBRARY_PATH
for program in "$tmp/stranger/stranger_c" "$tmp/stranger/stranger_cxx" "$tmp/pc_c" "$tmp/pc_cxx" \
	$archive; do
	timeout 60 "$program" ${socket:+"$socket"}
	echo "$(basename "$program"): right"
done

echo "uninstall"
if [ -n "$daemon" ]; then
	kill -TERM "$daemon"
	wait "$daemon" || true
	daemon=
fi
# Other tests install this build meanwhile, so that its own list may be another prefix's.
sed -n 's/^-- \(Installing\|Up-to-date\): //p' "$tmp/install.log" >"$tmp/manifest"
cmake -D MANIFEST="$tmp/manifest" -P "$here/../../scripts/cmake/uninstall.cmake" \
	>"$tmp/uninstall.log" 2>&1
find "$prefix" ! -type d | grep . && {
	echo "these were not uninstalled"
	exit 1
}
find "$prefix" -name kiln | grep . && {
	echo "these directories were left"
	exit 1
}
exit 0
