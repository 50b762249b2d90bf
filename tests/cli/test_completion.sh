#!/bin/sh
# test_completion.sh: shells complete lines of kiln, by the scripts that it prints.
. "$(dirname "$0")/lib.sh"

# words LINE: what may come next where its last word has been typed so far
words() {
	IFS=' '
	# Word splitting of the line is meant; a space at its end begins a word.
	# shellcheck disable=SC2086
	case $1 in
	*' ') "$KILN" __complete $1 '' ;;
	*) "$KILN" __complete $1 ;;
	esac | cut -f1 | sort
}

offers() {
	line=$1
	shift
	words "$line" >"$DIR/words"
	for word in "$@"; do
		grep -qxe "$word" "$DIR/words" || fails "'kiln $line': no '$word'"
	done
}

offers 'ca' cache status run help
offers 'cache ' ls show trim
offers 'run ' softmax permute map raw
offers 'run softmax --sh' --shape --dtype --time --socket --json
offers 'run --shape 2x3 softmax --dtype ' f32 bf16 f8e4m3
offers '--device ' cpu cuda:0
offers '--socket /tmp/x cache table --' --sort --op --json
offers 'cache table --op ' softmax
offers 'explain raw k.cu --' --entry --why
offers 'help ' cache run
offers 'help cache ' ls
words 'cache show ' >"$DIR/words"
[ ! -s "$DIR/words" ] || fails "'kiln cache show ' offers $(cat "$DIR/words")"
words 'run softmax ' >"$DIR/words"
[ ! -s "$DIR/words" ] || fails "'kiln run softmax ' offers $(cat "$DIR/words")"
"$KILN" __complete >/dev/null || fails "__complete without words"
prints 2 "$KILN" completion csh <<'END'
! kiln: completion 'csh': it is not one of bash, zsh, fish
END

# ---- The shells themselves, with a program that is called kiln ----
mkdir "$DIR/bin"
ln -s "$KILN" "$DIR/bin/kiln"
PATH=$DIR/bin:$PATH
missing=

# same SHELL: it offered what is expected
same() {
	sort "$DIR/offered" | tr '\n' ' ' >"$DIR/got"
	[ "$(cat "$DIR/got")" = "$2" ] || fails "$1 offers '$(cat "$DIR/got")', not '$2'"
}

if command -v bash >/dev/null; then
	kiln completion bash >"$DIR/kiln.bash"
	bash -c '. "$1"
		COMP_WORDS=(kiln cache s) COMP_CWORD=2
		_kiln; printf "%s\n" "${COMPREPLY[@]}"' - "$DIR/kiln.bash" >"$DIR/offered"
	same bash 'show '
	bash -c '. "$1"; complete -p kiln' - "$DIR/kiln.bash" >"$DIR/offered"
	same bash 'complete -o default -F _kiln kiln '
else
	missing="$missing bash"
fi
if command -v fish >/dev/null; then
	kiln completion fish >"$DIR/kiln.fish"
	HOME=$DIR fish --no-config -c "source $DIR/kiln.fish; complete -C 'kiln cache sh'" |
		cut -f1 >"$DIR/offered"
	same fish 'show '
else
	missing="$missing fish"
fi
if command -v zsh >/dev/null; then
	kiln completion zsh >"$DIR/_kiln"
	# Its own completion system, with a function in the place of the list on the screen.
	zsh -f -c 'fpath=("$1" $fpath)
		compdef() { :; }
		. "$1/_kiln"
		_describe() { print -l -- "${(@)found%%:*}"; }
		words=(kiln cache s) CURRENT=3
		_kiln' - "$DIR" >"$DIR/offered" || fails "zsh cannot run the script"
	grep -qx show "$DIR/offered" || fails "zsh offers $(cat "$DIR/offered")"
else
	missing="$missing zsh"
fi
[ -z "$missing" ] || echo "not tried, for want of them:$missing"
finish
