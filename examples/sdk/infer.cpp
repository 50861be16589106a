/* One inference that waits, ten at a time, and with gRPC three on a stream.
 *
 *   c++ -std=c++17 infer.cpp $(pkg-config --cflags --libs millrace) \
 *      -Wl,-rpath,$(pkg-config --variable=libdir millrace) -o infer
 *   ./infer simple http://localhost:8000 [URL...]
 */
#include <iostream>
#include <millrace/client.hpp>
#include <numeric>

/* Requests and answers on one connection; a model may give many to each. */
static int answers_of(const millrace::Client &client, const std::string &model,
                      const millrace::Request &request)
{
    const millrace::Stream stream = client.stream(model);
    int count = 0;

    for (const char *id : {"a", "b", "c"}) {
        stream.send(request, id);
    }
    stream.done();
    while (const std::optional<millrace::Answer> answer = stream.read()) {
        if (answer->status < 0) {
            throw millrace::Error(answer->status, answer->result.id() + ": " + answer->error);
        }
        count++;
    }
    return count;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::cerr << "usage: infer MODEL URL...\n";
        return 2;
    }
    try {
        const millrace::Client client(std::vector<std::string>(argv + 2, argv + argc));
        std::vector<int32_t> numbers(16);
        std::iota(numbers.begin(), numbers.end(), 0);
        const millrace::Request request = millrace::Request(argv[1])
                                              .input("INPUT0", {1, 16}, numbers)
                                              .input("INPUT1", {1, 16}, numbers);

        const millrace::Result result = client.infer(request);
        const millrace::Output sum = result.output("OUTPUT0");
        for (int i = 0; i < 16; i++) {
            std::cout << sum.as<int32_t>()[i] << (i < 15 ? ' ' : '\n');
        }
        std::vector<std::future<millrace::Result>> many;
        for (int i = 0; i < 10; i++) {
            many.push_back(client.infer_async(request));
        }
        uint32_t outputs = 0;
        for (std::future<millrace::Result> &one : many) {
            outputs += one.get().size();
        }
        std::cout << outputs << " outputs\n";
        if (std::string(argv[2]).rfind("grpc", 0) == 0) {
            std::cout << answers_of(client, argv[1], request) << " answers\n";
        }
    } catch (const millrace::Error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
