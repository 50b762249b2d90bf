#!/bin/sh
# check_options.sh: whatever can be set is written down: kilnd's options in its help and in
# docs/options.md, as are the variables that the programs read; the commands of kiln in docs/cli.md,
# the options of the build in docs/operations.md.
. "$(dirname "$0")/lib.sh"

# documented PAGE TEXT KIND
documented() {
	grep -qF -e "$2" "$1" || echo "$1:1: $3 $2 is not documented"
}

{
	if [ -n "${KILND:-}" ]; then
		help=$(timeout 20 "$KILND" --help)
		[ -n "$help" ] || echo "daemon/options/options_table.c:1: kilnd --help prints nothing"
		for option in $(printf '%s\n' "$help" | sed -n 's/^ *\(--[a-z-]*\).*/\1/p'); do
			# The words stand behind the option or on the line below it; [variable] is none.
			printf '%s\n' "$help" | grep -A 1 -E "^ *$option(\[| |\$)" | tr '\n' ' ' |
				sed "s/$option [^ ]*//; s/\[[^]]*\]//" | grep -qE '[a-z]+ [a-z]+' ||
				echo "daemon/options/options_table.c:1: $option has no words in kilnd --help"
			documented docs/options.md "$option" "kilnd's option"
		done
	fi
	if [ -n "${KILN:-}" ]; then
		timeout 20 "$KILN" help |
			awk '/^commands:/ { on = 1; next } /^[^ ]/ { on = 0 } on && NF { print $1 }' |
			sort -u | while read -r command; do
			documented docs/cli.md "kiln $command" "the command"
		done
	fi
	for variable in $(sources .c .h | grep -E '^(client|daemon)/' |
		xargs grep -ohE '"KILN_[A-Z_]+"' | tr -d '"' | sort -u); do
		case $variable in
		KILN_E* | KILN_OK) continue ;;          # statuses
		KILN_NVRTC_ID | KILN_CXX_ID) continue ;; # from the broker to its own children
		esac
		grep -qE "#define $variable( |\()" include/kiln/kiln.h && continue
		documented docs/options.md "$variable" "the variable"
	done
	for option in $(grep -hE '^(option|set)\(KILN_.*( ON| OFF| CACHE )' scripts/cmake/*.cmake |
		sed 's/^[a-z]*(\([A-Z_]*\).*/\1/'); do
		documented docs/operations.md "$option" "the build option"
	done
} | finish options
