#!/bin/sh
# Installs the Burnish studio @VERSION@ for one person, without root, and starts it.
#   sh burnish-@VERSION@-linux-MACHINE.run              installs and starts it
#   sh burnish-@VERSION@-linux-MACHINE.run --no-start   installs it
#   ~/.local/lib/burnish/remove.sh                removes it again; runs, models and the engine stay
set -eu
fail() { echo "Burnish was not installed: $1" >&2; exit 1; }
command -v xz >/dev/null || fail "the program xz is missing (Debian and Ubuntu: package xz-utils)."
base=$HOME/.local home=$HOME/.local/lib/burnish share=${XDG_DATA_HOME:-$HOME/.local/share}
mkdir -p "$base/lib" "$base/bin" "$share" || fail "$base cannot be written."
new=$(mktemp -d "$base/lib/.burnish.XXXXXX")
trap 'rm -rf "$new"' EXIT
mkdir "$new/files"
tail -n +@LINES@ "$0" >"$new/packed" || fail "the disk of $base is full."
sum=$(sha256sum "$new/packed" | cut -d' ' -f1)
[ "$sum" = @SHA256@ ] || fail "this file is damaged or incomplete. Download it again."
tar -xJf "$new/packed" -C "$new/files" || fail "the disk of $base is full."
entry=$new/files/share/applications/burnish.desktop
sed -i -e "s|^Exec=burnish-studio|Exec=\"$home/program/burnish-studio\"|" -e '/^TryExec=/d' "$entry"
# The version before is put aside and goes with the folder of the set-up.
[ ! -e "$home" ] || mv "$home" "$new/before"
mv "$new/files" "$home"
ln -sf "$home/program/burnish-studio" "$base/bin/burnish-studio"
cp -R "$home/share/." "$share"
sh "$home/remove.sh" --refresh
rm -rf "$new"
trap - EXIT
echo "Burnish @VERSION@ is installed in $home. It is in the menu, and starts by: $base/bin/burnish-studio"
[ "${1:-}" = --no-start ] || exec "$home/program/burnish-studio"
exit 0
