#!/bin/sh
# check_shell.sh: every script parses in its own shell; those for sh keep away from bash's words.
. "$(dirname "$0")/lib.sh"

{
	sources .sh | while read -r script; do
		sh -n "$script" 2>&1 | sed "s|^|$script:1: |"
	done
	sources .sh | xargs grep -nE \
		'^[[:space:]]*((if|while|until) )?(\[\[ |local |source |declare |typeset )' |
		sed 's|^\([^:]*:[0-9]*\):\(.*\)|\1: not a word of POSIX sh: \2|'
	if command -v bash >/dev/null 2>&1; then
		bash -n .ci/run 2>&1 | sed 's|^|.ci/run:1: |'
	fi
} | finish shell
