/* Texts of ONNX Runtime without C++. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "onnxruntime/session/message.h"

static void test_messages(void **state)
{
    static const struct {
        const char *text;
        const char *clean;
    } rows[] = {
        {"", ""},
        {"plain", "plain"},
        {"two\nlines\n", "two lines"},
        {"Load model from /a b/m.onnx failed:Protobuf parsing failed.", "Protobuf parsing failed."},
        {"Load model from /m.onnx failed:/src/core/graph/model.cc:202 "
         "ns::Model::Model(ns::Proto&&, const "
         "ns::Map<int, int>&) Unsupported model IR version: 14, max supported IR version: 13\n",
         "Unsupported model IR version: 14, max supported IR version: 13"},
        {"Status Message: /src/a.h:540 void ns::B::Init(ptrdiff_t, ptrdiff_t) axis == 1 was false. "
         "Cannot",
         "Status Message: axis == 1 was false. Cannot"},
        {"Exception: /src/x.cc:1 ns::F(int)::<lambda(const char*)> said no", "Exception: said no"},
        {"/src/x.cpp:12 auto ns::G::operator()(int) const no", "no"},
        {"/src/x.hpp:12 T ns::G(T) [with T = int; U = ns::H<4>] no", "no"},
        {"/src/x.cc:1 void f() one /src/y.cc:2 void g() two", "one two"},
        /* Not such places. */
        {"file.cc: is missing", "file.cc: is missing"},
        {"a.cc:12 without a call", "a.cc:12 without a call"},
        {"a.cc:12 f(unclosed", "a.cc:12 f(unclosed"},
        {"node:12 f(x) y", "node:12 f(x) y"},
        {"Load model from nowhere", "Load model from nowhere"},
        {":", ":"},
        {".cc:1 f() x", ".cc:1 f() x"},
    };
    char out[200];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        onnx_message_clean(rows[i].text, out, sizeof out);
        assert_string_equal(out, rows[i].clean);
        for (size_t room = 1; room < 40; room++) {
            char *small = test_malloc(room); /* checked for writes past its end */
            onnx_message_clean(rows[i].text, small, room);
            assert_true(strlen(small) < room);
            test_free(small);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
