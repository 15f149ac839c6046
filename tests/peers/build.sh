#!/bin/sh
# Builds the stock clients' programs into .cache/bin, next to this file:
# peer-go, peer-python, peer-rust. Name some of go, python, rust for these
# alone. Needs go, python3 (with venv) and cargo, and each one's own registry.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=$here/.cache
mkdir -p "$cache/bin"

build_go() {
    (cd "$here/go" && CGO_ENABLED=0 go build -trimpath -o "$cache/bin/peer-go" .)
}

build_python() {
    python3 -m venv "$cache/python"
    "$cache/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/python/requirements.txt"
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$cache/python/bin/python" "$here/python/peer.py" > "$cache/bin/peer-python"
    chmod +x "$cache/bin/peer-python"
}

# The stock Rust client compiles its own proto files with protoc; a crate
# brings one, so that none need be installed.
build_rust() {
    cd "$here/rust"
    export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cache/rust}"
    PROTOC=$(cargo run --quiet --locked --package protoc)
    export PROTOC
    cargo build --quiet --locked --package peer
    cp "$CARGO_TARGET_DIR/debug/peer" "$cache/bin/peer-rust"
    cd "$here"
}

for which in ${*:-go python rust}; do
    case $which in
        go | python | rust) echo "building peer-$which"; "build_$which" ;;
        *) echo "unknown client: $which" >&2; exit 2 ;;
    esac
done
