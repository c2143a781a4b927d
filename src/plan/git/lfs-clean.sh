# Git's clean filter for a sandbox without git-lfs: it stores content as git-lfs does and prints its
# pointer, so that large files are not committed and git-lfs on the host can push them.
# Reads the content from stdin; $1 is the path of the file.

if command -v git-lfs >/dev/null; then
    exec git-lfs clean -- "$1"
fi

lfs=$(git rev-parse --git-common-dir)/lfs || exit 1
mkdir -p "$lfs/tmp" && content=$(mktemp "$lfs/tmp/XXXXXX") || exit 1
trap 'rm -f "$content"' EXIT
cat >"$content" || exit 1

# A file that is still a pointer is committed unchanged.
if head -c 42 "$content" | grep -q '^version https://git-lfs.github.com/spec/v1$'; then
    cat "$content"
    exit
fi

oid=$(sha256sum <"$content" | cut -c 1-64) && size=$(wc -c <"$content") || exit 1
directory=$lfs/objects/$(printf %.2s "$oid")/$(printf %.2s "${oid#??}")
mkdir -p "$directory" && mv "$content" "$directory/$oid" || exit 1

printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n' "$oid" "$size"
