#!/bin/bash
# Runs a command in a bare clone of this repository on a fresh Debian 12: what a newcomer's first minute looks like.
# The machine is a chroot made by debootstrap (variant minbase) from the mirror that this machine's apt uses. It gets
# nothing of this machine but the way to the package servers: apt's sources and Acquire settings, certificates, pip's
# configuration, proxies. Only what is committed is tested.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: tools/clean_machine.sh [--sudo] [--keep] [--folder DIR] [COMMAND...]      (as root; default: ./run test)

  --sudo        run as an ordinary user who may use sudo, instead of as root
  --keep        leave the chroot behind and say where it is
  --folder DIR  make it there (an empty or new folder on a disk with 5 GB; default: a new one in $TMPDIR or /var/tmp)

examples:
  tools/clean_machine.sh
  tools/clean_machine.sh --keep ./run bench --quick
EOF
}

suite=bookworm
as_user=root
keep=no
folder=
while [[ $# -gt 0 ]]; do
  case $1 in
    --sudo) as_user=newcomer ;;
    --keep) keep=yes ;;
    --folder) folder=${2:?--folder needs a DIR}; shift ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "unknown option '$1'" >&2; usage >&2; exit 2 ;;
    *) break ;;
  esac
  shift
done
[[ $# -gt 0 ]] || set -- ./run test

if [[ $(id -u) != 0 ]]; then
  echo "expected root (debootstrap and chroot need it), got user $(id -un): run it with sudo" >&2
  exit 2
fi
missing=()
for tool in debootstrap git; do command -v "$tool" > /dev/null || missing+=("$tool"); done
[[ ${#missing[@]} == 0 ]] || { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; }

repository=$(git -C "$(dirname "$(readlink -f "$0")")" rev-parse --show-toplevel)
root=${folder:-$(mktemp -d "${TMPDIR:-/var/tmp}/clean-machine.XXXXXX")}
mkdir -p "$root"
chmod 755 "$root"  # apt downloads as a user of its own
if [[ -n $(ls -A "$root") ]]; then
  echo "expected an empty folder, got $root: name another or empty it" >&2
  exit 2
fi

# The first Debian mirror in apt's own sources, in either of its two formats.
mirror=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2> /dev/null |
  awk '/^URIs:/ && !/security/ { print $2 } /^deb / { for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) print $i }' |
  grep -E '/debian/?$' | head -1 || true)
mirror=${mirror:-http://deb.debian.org/debian}

clean_up() {
  status=$?
  if [[ $keep == yes ]]; then echo "kept: $root" >&2; else rm -rf --one-file-system "$root"; fi
  exit "$status"
}
trap clean_up EXIT

echo "== debootstrap $suite"
debootstrap --variant=minbase "$suite" "$root" "$mirror" > "$root.log" 2>&1 ||
  { tail -20 "$root.log" "$root/debootstrap/debootstrap.log" >&2 || true; exit 1; }
rm -f "$root.log"

copy_if_there() { # keeps the path
  local path
  for path in "$@"; do
    [[ -e $path ]] || continue
    mkdir -p "$root$(dirname "$path")"
    cp -rL "$path" "$root$(dirname "$path")/"
  done
}
copy_if_there /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt
# A private certificate must be here too, else installing ca-certificates would write the bundle anew without it.
copy_if_there /usr/local/share/ca-certificates
if [[ -e /etc/apt/sources.list.d/debian.sources ]]; then
  rm -f "$root/etc/apt/sources.list"
  copy_if_there /etc/apt/sources.list.d/debian.sources
else
  copy_if_there /etc/apt/sources.list
fi
apt-config dump | grep '^Acquire::' > "$root/etc/apt/apt.conf.d/90acquire" || true

# Variables that say how to reach the package servers; not those that name a file which is not in there.
environment=()
while IFS='=' read -r -d '' name value; do
  case $name in
    PIP_* | *_proxy | *_PROXY | SSL_CERT_* | REQUESTS_CA_BUNDLE | CURL_CA_BUNDLE)
      [[ $value == /* && ! -e $root$value ]] || environment+=("$name=$value") ;;
  esac
done < <(env -0)

inside() { # as root, with the kernel's file systems; the mounts end with the namespace, however this ends
  # shellcheck disable=SC2016  # the inner shell expands them
  unshare --mount --propagation private --fork --kill-child bash -c '
    set -e
    root=$1; shift
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      LANG=C.UTF-8 TERM="${TERM:-dumb}" "$@"' inside "$root" "${environment[@]}" "$@"
}

if [[ $as_user == root ]]; then
  home=/root
  command_line=("$@")
else
  home=/home/$as_user
  echo "== sudo for $as_user"
  inside DEBIAN_FRONTEND=noninteractive bash -ec "
    apt-get update -q && apt-get install -y -q --no-install-recommends sudo
    useradd --create-home --shell /bin/bash $as_user
    echo '$as_user ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/$as_user" > /dev/null
  command_line=(sudo -u "$as_user" --preserve-env "HOME=$home" "$@")
fi
git clone -q --no-hardlinks "$repository" "$root$home/gnomon"
echo "== $* (commit $(git -C "$root$home/gnomon" rev-parse --short HEAD))"
[[ $as_user == root ]] || inside chown -R "$as_user:" "$home/gnomon"
inside bash -c "cd $home/gnomon && exec \"\$@\"" inside "${command_line[@]}"
