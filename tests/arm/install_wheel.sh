#!/usr/bin/env bash
# install_wheel.sh FOLDER PYTHON: build the wheel for 64-bit ARM from this checkout, and install it into FOLDER/site.
# Leaves the C++ tests in FOLDER/build. What has not changed is not compiled again.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(realpath "$1")
python=$2

# A wheel is tagged with the version of the Python that builds it.
built_by=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
runs_on=$(basename "$(readlink -f "$folder/root/usr/bin/python3")")
if [[ $built_by != "$runs_on" ]]; then
  echo "expected $runs_on, as in $folder/root, received $built_by: make a .venv of it, make PYTHON=$runs_on ..." >&2
  exit 1
fi

export GRAPHBOX_ARM_FOLDER=$folder
export _PYTHON_HOST_PLATFORM=linux-aarch64 # for the tag; the suffix is that of the root's Python
export SETUPTOOLS_EXT_SUFFIX=.cpython-3${runs_on#python3.}-aarch64-linux-gnu.so
rm -rf "$folder/dist"
"$python" -m pip wheel -q . --no-build-isolation --no-deps -w "$folder/dist" -Cbuild-dir="$folder/build" \
  -Ccmake.toolchain-file="$PWD/graphbox/csrc/aarch64.cmake" -Ccmake.define.GRAPHBOX_BUILD_TESTS=ON
rm -rf "$folder"/site/graphbox "$folder"/site/graphbox-*
"$python" -m pip install -qq --target "$folder/site" --upgrade --no-deps --only-binary=:all: --implementation cp \
  --python-version "${runs_on#python}" --platform linux_aarch64 "$folder"/dist/*.whl
