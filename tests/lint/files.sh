#!/bin/sh
# No source file over 600 lines, no tracked file over 3 MB, no line over the limit.
set -eu
cd "$1"
bad=0
for file in $(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.lua' '*.py' '*.sh' bootstrap); do
  lines=$(wc -l <"$file")
  if [ "$lines" -gt 600 ]; then
    echo "$file: $lines lines, 600 are the limit"
    bad=1
  fi
done
limit() { # columns, patterns...
  columns=$1
  shift
  for file in $(git ls-files "$@"); do
    awk -v f="$file" -v n="$columns" 'length($0) > n {print f ":" NR ": over " n " columns"; e = 1}
      END {exit e}' "$file" || bad=1
  done
}
limit 100 '*.c' '*.h'
limit 80 '*.lua'
for file in $(git ls-files); do
  [ -f "$file" ] || continue
  if [ "$(wc -c <"$file")" -gt 3000000 ]; then
    echo "$file: over 3 MB"
    bad=1
  fi
done
exit $bad
