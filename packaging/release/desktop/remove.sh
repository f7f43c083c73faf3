#!/bin/sh
# Removes the Burnish studio from this person's folders. Runs, models and the engine stay where they are.
set -eu
home=$HOME/.local/lib/burnish share=${XDG_DATA_HOME:-$HOME/.local/share}
refresh() {
  for program in update-desktop-database:applications update-mime-database:mime gtk-update-icon-cache:icons/hicolor; do
    if command -v "${program%%:*}" >/dev/null; then "${program%%:*}" "$share/${program#*:}" >/dev/null 2>&1 || true; fi
  done
}
remove() {
  (cd "$home/share" && find . -type f) | while read -r file; do rm -f "$share/$file"; done
  rm -f "$HOME/.local/bin/burnish-studio"
  rm -rf "$home"
  refresh
  echo "Burnish was removed. Your runs and models are in $share/burnish."
}
# The shell reads this line whole before the file is gone.
if [ "${1:-}" = --refresh ]; then refresh; else remove; exit 0; fi
