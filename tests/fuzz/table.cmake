mr_fuzz(jsonl SOURCES tests/fuzz/fuzz_jsonl.c DEPS table base)
mr_fuzz(csv SOURCES tests/fuzz/fuzz_csv.c DEPS table base)
mr_fuzz(arrow SOURCES tests/fuzz/fuzz_arrow.c DEPS table base)
