#!/bin/sh
# release.sh [TARGET ...]: makes the files of a release in dist/, with their hashes in dist/SHA256SUMS. These are
# Burnish's own wheel, and wheels of llama-cpp-python that need no compiler: for Linux (x86-64, aarch64) and Windows, or
# for the named targets alone. The set-up takes them from there. All tools come from the package index, by their hashes.
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
rm -f dist/*.whl dist/SHA256SUMS
python packaging/release/build_llama.py "$work"/source/llama_cpp_python-*.tar.gz "$work" dist "$@"
python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
(cd dist && sha256sum -- *.whl >SHA256SUMS)
# Where the set-up takes a wheel from an address, it must have this hash: commit the list with the release.
grep llama_cpp_python dist/SHA256SUMS >"$lock/llama-files.txt"
cat dist/SHA256SUMS
