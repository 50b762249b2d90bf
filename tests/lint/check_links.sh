#!/bin/sh
# check_links.sh: every link between our pages leads to a file that is there, and to a heading that
# it has.
. "$(dirname "$0")/lib.sh"

# The pages: those of the top and of docs, and the README of each folder.
pages=$(ls ./*.md docs/*.md && find client daemon kernel_src examples tests -name '*.md')

# anchors PAGE: the names by which its headings are linked to
anchors() {
	awk '/^```/ { code = !code } !code && /^#+ / { sub(/^#+ /, ""); print tolower($0) }' "$1" |
		sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

for page in $pages; do
	awk '/^```/ { code = !code; next } !code {
		while (match($0, /\]\([^) ]+\)/)) {
			print FNR " " substr($0, RSTART + 2, RLENGTH - 3)
			$0 = substr($0, RSTART + RLENGTH)
		}
	}' "$page" | while read -r line link; do
		case $link in *://* | mailto:*) continue ;; esac
		file=${link%%#*}
		target=$page
		[ -z "$file" ] || target=$(dirname "$page")/$file
		if [ ! -e "$target" ]; then
			echo "$page:$line: there is no $file"
		elif [ "$link" != "$file" ] && ! anchors "$target" | grep -qxF -e "${link#*#}"; then
			echo "$page:$line: $target has no heading for #${link#*#}"
		fi
	done
done | finish links
