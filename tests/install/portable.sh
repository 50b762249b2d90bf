#!/bin/sh
# portable.sh: what scripts/portable.sh builds can be built where there is no library of tests.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d /tmp/kiln-portable.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

found=$(command -v pkg-config)
cat >"$tmp/pkg-config" <<END
#!/bin/sh
for word in "\$@"; do
	case \$word in cmocka*) exit 1 ;; esac
done
exec "$found" "\$@"
END
chmod +x "$tmp/pkg-config"
cmake -S "$root" -B "$tmp/build" -DCMAKE_BUILD_TYPE=Release -DKILN_PORTABLE=ON \
	-DKILN_BUILD_TESTS=ON -DKILN_BUILD_EXAMPLES=ON \
	-DPKG_CONFIG_EXECUTABLE="$tmp/pkg-config" >"$tmp/log" 2>&1 || {
	cat "$tmp/log"
	exit 1
}
# Its lists of what it builds.
eval "$(sed -n '/^tests="/,/^targets="/p' "$root/scripts/portable.sh")"
cmake --build "$tmp/build" --target help >"$tmp/known"
# shellcheck disable=SC2154
for target in $targets; do
	grep -qwF -e "$target" "$tmp/known" || {
		echo "portable.sh builds $target, which is no target"
		exit 1
	}
done
