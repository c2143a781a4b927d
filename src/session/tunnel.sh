# Runs in the Podman machine. Set before: landing, directory, socket, limit (polls of 50 ms).
umask 077
trap 'rm -rf "$directory" "$landing"' EXIT
trap 'exit 0' HUP INT TERM PIPE
# Sockets of sandboxes whose shell here is gone (R7.3). Whether another user's shell lives cannot be told from here.
for owner in /tmp/sandpen-*/owner; do
    if [ -O "$owner" ] && ! kill -0 "$(cat "$owner")" 2>/dev/null; then
        rm -rf "${owner%/owner}"
    fi
done
# And those of launches that ended before this script could run: sshd leaves them, and none is of use for as long as this.
find /tmp -maxdepth 1 -type s -name 'sandpen-*.sock' -mmin +60 -exec rm -f {} + 2>/dev/null
mkdir -m 711 "$directory" || exit 1
# Complete the moment it has its name: another sandbox that starts now must not take it for a dead one's.
echo $$ >"$directory/new" && mv "$directory/new" "$directory/owner" || exit 1
while [ ! -S "$landing" ]; do
    limit=$((limit - 1))
    [ "$limit" -gt 0 ] || exit 1
    sleep 0.05
done
mv "$landing" "$socket" && chmod 666 "$socket" && echo ready || exit 1
cat >/dev/null
