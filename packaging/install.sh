#!/bin/sh
# ./install.sh [PREFIX]   installs what this archive holds: below /usr/local as root, else below ~/.local.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ]; then prefix=${1:-/usr/local}; else prefix=${1:-$HOME/.local}; fi
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)

mkdir -p "$prefix/bin"
# A rename, so that a running server keeps its file.
cp "$here/bin/fourplane" "$prefix/bin/.fourplane.new"
mv -f "$prefix/bin/.fourplane.new" "$prefix/bin/fourplane"
for part in lib/fourplane share; do
  [ ! -d "$here/$part" ] || { mkdir -p "$prefix/$part" && cp -R "$here/$part/." "$prefix/$part/"; }
done
echo "installed $prefix/bin/fourplane"
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "hint: add it to your path: export PATH=\"$prefix/bin:\$PATH\"" ;; esac

if [ "$(id -u)" = 0 ]; then
  mkdir -p "$prefix/lib/systemd/system"
  for unit in "$here"/lib/systemd/system/*.service; do
    sed "s|/usr/bin/|$prefix/bin/|" "$unit" >"$prefix/lib/systemd/system/${unit##*/}"
  done
  echo "start it now and at each start of the machine: systemctl daemon-reload && systemctl enable --now fourplane"
else
  echo "start it: fourplane up --detach"
fi
