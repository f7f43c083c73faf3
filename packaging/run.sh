#!/bin/sh
# Finds a Python and hands over to bootstrap.py, which does all the rest.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
for python in python3.13 python3.12 python3.11 python3.14 python3 python; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' >/dev/null 2>&1; then
    exec "$python" "$here/bootstrap.py" run "$@"
  fi
done
echo "Burnish needs Python 3.11 or newer, and none was found on the PATH. Install one (Debian, Ubuntu: python3 python3-venv; Fedora: python3.13) and start again." >&2
exit 12
