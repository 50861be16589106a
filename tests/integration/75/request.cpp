/* Requests with all that they may have, for test_cpp.py.
 *
 *   request answers CONFIG: which variants and versions of the endpoint `e` answer, and with which ids
 *   request stream CONFIG: the ids of three answers on a stream
 *   request streams CONFIG: which variants of `e` answer on streams that ask for one, and why one with 7 headers is not opened
 *   request all URL: one request to the model `all`, and three to `busy`, which fail
 */
#include <iostream>
#include <millrace/client.hpp>

using millrace::Request;

static const std::vector<int32_t> NUMBERS = {1, 2, 3};

static Request request(const std::string &model)
{
    return Request(model).input("INPUT0", {3}, NUMBERS);
}

static void show(const millrace::Client &client, const Request &request)
{
    const millrace::Result r = client.infer(request);

    std::cout << "variant '" << r.variant() << "' version '" << r.version() << "' id '" << r.id()
              << "' attempts " << r.attempts() << '\n';
}

static void show_error(const millrace::Client &client, const Request &request)
{
    try {
        show(client, request);
    } catch (const millrace::Error &error) {
        std::cout << error.what() << '\n';
    }
}

static void answers(const millrace::Client &client)
{
    show(client, request("e").variant("a"));
    show(client, request("e").variant("b").id("seven"));
    show(client, request("e").variant("b").version("1"));
    show(client, request("m").version("2").id("eight"));
    show_error(client, request("m").version("3"));
    show_error(client, request("e").variant("c"));
}

static void stream(const millrace::Client &client)
{
    const millrace::Stream stream = client.stream("m");

    stream.send(request("m").id("own"));
    stream.send(request("m").id("own"), "other");
    stream.send(request("m").sequence(5, true, true).parameter("count", 1));
    stream.done();
    while (const std::optional<millrace::Answer> answer = stream.read()) {
        std::cout << "id '" << answer->result.id() << "' " << answer->error << '\n';
    }
}

static void streams(const millrace::Client &client)
{
    for (const char *tag : {"a", "b", "b"}) {
        const millrace::Stream stream =
            client.stream(Request("e").variant(tag).header("X-Team", "blue").timeout_ms(300000));
        stream.send(request("e"));
        stream.done();
        const std::optional<millrace::Answer> answer = stream.read();
        std::cout << (answer ? answer->result.variant() : "none") << '\n';
    }
    Request many("e");
    for (int i = 0; i < 7; i++) {
        many.header("X-" + std::to_string(i), "1");
    }
    try {
        client.stream(many);
    } catch (const millrace::Error &error) {
        std::cout << error.what() << '\n';
    }
}

static void all(const millrace::Client &client)
{
    const std::string text = "words";

    show(client, request("all")
                     .version("3")
                     .id("nine")
                     .parameter("flag", true)
                     .parameter("off", false)
                     .parameter("count", -5)
                     .parameter("large", uint64_t{1} << 62)
                     .parameter("ratio", 0.25)
                     .parameter("text", text)
                     .parameter("literal", "a \"word\"")
                     .header("X-Team", "blue")
                     .header("X-Run", "12")
                     .priority(4)
                     .sequence(77, true, false));
    show(client, request("all").sequence(77, false, true));
    try {
        request("all").parameter("count", UINT64_MAX);
    } catch (const millrace::Error &error) {
        std::cout << error.what() << '\n';
    }
    show_error(client, request("busy").version("1"));
    show_error(client, request("busy").version("2").once());
    show_error(client, request("busy").version("3").fail_fast());
}

int main(int argc, char **argv)
{
    mr_sdk_options o{};
    const char *where = argv[argc - 1];

    o.size = sizeof o;
    o.timeout_ms = o.attempt_timeout_ms = 300000;
    if (std::string(argv[1]) == "all") {
        o.urls = &where;
        o.url_count = 1;
        all(millrace::Client(o));
    } else {
        const std::string what = argv[1];
        o.config_file = where;
        (what == "answers" ? answers : what == "stream" ? stream : streams)(millrace::Client(o));
    }
    return 0;
}
