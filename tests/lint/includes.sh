#!/bin/sh
# Includes climb one ladder: base, kernels.h, tensor, comm, mesh, layers, (pipe optim data),
# (plan train), checkpoints. Headers of other libraries appear only in files that are named for them.
set -eu
cd "$1"
bad=0

level() { # of a module's folder
  case "$1" in
    base) echo 0 ;;
    kernels) echo 1 ;;
    tensor) echo 2 ;;
    comm) echo 3 ;;
    mesh) echo 4 ;;
    layers) echo 5 ;;
    pipe | optim | data) echo 6 ;;
    plan | train) echo 7 ;;
    checkpoints) echo 8 ;;
    *) echo 99 ;;
  esac
}

module() { # of a path from the top, core/ stripped
  echo "${1#core/}" | cut -d/ -f1
}

for file in $(git ls-files 'core/*.[ch]' 'kernels/*.[ch]' 'checkpoints/*.[ch]' |
  grep -v '^core/include/'); do
  mine=$(level "$(module "$file")")
  for included in $(sed -n 's/^#include "\([a-z_0-9]*\/[a-z_0-9/]*\.h\)".*/\1/p' "$file"); do
    case "$included" in moelua/*) continue ;; esac
    theirs=$(level "$(module "$included")")
    if [ "$theirs" -gt "$mine" ]; then
      echo "$file includes $included: against the ladder"
      bad=1
    fi
  done
done

only() { # header pattern, file pattern: who may include it
  for file in $(git grep -lE "^#include <$1>" -- '*.c' '*.h' '*.cu' | grep -vE "$2" || true); do
    echo "$file includes <$1>: only files matching $2 may"
    bad=1
  done
}
only 'mpi\.h' '_mpi'
only 'nccl\.h' '_nccl'
only 'hdf5\.h' 'hdf5'
only '(cblas|dnnl[a-z_.]*)\.h' '(dnnl|blas)'
only 'cuda[a-z_]*\.h' '(cuda|\.cu$)'
only 'jansson\.h' '(json|tokenizer|prepare|safetensors|hf_config)'
exit $bad
