/* One inference that waits, and ten at a time.
 *
 *   c++ -std=c++17 infer.cpp $(pkg-config --cflags --libs millrace) -o infer
 *   ./infer simple http://localhost:8000 [URL...]
 */
#include <iostream>
#include <millrace/client.hpp>
#include <numeric>

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
    } catch (const millrace::Error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
