# Runs in the Podman machine. The caller sets $landing, $directory, $socket and $limit (the number
# of polls of 50 ms).
umask 077
trap 'rm -rf "$directory" "$landing"' EXIT
trap 'exit 0' HUP INT TERM PIPE
# Remove the directories of sandboxes whose script has exited (R7.3). Those of other users are left
# alone, because `kill -0` fails for their processes.
for owner in /tmp/sandpen-*/owner; do
    if [ -O "$owner" ] && ! kill -0 "$(cat "$owner")" 2>/dev/null; then
        rm -rf "${owner%/owner}"
    fi
done
# Remove sockets that sshd left because the launch ended before this script ran. A launch in
# progress needs its socket for much less than an hour.
find /tmp -maxdepth 1 -type s -name 'sandpen-*.sock' -mmin +60 -exec rm -f {} + 2>/dev/null
mkdir -m 711 "$directory" || exit 1
# Rename the complete file: another sandbox that starts now would remove a directory with an empty
# `owner`.
echo $$ >"$directory/new" && mv "$directory/new" "$directory/owner" || exit 1
while [ ! -S "$landing" ]; do
    limit=$((limit - 1))
    [ "$limit" -gt 0 ] || exit 1
    sleep 0.05
done
mv "$landing" "$socket" && chmod 666 "$socket" && echo ready || exit 1
cat >/dev/null
