#!/bin/sh
# examples.sh [DIRECTORY]: runs every example on the cpu device, small, and looks at what it prints.
# The programs are in DIRECTORY, or in $EXAMPLES.
. "$(dirname "$0")/../cli/lib.sh"
source_dir=${SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
bin=${1:-${EXAMPLES:?EXAMPLES names the directory of the programs}}
tested=
daemon

# example NAME [ARGUMENT...]: every line of standard input is a pattern, and must fit a line of what
# it prints.
example() {
	name=$1
	shift
	tested="$tested $name"
	cat >"$DIR/patterns"
	timeout 60 "$bin/$name" "$@" >"$DIR/out" 2>"$DIR/err" </dev/null
	status=$?
	if [ $status -ne 0 ]; then
		fails "$name $*: status $status: $(cat "$DIR/err")"
	else
		while read -r pattern; do
			grep -aqE -e "$pattern" "$DIR/out" ||
				fails "$name $*: no line is '$pattern': $(cat "$DIR/out")"
		done <"$DIR/patterns"
	fi
}

# table ROWS: the table that the last example printed has so many rows, whose times are above 0.
table() {
	rows=$(awk 'NF >= 5 && $NF > 0 && $(NF - 1) > 0 && $(NF - 2) > 0 && $(NF - 3) > 0 &&
		/ [0-9]+\.[0-9] +[0-9]+\.[0-9] +[0-9]+\.[0-9][0-9] +[0-9]+\.[0-9]$/ { rows++ }
		END { print rows + 0 }' "$DIR/out")
	[ "$rows" -eq "$1" ] || fails "$name: $rows rows instead of $1: $(cat "$DIR/out")"
}

example permute <<'END'
^cpu: 1 4 / 2 5 / 3 6$
END
example softmax <<'END'
^plain: 0\.0321 0\.0871 0\.2369 0\.6439$
^masked: 0\.7311 0\.2689 0\.0000 0\.0000$
END
example layer_norm <<'END'
^batch 0, mean 150: -1\.342 -0\.894 1\.342 5\.367$
^batch 1, mean 550: -1\.342 -0\.894 1\.342 5\.367$
END
example streams <<'END'
^0: 0\.2891 0\.7109 / 0\.1824 0\.8176 / 0\.1091 0\.8909$
^2: 0\.2891 0\.7109 / 0\.1824 0\.8176 / 0\.1091 0\.8909$
END
example raw <<'END'
^cpu, [a-z]+: 1 \+ 1 \+ 2 \+ 3 = 7$
END
example make_photo <<'END'
^P6
END
cmp "$DIR/out" "$source_dir/examples/data/photo.ppm" || fails "make_photo draws another picture"
mkdir "$DIR/pictures"
example photo "$source_dir/examples/data/photo.ppm" "$DIR/pictures" </dev/null
cmp "$DIR/pictures/photo-back.ppm" "$source_dir/examples/data/photo.ppm" || fails "photo"
# adds_up: the answers of the last photo are as many as the requests, before and after.
adds_up() {
	awk '/ requests = / {
			sub(/.*; /, "")
			if ($1 != $4 + $7 + $10 + $13 + $16 || $17 != "refused") print
			lines++
		}
		END { if (lines != 2) print lines " lines" }' "$DIR/out" >"$DIR/wrong"
	[ ! -s "$DIR/wrong" ] || fails "photo: $(cat "$DIR/wrong")"
}
adds_up

example attention_mask --small <<'END'
^softmax, lengths, [0-9]+ % of the block
^softmax, causal, [0-9]+ % of the block
^softmax, bool, [0-9]+ % of the block
^the block's results are right with every mask$
END
table 5
example gather_ways --small <<'END'
^map 
^every one of the 6144 numbers is right, in every way$
END
table 5
# Around 1e9 the short formula gives a variance below 0 for f64, and nonsense for f32.
example online_norms --small <<'END'
exp\(x\) / sum in f32 gives nan$
^ *variance 0\.7278.* gives 0\.7278
^ *variance 3\.23.*e\+09.* gives -?[0-9.]+e\+1[0-9]$
^ *variance 0\.7278.* gives -[0-9]+$
^all 64 rows are right, every time$
END
table 4
example giou_loss --small <<'END'
^loss -0\.[0-9]{6} over [0-9]+ boxes in 32 pictures, every time$
END
table 4
example permutations --small <<'END'
^64x64 \(1,0\) f32 
^3x17x9x15 \(2,0,3,1\) i8 
^every element of every permutation is right$
END
table 24

for program in $(grep -lE '^int main' "$source_dir"/examples/*.c); do
	program=$(basename "$program" .c)
	case "$tested " in
	*" $program "*) ;;
	*) fails "examples/$program.c is in no test" ;;
	esac
done

# An example that fails says one sentence.
"$bin/giou_loss" --large 2>"$DIR/err"
[ $? -eq 2 ] || fails "an unknown option"
grep -q '^usage: .*giou_loss \[--small\]$' "$DIR/err" || fails "no usage: $(cat "$DIR/err")"
"$KILN" stop >/dev/null
wait "$DAEMON"
# By default generic kernels answer first; these are in the sum as well.
rm -rf "$DIR/cache"
daemon --specialize lazy
example photo "$source_dir/examples/data/photo.ppm" "$DIR/pictures" </dev/null
adds_up
"$KILN" stop >/dev/null
wait "$DAEMON"
DAEMON=
KILN_DAEMON=/bin/false timeout 60 "$bin/gather_ways" --small >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "no daemon"
grep -q '^KILN_ECONN: .' "$DIR/err" || fails "no sentence: $(cat "$DIR/err")"
finish
