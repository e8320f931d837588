#!/bin/bash
# The C++ tests of the PyTorch-free parts under the address, undefined-behaviour
# and thread sanitizers.
#   usage: tests/sanitize.sh [address] [thread] [TEST...]     all by default; TEST is allocator_test, ...
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

kinds=() tests=()
for word in "$@"; do
  case $word in
    address|thread) kinds+=("$word") ;;
    *_test) tests+=("$word") ;;
    *) echo "usage: $0 [address] [thread] [TEST...]" >&2; exit 2 ;;
  esac
done
[ ${#kinds[@]} -gt 0 ] || kinds=(address thread)
[ ${#tests[@]} -gt 0 ] || tests=($(cd tests/cpp && ls *_test.cpp | sed 's/\.cpp$//'))

mkdir -p "$root"
for kind in "${kinds[@]}"; do
  sanitizers=$kind
  [ "$kind" = address ] && sanitizers=address,undefined
  build=$root/$kind log=$root/$kind.log
  cmake -S . -B "$build" -DFL_BRIDGE=OFF -DFL_SANITIZE=$sanitizers -DFL_PACKAGE_DIR="$build/package" \
    ${CMAKE_ARGS:-} > "$log" 2>&1 || { cat "$log"; exit 1; }
  cmake --build "$build" -j "${FL_JOBS:-2}" --target "${tests[@]}" >> "$log" 2>&1 || { tail -50 "$log"; exit 1; }
  for test in "${tests[@]}"; do
    echo "== $test ($sanitizers)"
    timeout 900 "$build/tests/$test"
  done
done
