# A part of the demonstration, read by `run`: a folder of MLServer with a model of scikit-learn. MLServer's packages are taken from
# build/venv-mlserver, where tools/setup --test puts them, or installed into build/venv-demo, once. Where they
# cannot be installed, the demonstration goes on without this part.
folder=$top/examples/mlserver

packages_in() { "$1" -c 'import mlserver_sklearn' 2>/dev/null; }

# A python3 with MLServer's packages: sets `packaged`, or fails.
environment() {
    local base venv=$top/build/venv-demo
    for packaged in "$top/build/venv-mlserver/bin/python3" "$venv/bin/python3"; do
        packages_in "$packaged" && return
    done
    say "the first time, MLServer and scikit-learn are installed into build/venv-demo: 400 MB, which takes a minute or more"
    base=$(interpreter)
    rm -rf "$venv"
    shown "python3 -m venv build/venv-demo && build/venv-demo/bin/pip install -r examples/mlserver/requirements.txt"
    "$base" -m venv "$venv" >"$work/pip.log" 2>&1 &&
        timeout 600 "$packaged" -m pip install -q --disable-pip-version-check --only-binary=:all: --retries 1 \
            -r "$folder/requirements.txt" >>"$work/pip.log" 2>&1 && packages_in "$packaged"
}

mlserver() {
    title "A folder of MLServer with a model of scikit-learn, as it is"
    if ! environment; then
        say "left out, since the packages cannot be installed: $(grep -v '^ *$' "$work/pip.log" | tail -n 1 | cut -c 1-160)"
        return
    fi
    local python=$packaged models=$work/mlserver
    mkdir "$models"
    cp -R "$folder/digits-svm" "$models"
    "$python" "$folder/train.py" "$models/digits-svm/model.joblib" >"$work/log" 2>&1 || die "digits-svm: the training failed"
    sed 's/^/    /' "$models/digits-svm/model-settings.json"
    echo
    rm -f "$work/ports"
    shown "millrace mlserver start examples/mlserver --python=${python#"$top/"}"
    "$millrace" mlserver start "$models" --python="$python" --http-address=127.0.0.1 --http-port=0 --grpc-port=0 --metrics-port=0 \
        --print-ports=json >"$work/ports" 2>"$work/log" &
    server=$!
    wait_ready "$server" 2400 # the imports of scikit-learn take seconds
    ask_digits_svm
    stop_server
}

ask_digits_svm() {
    local images
    questions digits digit >"$work/svm.rows"
    truth digits digit >"$work/svm.truth"
    images=$(sed 's/.*\[\(.*\)\].*/\1/' "$work/svm.rows" | paste -sd,)
    printf '{"inputs":[{"name":"image","datatype":"FP64","shape":[%d,64],"data":[%s]}]}' \
        "$(wc -l <"$work/svm.rows")" "$images" >"$work/svm.json"
    shown "curl http://$http/v2/models/digits-svm/infer -d @images.json"
    curl -fsS "http://$http/v2/models/digits-svm/infer" -H 'Content-Type: application/json' -d "@$work/svm.json" \
        >"$work/svm.answer" || die "digits-svm: the request failed"
    say "$(head -c 300 "$work/svm.answer")"
    sed 's/.*"data":\[\([^]]*\)\].*/\1/' "$work/svm.answer" | tr -d ' ' | tr ',' '\n' >"$work/svm.digit"
    check digits-svm "$work/svm.truth" "$work/svm.digit" 95
}
