#!/bin/sh
# test_key.sh: keys that seal, and keys that are trusted.
. "$(dirname "$0")/lib.sh"
daemon

# refused PART COMMAND...: ends with 1, and the sentence has this part.
refused() {
	part=$1
	shift
	"$KILN" "$@" >"$DIR/out" 2>&1
	[ $? -eq 1 ] || fails "not refused: $*"
	grep -qF -e "$part" "$DIR/out" || fails "'$part' is not in: $(cat "$DIR/out")"
}

prints 0 "$KILN" key ls <<'END'
NAME  ID  SEALS  TRUSTED
END
"$KILN" key new build-1 >"$DIR/new" || fails "key new"
id=$(sed -n 's/^made key build-1 (\([0-9a-f]\{16\}\)), which is trusted here$/\1/p' "$DIR/new")
[ -n "$id" ] || fails "key new prints no id: $(cat "$DIR/new")"
grep -qx "for other hosts: $DIR/config/kiln/keys/build-1.pub" "$DIR/new" || fails "no path"
[ "$(stat -c %a "$DIR/config/kiln/keys/build-1.key")" = 600 ] || fails "the mode of a secret key"
prints 0 sh -c '"$KILN" key ls | sed "s/  */ /g; s/[0-9a-f]\{16\}/ID/"' <<'END'
NAME ID SEALS TRUSTED
build-1 ID yes yes
END
"$KILN" key show build-1 | cmp - "$DIR/config/kiln/keys/build-1.pub" || fails "key show"
[ "$("$KILN" key show "$id")" = "$("$KILN" key show build-1)" ] || fails "key show by id"
prints 1 "$KILN" key new build-1 <<'END'
! kiln: key new: there is a key DIR/config/kiln/keys/build-1.key already
END
refused '"a/b" is no name of a key: 1 to 48 of letters, digits' key new a/b
refused 'is no name of a key: it has 1 to 48 bytes' key new "$(printf '%049d' 1)"
prints 1 "$KILN" key show none <<'END'
! kiln: key show: there is no key 'none'
END

# From one host to another: only the public half goes.
prints 0 sh -c '"$KILN" key distrust build-1 | sed "s/[0-9a-f]\{16\}/ID/"' <<'END'
trusts key build-1 (ID) no more
END
"$KILN" key trust --name far "$DIR/config/kiln/keys/build-1.pub" |
	grep -qx "trusts key far ($id)" || fails "key trust"
json 'len(j["rows"]) == 1 and j["rows"][0]["trusted"] and j["rows"][0]["secret"]' "$KILN" key ls
"$KILN" key distrust "$id" | grep -qx "trusts key far ($id) no more" || fails "key distrust by id"
"$KILN" key show build-1 | "$KILN" key trust - | grep -qx "trusts key build-1 ($id)" ||
	fails "key trust -"
prints 1 "$KILN" key distrust nobody <<'END'
! kiln: key distrust: no key that is trusted has the name or id "nobody"
END
echo "kiln-public-key 1 0123 x" >"$DIR/bad.pub"
refused '"kiln-public-key 1 0123 x" is no public key: it is a line' key trust "$DIR/bad.pub"
head -c 200 /dev/zero | tr '\0' a >"$DIR/long.pub"
refused 'is no public key: it has 1 to 159 bytes' key trust "$DIR/long.pub"
prints 1 "$KILN" key trust "$DIR/none.pub" <<'END'
! kiln: key trust: 'DIR/none.pub': No such file or directory
END
prints 1 "$KILN" key trust / <<'END'
! kiln: key trust: '/': Is a directory
END
prints 2 "$KILN" key frob <<'END'
! kiln: 'frob' is no command of 'kiln key'; 'kiln help key' lists them
END
finish
