#!/bin/sh
# The library never prints, exits, aborts, or installs signal handlers; nothing in the tree runs on
# bounded-less string functions.
set -eu
cd "$1"
bad=0
refuse() { # pattern, why, paths...
  pattern=$1 why=$2
  shift 2
  if git grep -nE "(^|[^a-zA-Z0-9_])($pattern) *\(" -- "$@" | grep -vE ':[0-9]+: *(\*|/\*|//)'; then
    echo "-> $why"
    bad=1
  fi
}
lib='core/*.c core/*.h kernels/*.c kernels/*.h checkpoints/*.c checkpoints/*.h'
set -f
# shellcheck disable=SC2086
refuse 'printf|puts|putchar|perror|vprintf|fputs|exit|_exit|abort|assert|signal|sigaction|system' \
  'the library never prints, exits, aborts or handles signals' $lib
# shellcheck disable=SC2086
refuse 'strcat|sprintf|vsprintf|gets|strtok' 'unbounded or stateful string functions' $lib
exit $bad
