# The last part of the demonstration, read by `run`: a table of 200,000 rows through two servers. One server is killed
# midway, then the job, which is run again and must end with each row once and each answer right.
# The table has the demonstration's digits, 640 different images: those of examples/data, 16 of each, with another
# pixel inverted in each.
rows=200000 different=640

images() {
    rows digits | sed 's/.*\[\(.*\)\].*/\1/' | awk -v different="$different" '
        {image[NR - 1] = $0}
        END {
            for (i = 0; i < different; i++) {
                n = split(image[i % NR], p, ", *")
                k = int(i / NR) * 3 + 10
                p[k] = 16 - p[k]
                text = p[1]
                for (j = 2; j <= n; j++) text = text "," p[j]
                print text
            }
        }'
}

make_table() {
    images >"$work/images"
    awk -v rows="$rows" '{image[NR - 1] = $0}
        END {for (i = 0; i < rows; i++) print "{\"id\":" i ",\"image\":[" image[i % NR] "]}"}' \
        "$work/images" >"$work/digits.jsonl"
    say "a table of $rows rows: $(head -c 60 "$work/digits.jsonl")...]}"
}

# What the model says when it is asked outside of the job: expected.csv
ask_directly() {
    local from
    echo 'image,digit,probabilities' >"$work/expected.csv"
    for ((from = 1; from <= different; from += 64)); do
        sed -n "$from,$((from + 63))s/.*/{\"image\":[&]}/p" "$work/images" >"$work/some"
        "$millrace" infer -m digits --url "$1" --protocol binary --output plain - <"$work/some" >"$work/answer" ||
            die "digits: a request failed"
        paste -d, <(seq $((from - 1)) $((from + 62))) <(output digit <"$work/answer") \
            <(output probabilities <"$work/answer" | paste -sd ',,,,,,,,,\n' | sed 's/.*/"[&]"/')
    done >>"$work/expected.csv"
}

start_host() { # sets `host` and `host_pid`
    rm -f "$work/ports"
    "$millrace" serve --model-repository="$top/examples/models" --load-model=digits --model-control-mode=explicit \
        --http-port=0 --grpc-port=0 --metrics-port=0 --print-ports=json >"$work/ports" 2>"$work/log" &
    host_pid=$!
    wait_ready "$host_pid"
    host=$http
}

# Waits until the job has COUNT files of results. Without a pause: on a fast machine the whole job takes
# a third of a second.
parts() {
    local found=() end=$((SECONDS + 60))
    while found=("$work"/job/parts/*.parquet) && ((${#found[@]} < $1)); do
        kill -0 "$job" 2>/dev/null || die "the job ended before it was killed: $(tail -n 3 "$work/job.log")"
        ((SECONDS < end)) || die "the job does not come forward: $(tail -n 3 "$work/job.log")"
    done
}

# Ends one of ours, at once. `wait` keeps the shell from telling that it was killed.
kill_at_once() { { kill -KILL "$1" && wait "$1"; } 2>/dev/null || true; }

batch() {
    title "A table of $rows rows through two servers, both the job and a server killed"
    export MILLRACE_DUCKDB=${MILLRACE_DUCKDB:-$(dirname "$millrace")/../lib/millrace/libduckdb.so}
    [[ -e $MILLRACE_DUCKDB ]] || MILLRACE_DUCKDB=libduckdb.so
    if ! "$here/sql" 'select 1' >/dev/null 2>&1; then
        say "left out: DuckDB's library, which the results are looked at with, is not here (tools/setup fetches it)"
        return
    fi
    local first first_pid second second_pid answer again
    make_table
    start_host; first=$host first_pid=$host_pid
    start_host; second=$host second_pid=$host_pid
    ask_directly "$second"
    local command=(batch run --input "$work/digits.jsonl" --model digits --hosts "$first,$second" --keep id
        --batch-rows 64 --part-bytes 256KiB --output "$work/job")
    shown "millrace ${command[*]//$work\//}"
    "$millrace" "${command[@]}" 2>"$work/job.log" &
    job=$!
    parts 4
    kill_at_once "$first_pid"
    shown "kill -KILL $first_pid    # the first server"
    parts 8
    kill_at_once "$job"
    shown "kill -KILL $job    # the job"
    [[ ! -e $work/job/_SUCCESS ]] || die "the job was done before it was killed"
    say "the same command once more, although only one of the two servers is left:"
    "$millrace" "${command[@]}" 2>"$work/job.log" || die "the job failed: $(tail -n 3 "$work/job.log")"
    cat >"$work/query" <<EOF
select count(*), count(distinct id), count(*) filter (r.digit = e.digit
       and array_distance(r.probabilities::float[10], e.probabilities::float[10]) < 1e-5)
from '$work/job/parts/*.parquet' r join '$work/expected.csv' e on r.id % $different = e.image
EOF
    sed "s|$work/||g; s/^/  $dim/; s/\$/$off/" "$work/query"
    answer=$("$here/sql" "$(cat "$work/query")") || die "the results cannot be read"
    printf '  %s\n' "$answer" | awk '{print "  " $1 " rows, " $2 " different keys, " $3 " answers as the model gives them outside of the job"}'
    [[ $answer == "$rows"$'\t'"$rows"$'\t'"$rows" ]] || die "rows were lost, doubled or have wrong answers"
    [[ -z $(cat "$work"/job/dlq/* 2>/dev/null) && -e $work/job/_SUCCESS ]] || die "there are dead letters"
    again=$(sed 's/.*"this_start":{"rows":\([0-9]*\).*/\1/' "$work/job/report.json")
    ((again < rows)) || die "the job began anew"
    say "none lost, none doubled: $((rows - again)) rows were done before the kill, $again after it"
    kill -TERM "$second_pid"
    wait "$second_pid" || die "the second server did not end well"
}
