#!/bin/sh
# hang.sh HOW MPIRUN... PROGRAM: the job must end, not well, and say once who is behind.
set -eu
how=$1
shift
out=$("$@" "$how" 2>&1) && {
  echo "status 0"
  exit 1
}
echo "$out"
want() {
  echo "$out" | grep -qE "$1" || {
    echo "-> not there: $1"
    exit 1
  }
}
coordinates='tp 1, cp 0, dp 1, pp 0'
case "$how" in
  dead) want 'rank 3 .*signal 9' && exit 0 ;;
esac
[ "$(echo "$out" | grep -c '^told: ')" = 1 ]
want '^told: rank [0-3] \(tp [01], cp 0, dp [01], pp 0\) has waited 1 s in '
case "$how" in
  absent)
    want 'in all-reduce of group world \(4 ranks\) for rank 3$'
    want "^rank 3 \($coordinates\) is in no transfer; its last was all-reduce of group world"
    want "^the last transfers of rank 3 \($coordinates\), process [0-9]+:"
    want '^  0  all-reduce of group world \(4 ranks\), 24 bytes, begun .* ago, took '
    ;;
  chain)
    want "^rank 3 \($coordinates\) is in no transfer"
    want "^the last transfers of rank 3"
    ;;
  message) want "^rank 3 \($coordinates\) is in no transfer" ;;
  late)
    want 'in all-reduce of group world \(4 ranks\) for rank 3$'
    want '^  1  all-reduce of group world \(4 ranks\), [0-9]+ bytes, begun .* ago, not ended'
    ;;
  circle)
    want '^rank [0-3] .* waits in all-reduce of group (tp|dp) \(2 ranks\), begun '
    want '^the last transfers of rank'
    ;;
esac
