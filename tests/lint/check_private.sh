#!/bin/sh
# check_private.sh: no paths of anybody's machine, no hosts of package registries, no talk about how
# the project is made.  The patterns are written so that they do not find themselves.
. "$(dirname "$0")/lib.sh"

{
	sources '' | grep -vE '\.(ppm|pgm|bin|o)$'
	ls ./*.md docs/*.md CMakeLists.txt CMakePresets.json .clang-format .gitignore
} | xargs grep -nIE \
	-e '(^|[^A-Za-z0-9_.])/(wor[k]|roo[t]|hom[e])/' \
	-e 'py[p]i\.org|python[h]osted|np[m]js|deb\.debia[n]\.org|archive\.ubunt[u]|golan[g]\.org' \
	-e '[Ii]ssu[e]s? #?[0-9]|[Hh]elpe[r] sessio[n]|[Cc]odin[g] agen[t]' 2>/dev/null |
	sed 's|^\([^:]*:[0-9]*\):\(.*\)|\1: of a private machine or of the making: \2|' |
	finish private
