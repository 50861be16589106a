#!/usr/bin/env bash
# module_layers.sh SOURCE_TREE SCRATCH: mr_module() must accept a downward dependency and refuse an
# upward one, one on a sibling and one on a module that does not exist, when configuring.
set -euo pipefail
source_tree=$1 scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch"/src/{low,left,right}
cat >"$scratch/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(layers VERSION 1 LANGUAGES C CXX)
list(APPEND CMAKE_MODULE_PATH ${SOURCE_TREE}/cmake)
set(MR_TESTS OFF)
include(flags)
include(dependencies)
include(modules)
add_subdirectory(src/low)
add_subdirectory(src/left)
add_subdirectory(src/right)
END
for module in low left right; do
    echo "int $module;" >"$scratch/src/$module/x.c"
done

# module LAYER DEPS…
write() {
    local name=$1 layer=$2
    shift 2
    echo "mr_module($name LAYER $layer SOURCES x.c DEPS $*)" >"$scratch/src/$name/CMakeLists.txt"
}
configure() {
    cmake -S "$scratch" -B "$scratch/build" -DSOURCE_TREE="$source_tree" -DBUILD_TESTING=OFF \
        -DMR_KIND=debug >"$scratch/log" 2>&1
}
refuses() { # the expected text, line breaks aside
    if configure; then
        echo "configured, but should have been refused: $1"
        exit 1
    fi
    if ! tr -s ' \n' ' ' <"$scratch/log" | grep -qF "$1"; then
        echo "refused, but not with: $1"
        cat "$scratch/log"
        exit 1
    fi
    echo "refused as it should be: $1"
}

write low 0; write left 1 low; write right 1 low
configure || { cat "$scratch/log"; exit 1; }
echo "downward dependencies are accepted"

write low 0 right
refuses "module low (layer 0) may not depend on right (layer 1)"
write low 0; write right 1 low left
refuses "module right (layer 1) may not depend on left (layer 1)"
write right 1 low nowhere
refuses "there is no module nowhere"
