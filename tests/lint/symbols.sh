#!/bin/sh
# Symbols that libmoelua.so exports = functions that the public headers declare; and the library has
# no mutable data of its own.
set -eu
cd "$1"
lib=$2/libmoelua.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat core/include/moelua/*.h | tr '\n' ' ' | grep -oE 'MOE_API [^;(]*\(' | grep -oE 'moe_[a-z0-9_]+ *\(' |
  tr -d ' (' | sort -u >"$work/declared"
nm -D --defined-only "$lib" | awk '$2 ~ /[TDBR]/ {print $3}' | sort -u >"$work/exported"
diff "$work/declared" "$work/exported" >"$work/diff" || {
  echo "< declared only, > exported only:"
  cat "$work/diff"
  exit 1
}
[ -s "$work/declared" ]
objdump -t "$lib" | awk '$(NF-2) == ".data" || $(NF-2) == ".bss" {print $NF}' |
  grep -vE '^(\.data|\.bss|completed\.0|__dso_handle|__TMC_END__|_edata|_end|__bss_start)$' \
    >"$work/mutable" || true
if grep -vE 'asan|ubsan|tsan|odr' "$work/mutable"; then
  echo "the library has mutable global data"
  exit 1
fi
