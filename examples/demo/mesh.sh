# A part of the demonstration, read by `run`: three servers that share a registry, 300 models, and room for 100 of them. Requests for
# some models come often, for most of them seldom; one server is killed midway. What asks is mesh.py, which compares each answer with
# what that model has to say.
mesh_models=300 mesh_seconds=10

# start_peer NAME: sets http and pid
start_peer() {
    rm -f "$work/ports"
    CACHE_DIRECTORY="$work/cache" "$millrace" serve --mesh="file:$work/registry" --mesh-id="$1" --mesh-capacity=40M --mesh-loaders=2 \
        --model-repository="$work/many" --http-port=0 --grpc-port=0 --metrics-port=0 --print-ports=json \
        >"$work/ports" 2>"$work/log" &
    pid=$!
    wait_ready "$pid" 1200
}

mesh() {
    title "Three servers as one cache of $mesh_models models, with room for 100: one server is killed midway"
    python3 "$here/mesh.py" "$mesh_models" "$work/many"
    shown "millrace serve --mesh=file:registry --mesh-capacity=40M --model-repository=many    # three times"
    local name peers=() pids=()
    for name in a b c; do
        start_peer "$name"
        peers+=("$name=$http")
        pids+=("$pid")
    done
    echo
    python3 "$here/mesh.py" "$mesh_models" "$mesh_seconds" "${peers[@]}" &
    local asks=$!
    sleep $((mesh_seconds / 2))
    kill_at_once "${pids[0]}"
    shown "kill -KILL ${pids[0]}    # a, which has served the others the registry"
    wait "$asks" || die "mesh: not all requests were answered"
    echo
    shown "millrace mesh status"
    "$millrace" mesh status --url "$http" --output table | sed 's/^/  /' # of c, which started last
    kill -TERM "${pids[@]:1}"
    for pid in "${pids[@]:1}"; do
        wait "$pid" || die "mesh: a server ended with status $?"
    done
}
