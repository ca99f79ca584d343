#!/bin/bash
# Runs the tests of the core crate, and the native functions under stress, with the address sanitizer.
#
#   tools/sanitize.sh            both
#   tools/sanitize.sh core       the tests of the core crate
#   tools/sanitize.sh binding    tests of rows, folders and re-entrancy, from Python
#
# The stable toolchain ships the sanitizer, and takes its flag where RUSTC_BOOTSTRAP is set. The library that Python loads
# finds the sanitizer only in a process that was started with it: its runtime, which rustc links into programs alone, is taken
# from gcc (libasan). Python and torch leak at exit by design, so that leaks are not looked for there.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
python=${PYTHON:-$PWD/.venv/bin/python}
target=$(rustc -vV | sed -n 's/^host: //p')
build=$PWD/target/sanitize
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes" CARGO_TARGET_DIR=$build
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 PYO3_PYTHON=$python

if [ "$what" != binding ]; then
    # What a fork inherits is left alone, which reads as a leak.
    ASAN_OPTIONS=detect_leaks=0 PROPTEST_CASES=${PROPTEST_CASES:-32} cargo test --locked --target "$target" -p tensordict-core --lib --tests
fi
if [ "$what" != core ]; then
    runtime=$(gcc -print-file-name=libasan.so)
    [ -e "$runtime" ] || { echo "there is no libasan beside gcc" >&2; exit 1; }
    RUSTFLAGS="$RUSTFLAGS -Zexternal-clangrt" cargo build --locked --release --target "$target" \
        -p tensordict-python --features pyo3/extension-module
    package=$build/package
    rm -rf "$package"
    mkdir -p "$package"
    cp -r python/tensordict "$package"
    rm -f "$package"/tensordict/_core*.so
    cp "$build/$target/release/lib_core.so" "$package/tensordict/_core.so"
    unset RUSTFLAGS RUSTC_BOOTSTRAP
    # libstdc++ comes with it, so that the exceptions of torch find their way.
    export LD_PRELOAD="$(readlink -f "$runtime") $(readlink -f "$(gcc -print-file-name=libstdc++.so)")"
    export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_segv=1:log_path=$build/report
    export PYTHONMALLOC=malloc PYTHONPATH=$package TD_NUM_THREADS=4
    rm -f "$build"/report.*
    "$python" -m pytest -p no:cacheprovider -n 0 -q \
        tests/properties/test_rows.py tests/faults/test_reentrancy.py tests/faults/test_folders.py \
        tests/ops/test_rows.py tests/data/test_padding.py
    if compgen -G "$build/report.*" >/dev/null; then
        cat "$build"/report.*
        exit 1
    fi
fi
