#!/bin/sh
# check_third_party.sh: THIRD_PARTY.md has a row for each library that CMake links or the programs
# load, and none for another.
. "$(dirname "$0")/lib.sh"

page=THIRD_PARTY.md
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# By find_package() and pkg_check_modules(): the last of several names of one library.
grep -hE '^[[:space:]]*pkg_(check|search)_modules?\(' scripts/cmake/dependencies.cmake |
	sed 's/.*IMPORTED_TARGET //; s/).*//' |
	awk '{ sub(/[<>=].*/, "", $1); print $1 }' >"$tmp/linked"
grep -hoE 'Threads::Threads|CMAKE_DL_LIBS' client/CMakeLists.txt daemon/CMakeLists.txt |
	sed 's/Threads::.*/Threads/; s/CMAKE_DL_LIBS/dl/' >>"$tmp/linked"
printf 'm\nrt\n' >>"$tmp/linked"
grep -rhoE '"lib(cuda|nvrtc)\.so(\.1)?"' daemon client --include=*.c | tr -d '"' >>"$tmp/linked"
grep -hoE 'find_path\([A-Z_]+ [a-z]+\.h' scripts/cmake/dependencies.cmake |
	sed 's/.* //' >>"$tmp/linked"
sort -u -o "$tmp/linked" "$tmp/linked"

# The names of a row are in its first column, in backticks.
awk -F'|' '/^\| `/ { print $2 }' $page | grep -oE '`[^`]+`' | tr -d '`' | sort -u >"$tmp/named"

# A library that a program needs has a row, too.
for file in "$BUILD_DIR"/bin/kilnd "$BUILD_DIR"/bin/kiln "$BUILD_DIR"/lib/libkiln.so; do
	[ ! -e "$file" ] || readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
done | sort -u >"$tmp/needed"

{
	sed "s|\$|: CMake links or a program loads it, and it has no row|; s|^|$page:1: |" <<-END
		$(comm -23 "$tmp/linked" "$tmp/named")
	END
	comm -13 "$tmp/linked" "$tmp/named" | sed "s|^|$page:1: nothing links |"
	awk -F' *[|] *' -v page=$page \
		'/^\| `/ && $4 == "" { printf "%s:%d: no licence\n", page, FNR }' $page
	while read -r name; do
		case $name in
		libc.so.* | ld-linux* | libkiln.so.* | lib*san.so.* | libgcc_s.so.*) continue ;;
		libmsgpack*) name=msgpack-c ;;
		libpthread.so.*) name=Threads ;;
		libuv.so.*) name=libuv ;;
		libsodium.so.* | libseccomp.so.*) name=${name%%.so.*} ;;
		*) name=${name#lib} name=${name%%.so.*} name=${name%%-*} ;;
		esac
		grep -qx -e "$name" "$tmp/named" || echo "$page:1: a program needs $name, which has no row"
	done <"$tmp/needed"
} | grep -v ':1: : ' | finish third_party
