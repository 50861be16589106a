mr_fuzz(json SOURCES tests/fuzz/fuzz_json.c DEPS codec base)
mr_fuzz(number SOURCES tests/fuzz/fuzz_number.c DEPS codec base)
mr_fuzz(pb SOURCES tests/fuzz/fuzz_pb.c DEPS codec base)
mr_fuzz(pbtext SOURCES tests/fuzz/fuzz_pbtext.c DEPS codec base)
