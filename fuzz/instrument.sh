#!/bin/bash
# Stands before the compiler of our crates (cargo's RUSTC_WORKSPACE_WRAPPER): adds the coverage that libFuzzer steers by,
# without the sanitizers that only a nightly compiler has. What runs while it is built is left as it is.
case " $* " in
*" build_script_build "* | *" proc-macro "*) exec "$@" ;;
esac
exec "$@" --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
