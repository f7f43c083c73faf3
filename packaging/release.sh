#!/bin/sh
# release.sh [TARGET ...]: makes the files of a release in dist/, with their hashes in dist/SHA256SUMS. These are
# Burnish's own wheel; wheels of llama-cpp-python that need no compiler, for Linux (x86-64, aarch64) and Windows, or for
# the named targets alone; and the packages of the window for this machine's processor. The set-up takes the wheels from
# there. All tools come from the package index, by their hashes; the window also needs a C compiler, Python's headers and
# the libraries that Debian's packages libxcb-cursor0, libxcb-icccm4, libxcb-keysyms1 and libxkbcommon-x11-0 hold.
# What was compiled stays in build/release for the next time.
set -eu
cd "$(dirname "$0")/.."
work=$PWD/build/release lock=$PWD/packaging/lock
"${PYTHON:-python3}" -m venv "$work/tools"
export PATH="$work/tools/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
python -m pip install --quiet --only-binary :all: --require-hashes -r "$lock/release.txt"
python -m pip download --quiet --no-deps --no-build-isolation --no-binary llama-cpp-python --require-hashes \
  -r "$lock/llama.txt" --dest "$work/source"
mkdir -p dist
rm -f dist/*.whl dist/*.deb dist/*.run dist/SHA256SUMS
python packaging/release/build_llama.py "$work"/source/llama_cpp_python-*.tar.gz "$work" dist "$@"
python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
"${PYTHON:-python3}" packaging/release/freeze.py "$work/studio" dist
(cd dist && sha256sum -- *.whl *.deb *.run >SHA256SUMS)
# Where the set-up takes a wheel from an address, it must have this hash: commit the list with the release.
grep llama_cpp_python dist/SHA256SUMS >"$lock/llama-files.txt"
cat dist/SHA256SUMS
