# A part of the demonstration, read by `run`: a workflow from the bytes of an image to a word, and an endpoint that gives a
# part of the requests to a new version of it, which has a fault, until the server notices.

# The held-out digits as black and white PNG files of 64 x 64 pixels: png_files FOLDER
png_files() {
    questions digits digit | python3 -c '
import json, pathlib, struct, sys, zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

for number, line in enumerate(sys.stdin):
    ink = json.loads(line)["image"]
    row = lambda r: bytes(255 - ink[8 * r + c // 8] * 255 // 16 for c in range(64))
    data = zlib.compress(b"".join(b"\0" + row(r // 8) for r in range(64)))
    png = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0)) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    pathlib.Path(sys.argv[1], f"{number:02}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + png)
' "$1"
}

# A workflow that reads a digit, in the words of its labels: reader NAME WORDS
reader() {
    mkdir -p "$work/models/$1/1"
    printf '%s\n' $2 >"$work/models/$1/words.txt"
    tee "$work/models/$1/config.pbtxt" <<'CONFIG'
platform: "workflow"
input { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "WORD" data_type: TYPE_STRING dims: [ 1, 1 ] }
workflow_scheduling {
  node { name: "pixels" op: "image.decode"
         parameters [ { key: "channels" value: "1" }, { key: "width" value: "8" }, { key: "height" value: "8" } ]
         input_map { key: "bytes" value: "IMAGE" } output_map { key: "image" value: "PIXELS" } }
  node { name: "ink" op: "image.normalize"
         parameters [ { key: "scale" value: "-0.0627451" }, { key: "mean" value: "-16" }, { key: "layout" value: "CHW" } ]
         input_map { key: "image" value: "PIXELS" } output_map { key: "image" value: "INK" } }
  node { name: "net" model { name: "digits" }
         input_map { key: "image" value: "INK" } output_map { key: "digit" value: "DIGIT" } }
  node { name: "word" op: "labels"
         parameters { key: "labels_file" value: "words.txt" }
         input_map { key: "indices" value: "DIGIT" } output_map { key: "labels" value: "WORD" } }
}
CONFIG
}

endpoints() {
    cat >"$work/endpoints.pbtxt" <<'CONFIG'
endpoint {
  name: "word"
  variant { tag: "stable" model: "reader" weight: 70 }
  variant { tag: "next" model: "reader-next" weight: 30
            ramp { to: 100 step: 10 every_s: 2 guard: "err < 0.02" min_samples: 10 on_breach: ROLLBACK } }
}
CONFIG
}

# Asks the endpoint about each image: sets `failed`, and writes the words to ask.word
ask_words() {
    local image
    failed=0
    : >"$work/ask.word"
    for image in "$work"/png/*.png; do
        if "$millrace" infer -m word --url "$http" -i IMAGE="@$image" --output plain >"$work/word" 2>"$work/word.log"; then
            output WORD <"$work/word" >>"$work/ask.word"
        else
            grep -q "node 'word'" "$work/word.log" || die "word: $(cat "$work/word.log")"
            failed=$((failed + 1))
        fi
    done
}

workflow() {
    title "A workflow: from the bytes of an image to a word"
    local words="zero one two three four five six seven eight nine" name i all=0
    mkdir "$work/png"
    png_files "$work/png"
    reader reader "$words" | sed 's/^/    /'
    reader reader-next "${words% eight nine}" >/dev/null # whoever wrote its words.txt forgot two
    for name in reader reader-next; do
        "$millrace" model load "$name" --url "$http" >"$work/load" 2>&1 || die "$name: $(cat "$work/load")"
    done
    shown "millrace workflow draw models/reader"
    "$millrace" workflow draw "$work/models/reader" | sed 's/^/  /'

    title "An endpoint gives 30 % of the requests to a new version of it, whose words end at seven"
    sed 's/^/    /' "$work/endpoints.pbtxt"
    echo
    shown "millrace infer -m word -i IMAGE=@00.png"
    for ((i = 1; i <= 50; i++)); do
        ask_words
        all=$((all + failed))
        "$millrace" endpoint show word --url "$http" --json >"$work/endpoint" || die "word: no report"
        grep -q '"state":"rolled_back"' "$work/endpoint" && break
    done
    grep -q '"state":"rolled_back"' "$work/endpoint" || die "word: the canary is still there: $(cat "$work/endpoint")"
    say "$all of $((i * $(ls "$work/png" | wc -l))) requests failed until the server took the new version back"
    "$millrace" endpoint show word --url "$http" --output table | sed 's/^/  /'
    ask_words
    ((failed == 0 && all > 0)) || die "word: $failed requests failed after the rollback, $all before"
    awk -v words="$words" 'BEGIN {split(words, word, " ")} {print word[$1 + 1]}' <(truth digits digit) >"$work/word.truth"
    check word "$work/word.truth" "$work/ask.word" 90
}
