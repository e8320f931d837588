#!/bin/bash
# The C++ tests of the PyTorch-free parts under the address, undefined-behaviour
# and thread sanitizers.
#   usage: tests/sanitize.sh [address] [thread]      (both by default)
# FL_SANITIZE_DIR: where the builds go (default build-sanitize).  CMAKE_ARGS: more for cmake.
set -euo pipefail
cd "$(dirname "$0")/.."
root=${FL_SANITIZE_DIR:-$PWD/build-sanitize}
suppressions=$PWD/tests/sanitizers

# libgomp synchronises by futexes that ThreadSanitizer does not see, so each of its
# parallel regions would look like a race: with one thread there are none.
export OMP_NUM_THREADS=1 FL_SIM_THREADS=1
export ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1:abort_on_error=0
export LSAN_OPTIONS=suppressions=$suppressions/leak.txt:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=suppressions=$suppressions/thread.txt:halt_on_error=1:second_deadlock_stack=1:die_after_fork=0

for kind in "${@:-address thread}"; do
  for one in $kind; do
    case $one in
      address) sanitizers=address,undefined ;;
      thread) sanitizers=thread ;;
      *) echo "usage: $0 [address] [thread]" >&2; exit 2 ;;
    esac
    build=$root/$one
    cmake -G "${CMAKE_GENERATOR:-Unix Makefiles}" -S . -B "$build" -DFL_BRIDGE=OFF -DFL_SANITIZE=$sanitizers \
      -DFL_PACKAGE_DIR="$build/package" ${CMAKE_ARGS:-} > "$root-$one.log" 2>&1 || { cat "$root-$one.log"; exit 1; }
    programs=$(cd tests/cpp && ls *_test.cpp | sed 's/\.cpp$//')
    cmake --build "$build" -j "${FL_JOBS:-2}" --target $programs >> "$root-$one.log" 2>&1 ||
      { tail -50 "$root-$one.log"; exit 1; }
    for program in $programs; do
      echo "== $program ($sanitizers)"
      timeout 900 "$build/tests/$program"
    done
  done
done
