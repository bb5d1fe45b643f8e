#!/bin/sh
# run.sh BUILD CC SANITIZERS: installs BUILD into a temporary prefix and builds train.c against it
# both ways, as C99 and as C++ where there is a compiler.
set -eu
build=$1 cc=$2 sanitize=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-Wall -Wextra -Werror -pedantic"
[ -z "$sanitize" ] || flags="$flags -fsanitize=$sanitize"

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
pc=$(find "$work/prefix" -name moelua.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir moelua)

# shellcheck disable=SC2046,SC2086
"$cc" -std=c99 $flags "$here/train.c" -o "$work/pc" $(pkg-config --cflags --libs moelua) \
  -Wl,-rpath,"$libdir"
"$work/pc"
echo '#include <moelua/moelua.h>' >"$work/header.cpp"
if command -v c++ >/dev/null 2>&1; then
  # shellcheck disable=SC2046,SC2086
  c++ -Wall -Wextra -Werror -fsyntax-only "$work/header.cpp" $(pkg-config --cflags moelua)
fi
readelf -d "$libdir/libmoelua.so" | grep -q 'SONAME.*libmoelua.so.0' || {
  echo "libmoelua.so has no SONAME"
  exit 1
}

cmake -S "$here/package" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="$flags" >"$work/cmake.log"
cmake --build "$work/cmake" >>"$work/cmake.log"
"$work/cmake/embed"
