#!/bin/sh
# release.sh [TARGET ... | none]: makes the files of a release in dist/, with their hashes in dist/SHA256SUMS. These are
# Burnish's own wheel; wheels of llama-cpp-python that need no compiler, for Linux (x86-64, aarch64) and Windows, for the
# named targets alone, or for none; and the packages of the window for this machine's processor. The set-up takes the
# wheels from there. All tools come from the package index, by their hashes; the window also needs a C compiler, Python's
# headers and the libraries that Debian's packages libxcb-cursor0, libxcb-icccm4, libxcb-keysyms1 and libxkbcommon-x11-0
# hold. What was compiled stays in build/release for the next time.
set -eu
cd "$(dirname "$0")/.."
work=$PWD/build/release lock=$PWD/packaging/lock
"${PYTHON:-python3}" -m venv "$work/tools"
export PATH="$work/tools/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
python -m pip install --quiet --only-binary :all: --require-hashes -r "$lock/release.txt"
mkdir -p dist
rm -f dist/*.whl dist/*.deb dist/*.run dist/SHA256SUMS
if [ "${1:-}" != none ]; then
  python -m pip download --quiet --no-deps --no-build-isolation --no-binary llama-cpp-python --require-hashes \
    -r "$lock/llama.txt" --dest "$work/source"
  python packaging/release/build_llama.py "$work"/source/llama_cpp_python-*.tar.gz "$work" dist "$@"
fi
python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
"${PYTHON:-python3}" packaging/release/freeze.py "$work/studio" dist
(cd dist && sha256sum -- *.whl *.deb *.run >SHA256SUMS)
# Where the set-up takes a wheel from an address, it must have this hash: commit the list with the release.
if [ "${1:-}" != none ]; then grep llama_cpp_python dist/SHA256SUMS >"$lock/llama-files.txt"; fi
cat dist/SHA256SUMS
