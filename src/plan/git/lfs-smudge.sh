# Git's smudge filter for a sandbox without git-lfs: it replaces a pointer by its content, so that files
# checked out inside are complete if the host has fetched them. Other pointers stay as they are.
# Reads the pointer from stdin; $1 is the path of the file.

if command -v git-lfs >/dev/null; then
    exec git-lfs smudge -- "$1"
fi

pointer=$(mktemp) || exit 1
trap 'rm -f "$pointer"' EXIT
cat >"$pointer" || exit 1

oid=$(sed -n 's/^oid sha256:\([0-9a-f]\{64\}\)$/\1/p' "$pointer" | head -n 1)
objects=$(git rev-parse --git-common-dir)/lfs/objects
object=$objects/$(printf %.2s "$oid")/$(printf %.2s "${oid#??}")/$oid

if [ -n "$oid" ] && [ -f "$object" ]; then
    cat "$object"
else
    cat "$pointer"
fi
