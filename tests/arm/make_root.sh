#!/usr/bin/env bash
# make_root.sh FOLDER PYTHON: a Debian system for 64-bit ARM, run by qemu's user-mode emulation.
#   FOLDER/root                    system packages, by the sources that apt is configured with here
#   FOLDER/site                    Python packages, by the index that pip is configured with here
#   FOLDER/root/usr/bin/python-aarch64   starts the system's Python under emulation
# Needs neither root privileges nor debootstrap, chroot or binfmt_misc. Does nothing if the folder is up to date.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(realpath -m "$1")
python=$2

# The system: Python with its headers, and what the wheels and the native core link to.
packages=(python3 libpython3-dev libstdc++6 libgomp1 liburing-dev)
# Tested beside what graphbox needs.
runtimes=(iree-base-runtime)

if ! command -v qemu-aarch64-static >/dev/null || ! command -v aarch64-linux-gnu-g++ >/dev/null; then
  echo "Emulation or the cross compiler is missing: apt-get install qemu-user-static g++-aarch64-linux-gnu" >&2
  exit 1
fi
requirements=$("$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")')
key=$({ cat tests/arm/make_root.sh constraints.txt; echo "$requirements"; echo "$folder"; nproc; } | sha256sum)
if [[ -e $folder/.complete && $(<"$folder/.complete") == "$key" ]]; then
  exit
fi

if [[ ! -e $folder/.made_by_make_root && -n $(ls -A "$folder" 2>/dev/null) ]]; then
  echo "expected an empty folder or one that this script made, received $folder: name another by GRAPHBOX_ARM_FOLDER" >&2
  exit 1
fi
rm -rf "$folder"/{.complete,root,site,apt}
mkdir -p "$folder"/{root/proc,site,apt/state/lists/partial,apt/cache/archives/partial}
touch "$folder/.made_by_make_root"
: >"$folder/apt/status"
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=0
  -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none -o Dir::State="$folder/apt/state"
  -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt/cache")
"${apt[@]}" update || true # a source without ARM packages; what is missing is reported by the next line
"${apt[@]}" install --yes --download-only "${packages[@]}"
for archive in "$folder"/apt/cache/archives/*.deb; do
  dpkg-deb --extract "$archive" "$folder/root"
done
libc=$(basename "$folder"/apt/cache/archives/libc6_*)
rm -r "$folder/apt"

# onnxruntime reads /proc/cpuinfo when it is imported, and crashes where it describes no ARM processor.
for ((number = 0; number < $(nproc); number++)); do
  printf '%s\n' "processor : $number" 'BogoMIPS : 50.00' \
    'Features : fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp' \
    'CPU implementer : 0x41' 'CPU architecture: 8' 'CPU variant : 0x3' 'CPU part : 0xd0c' 'CPU revision : 1' ''
done >"$folder/root/proc/cpuinfo"

# qemu looks for absolute paths in the root first. -0 lets sys.executable be this script, which starts under emulation.
interpreter=$(basename "$(readlink -f "$folder/root/usr/bin/python3")")
cat >"$folder/root/usr/bin/python-aarch64" <<WRAPPER
#!/bin/sh
export PYTHONPATH="$folder/site\${PYTHONPATH:+:\$PYTHONPATH}"
exec qemu-aarch64-static -cpu neoverse-n1 -L "$folder/root" -0 "\$0" "$folder/root/usr/bin/$interpreter" "\$@"
WRAPPER
chmod +x "$folder/root/usr/bin/python-aarch64"

# Wheels for the root's C library, libc6_2.N-..., and older ones.
[[ $libc =~ ^libc6_2\.([0-9]+) ]]
platforms=(--platform manylinux2014_aarch64)
for ((minor = 17; minor <= BASH_REMATCH[1]; minor++)); do
  platforms+=(--platform "manylinux_2_${minor}_aarch64")
done
echo "$requirements" | "$python" -m pip install -qq --target "$folder/site" --only-binary=:all: --implementation cp \
  --python-version "${interpreter#python}" "${platforms[@]}" -c constraints.txt -r /dev/stdin "${runtimes[@]}"
echo "$key" >"$folder/.complete"
