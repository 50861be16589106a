/* The client library from C++17: millrace/client.h with owners, exceptions and futures. Nothing is compiled into the library. */
#ifndef MILLRACE_CLIENT_HPP
#define MILLRACE_CLIENT_HPP

#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/client.h"

namespace millrace
{

/** What a function of the library returned: status is a number of enum mr_status. */
class Error : public std::runtime_error
{
  public:
    Error(int status, const std::string &message) : std::runtime_error(message), status(status)
    {
    }
    int status;
};

/** An output; points into its Result. */
struct Output : mr_sdk_tensor {
    template <typename T> const T *as() const
    {
        return static_cast<const T *>(data);
    }
    std::vector<int64_t> dims() const
    {
        return std::vector<int64_t>(shape, shape + rank);
    }
};

/** An answer. Outputs live as long as it. */
class Result
{
  public:
    explicit Result(mr_sdk_result *r) : result_(r)
    {
    }
    uint32_t size() const
    {
        return mr_sdk_result_output_count(result_.get());
    }
    /** Throws Error: there is no such output. */
    Output output(uint32_t index) const
    {
        Output out{};
        out.size = sizeof(mr_sdk_tensor);
        const int rc = mr_sdk_result_output(result_.get(), index, &out);
        if (rc < 0) {
            throw Error(rc, "there is no output " + std::to_string(index));
        }
        return out;
    }
    Output output(const std::string &name) const
    {
        const int32_t index = mr_sdk_result_find(result_.get(), name.c_str());
        if (index < 0) {
            throw Error(MR_E_NOT_FOUND, "there is no output '" + name + "'");
        }
        return output(static_cast<uint32_t>(index));
    }
    std::string model() const
    {
        return mr_sdk_result_model(result_.get());
    }
    /** Of a question. */
    std::string text() const
    {
        return mr_sdk_result_text(result_.get());
    }
    bool is_yes() const
    {
        return mr_sdk_result_is_yes(result_.get()) != 0;
    }
    std::string version() const
    {
        return mr_sdk_result_version(result_.get());
    }
    std::string id() const
    {
        return mr_sdk_result_id(result_.get());
    }
    std::string variant() const
    {
        return mr_sdk_result_variant(result_.get());
    }
    std::string host() const
    {
        return mr_sdk_result_host(result_.get());
    }
    uint32_t attempts() const
    {
        return mr_sdk_result_attempts(result_.get());
    }

  private:
    struct Free {
        void operator()(mr_sdk_result *r) const
        {
            mr_sdk_result_free(&r);
        }
    };
    std::unique_ptr<mr_sdk_result, Free> result_;
};

/** Memory that servers on the same host share: inputs and places of outputs in it are not copied by the client. */
class Memory
{
  public:
    /** bytes: 1 to 1 GiB, zeros. Throws Error. */
    explicit Memory(uint64_t bytes) : bytes_(bytes)
    {
        mr_sdk_memory *memory = nullptr;
        mr_err err{};
        const int rc = mr_sdk_memory_new(&memory, bytes, &err);
        if (rc < 0) {
            throw Error(rc, err.msg);
        }
        memory_.reset(memory);
    }
    /** count elements at so many bytes from its beginning. Throws Error: they are not all within it, or not aligned. */
    template <typename T> T *at(uint64_t offset, uint64_t count) const
    {
        if (offset % alignof(T) != 0 || offset > bytes_ || count > (bytes_ - offset) / sizeof(T)) {
            throw Error(MR_E_INVALID, std::to_string(count) + " elements at " +
                                          std::to_string(offset) + " of " +
                                          std::to_string(bytes_) + " bytes of memory");
        }
        return reinterpret_cast<T *>(static_cast<char *>(mr_sdk_memory_data(memory_.get())) +
                                     offset);
    }
    /** A call was given up whose server may still write to its places: such memory is not shared any more. */
    bool is_lost() const
    {
        return mr_sdk_memory_is_lost(memory_.get()) != 0;
    }
    mr_sdk_memory *get() const
    {
        return memory_.get();
    }

  private:
    struct Free {
        void operator()(mr_sdk_memory *m) const
        {
            mr_sdk_memory_free(&m);
        }
    };
    uint64_t bytes_;
    std::unique_ptr<mr_sdk_memory, Free> memory_;
};

/** A request, for any number of calls, one after the other or at a time. Data of inputs is not copied: it has to last until the calls
 *  are over. */
class Request
{
  public:
    explicit Request(std::string model) : model_(std::move(model))
    {
    }
    /** count: elements at data. */
    Request &input(std::string name, int32_t dtype, std::vector<int64_t> shape, const void *data,
                   uint64_t bytes)
    {
        inputs_.push_back({std::move(name), std::move(shape), dtype, data, bytes});
        return *this;
    }
    Request &input(std::string name, std::vector<int64_t> shape, const std::vector<float> &data)
    {
        return input(std::move(name), MR_DTYPE_FP32, std::move(shape), data.data(),
                     data.size() * sizeof(float));
    }
    Request &input(std::string name, std::vector<int64_t> shape, const std::vector<int32_t> &data)
    {
        return input(std::move(name), MR_DTYPE_INT32, std::move(shape), data.data(),
                     data.size() * sizeof(int32_t));
    }
    /** place: in the memory, where the output is to be if the server shares it and it fits; the result says where it is. */
    Request &output(std::string name, void *place = nullptr, uint64_t bytes = 0)
    {
        outputs_.push_back({std::move(name), place, bytes});
        return *this;
    }
    /** Inputs in it, and places of outputs, are shared with servers on the same host. It has to last as the data of inputs does, and as long as
     *  results whose data is in it. */
    Request &memory(const Memory &memory)
    {
        memory_ = memory.get();
        return *this;
    }
    Request &timeout_ms(int64_t ms)
    {
        timeout_ms_ = ms;
        return *this;
    }
    Request &key(std::string key)
    {
        key_ = std::move(key);
        return *this;
    }
    /** The tag of a variant of the endpoint: this one, whatever the weights are. "" is none, as of version and id. */
    Request &variant(std::string tag)
    {
        variant_ = std::move(tag);
        return *this;
    }
    Request &version(std::string version)
    {
        version_ = std::move(version);
        return *this;
    }
    Request &id(std::string id)
    {
        id_ = std::move(id);
        return *this;
    }
    /** value: a bool, an integer, a floating-point number or a text. Throws Error: an integer above those of int64_t. */
    template <typename T> Request &parameter(std::string name, const T &value)
    {
        Param p{std::move(name), "", {}};
        p.c.size = sizeof p.c;
        if constexpr (std::is_floating_point_v<T>) {
            p.c.kind = MR_SDK_PARAM_DOUBLE;
            p.c.d = value;
        } else if constexpr (std::is_integral_v<T>) {
            p.c.kind = std::is_same_v<T, bool> ? MR_SDK_PARAM_BOOL : MR_SDK_PARAM_INT;
            p.c.i = static_cast<int64_t>(value);
            if (std::is_unsigned_v<T> && p.c.i < 0) {
                throw Error(MR_E_INVALID, "parameter '" + p.name + "': " + std::to_string(value) +
                                              " is more than " + std::to_string(INT64_MAX));
            }
        } else {
            p.c.kind = MR_SDK_PARAM_STRING;
            p.text = value;
        }
        params_.push_back(std::move(p));
        return *this;
    }
    /** At most 6; over gRPC they are metadata. */
    Request &header(const std::string &name, const std::string &value)
    {
        headers_.push_back(name + ": " + value);
        return *this;
    }
    /** 0: the model's default. */
    Request &priority(uint64_t priority)
    {
        priority_ = priority;
        return *this;
    }
    /** A request of the sequence of that id, 0: of none. */
    Request &sequence(uint64_t id, bool is_start = false, bool is_end = false)
    {
        sequence_id_ = id;
        flag(MR_SDK_SEQUENCE_START, is_start);
        return flag(MR_SDK_SEQUENCE_END, is_end);
    }
    /** One attempt and no second copy (MR_SDK_ONCE). */
    Request &once(bool on = true)
    {
        return flag(MR_SDK_ONCE, on);
    }
    /** No wait for hosts that are busy (MR_SDK_FAIL_FAST). */
    Request &fail_fast(bool on = true)
    {
        return flag(MR_SDK_FAIL_FAST, on);
    }

    /** The rows of all inputs may be divided among hosts (MR_SDK_PACK_ON). */
    Request &pack_on(bool on = true)
    {
        pack_on_ = on;
        return *this;
    }

    /** Calls f with the C form, which lives until f returns. */
    template <typename F> auto with(F &&f) const
    {
        std::vector<mr_sdk_tensor> inputs(inputs_.size());
        std::vector<mr_sdk_tensor> places(outputs_.size());
        std::vector<const char *> outputs, headers;
        std::vector<mr_sdk_param> params;
        for (size_t i = 0; i < inputs_.size(); i++) {
            inputs[i] = {};
            inputs[i].size = sizeof inputs[i];
            inputs[i].name = inputs_[i].name.c_str();
            inputs[i].dtype = inputs_[i].dtype;
            inputs[i].shape = inputs_[i].shape.data();
            inputs[i].rank = static_cast<int32_t>(inputs_[i].shape.size());
            inputs[i].data = inputs_[i].data;
            inputs[i].bytes = inputs_[i].bytes;
            inputs[i].flags = pack_on_ ? MR_SDK_PACK_ON : 0;
        }
        for (size_t i = 0; i < outputs_.size(); i++) {
            outputs.push_back(outputs_[i].name.c_str());
            places[i].size = sizeof places[i];
            places[i].data = outputs_[i].place;
            places[i].bytes = outputs_[i].bytes;
        }
        for (const std::string &header : headers_) {
            headers.push_back(header.c_str());
        }
        for (const Param &p : params_) {
            params.push_back(p.c);
            params.back().name = p.name.c_str();
            params.back().s = p.text.c_str();
        }
        mr_sdk_request q{};
        q.size = sizeof q;
        q.flags = flags_;
        q.model = model_.c_str();
        q.version = text_or_null(version_);
        q.id = text_or_null(id_);
        q.inputs = inputs.data();
        q.input_count = static_cast<uint32_t>(inputs.size());
        q.outputs = outputs.data();
        q.output_count = static_cast<uint32_t>(outputs.size());
        q.params = params.data();
        q.param_count = static_cast<uint32_t>(params.size());
        q.headers = headers.data();
        q.header_count = static_cast<uint32_t>(headers.size());
        q.timeout_ms = timeout_ms_;
        q.key = text_or_null(key_);
        q.variant = text_or_null(variant_);
        q.sequence_id = sequence_id_;
        q.priority = priority_;
        q.memory = memory_;
        q.places = memory_ ? places.data() : nullptr;
        return f(q);
    }

  private:
    struct Input {
        std::string name;
        std::vector<int64_t> shape;
        int32_t dtype;
        const void *data;
        uint64_t bytes;
    };
    struct Asked {
        std::string name;
        void *place;
        uint64_t bytes;
    };
    struct Param {
        std::string name, text;
        mr_sdk_param c; /* but for its texts */
    };
    static const char *text_or_null(const std::string &text)
    {
        return text.empty() ? nullptr : text.c_str();
    }
    Request &flag(uint32_t bit, bool on)
    {
        flags_ = on ? flags_ | bit : flags_ & ~bit;
        return *this;
    }
    std::string model_, version_, id_, key_, variant_;
    std::vector<Input> inputs_;
    std::vector<Asked> outputs_;
    std::vector<Param> params_;
    std::vector<std::string> headers_;
    mr_sdk_memory *memory_ = nullptr;
    int64_t timeout_ms_ = 0;
    uint64_t sequence_id_ = 0, priority_ = 0;
    uint32_t flags_ = 0;
    bool pack_on_ = false;
};

/** An answer of a stream. */
struct Answer {
    Result result;
    bool is_final;     /* its request has no further one */
    int status;        /* MR_OK, or the request of result.id() has failed: */
    std::string error; /* why, otherwise "" */
};

/** Requests to one host on one connection, each with any number of answers. Made by Client::stream. A thread may send while another
 *  one reads. */
class Stream
{
  public:
    explicit Stream(mr_sdk_stream *s) : stream_(s)
    {
    }
    /** Copies the request, and waits for room. id, sequence_id and flags are the request's own if they are not given. Throws Error. */
    void send(const Request &request, const std::string &id = "", uint64_t sequence_id = 0,
              uint32_t flags = 0) const
    {
        mr_err err{};
        const int rc = request.with([&](mr_sdk_request &q) {
            q.id = id.empty() ? q.id : id.c_str();
            q.sequence_id = sequence_id ? sequence_id : q.sequence_id;
            q.flags |= flags;
            return mr_sdk_stream_send(stream_.get(), &q, -1, &err);
        });
        if (rc < 0) {
            throw Error(rc, err.msg);
        }
    }
    /** No more requests. */
    void done() const
    {
        mr_sdk_stream_done(stream_.get());
    }
    /** Waits for the next answer; none: the stream has ended as it should. Throws Error: it was cut off. */
    std::optional<Answer> read() const
    {
        mr_sdk_answer answer{};
        mr_err err{};
        answer.size = sizeof answer;
        const int rc = mr_sdk_stream_read(stream_.get(), -1, &answer, &err);
        if (rc == MR_E_CLOSED) {
            return std::nullopt;
        }
        if (rc < 0) {
            throw Error(rc, err.msg);
        }
        Result result(answer.result); /* message lives as long as it */
        std::string error = answer.message;
        return Answer{std::move(result), answer.is_final != 0, answer.status, std::move(error)};
    }
    /** The stream ends with MR_E_CANCELLED. */
    void cancel() const
    {
        mr_sdk_stream_cancel(stream_.get());
    }

  private:
    struct Free {
        void operator()(mr_sdk_stream *s) const
        {
            mr_sdk_stream_free(&s);
        }
    };
    std::unique_ptr<mr_sdk_stream, Free> stream_;
};

class Client
{
  public:
    explicit Client(const std::vector<std::string> &urls)
    {
        std::vector<const char *> list;
        for (const std::string &url : urls) {
            list.push_back(url.c_str());
        }
        mr_sdk_options o{};
        o.size = sizeof o;
        o.urls = list.data();
        o.url_count = static_cast<uint32_t>(list.size());
        create(o);
    }
    explicit Client(const mr_sdk_options &options)
    {
        create(options);
    }

    /** Waits. Throws Error. */
    Result infer(const Request &request) const
    {
        mr_sdk_result *result = nullptr;
        mr_err err{};
        const int rc = request.with([&](const mr_sdk_request &q) {
            return mr_sdk_infer(client_.get(), &q, &result, &err);
        });
        if (rc < 0) {
            throw Error(rc, err.msg);
        }
        return Result(result);
    }

    /** The future throws Error. */
    std::future<Result> infer_async(const Request &request) const
    {
        auto promise = std::make_unique<std::promise<Result>>();
        std::future<Result> future = promise->get_future();
        mr_err err{};
        const int rc = request.with([&](const mr_sdk_request &q) {
            return mr_sdk_infer_start(client_.get(), &q, on_done, promise.get(), nullptr, &err);
        });
        if (rc < 0) {
            throw Error(rc, err.msg);
        }
        promise.release(); /* on_done has it */
        return future;
    }

    /** Whether a host is ready, or has a model that is. Throws Error. */
    bool is_ready() const
    {
        return ask(MR_SDK_SERVER_READY, "", "").is_yes();
    }
    bool is_ready(const std::string &model, const std::string &version = "") const
    {
        return ask(MR_SDK_MODEL_READY, model, version).is_yes();
    }
    /** Metadata and configuration as JSON. Throws Error. */
    std::string server_metadata() const
    {
        return ask(MR_SDK_SERVER_METADATA, "", "").text();
    }
    std::string model_metadata(const std::string &model, const std::string &version = "") const
    {
        return ask(MR_SDK_MODEL_METADATA, model, version).text();
    }
    std::string model_config(const std::string &model, const std::string &version = "") const
    {
        return ask(MR_SDK_MODEL_CONFIG, model, version).text();
    }

    /** A stream to a host of the model or endpoint. timeout_ms: of all of it, 0: none. Throws Error. */
    Stream stream(const std::string &model, int64_t timeout_ms = 0) const
    {
        return stream(Request(model).timeout_ms(timeout_ms));
    }
    /** Of a request, what is the stream's: model, headers, key, variant and timeout_ms. It is not sent. */
    Stream stream(const Request &request) const
    {
        mr_sdk_stream *stream = nullptr;
        mr_err err{};
        const int rc = request.with([&](const mr_sdk_request &q) {
            mr_sdk_stream_options o{};
            o.size = sizeof o;
            o.model = q.model;
            o.headers = q.headers;
            o.header_count = q.header_count;
            o.key = q.key;
            o.variant = q.variant;
            o.timeout_ms = q.timeout_ms;
            return mr_sdk_stream_open(client_.get(), &o, &stream, &err);
        });
        if (rc < 0) {
            throw Error(rc, err.msg);
        }
        return Stream(stream);
    }

  private:
    Result ask(mr_sdk_question_kind kind, const std::string &model,
               const std::string &version) const
    {
        mr_sdk_question q{};
        mr_sdk_result *result = nullptr;
        mr_err err{};
        q.size = sizeof q;
        q.kind = kind;
        q.model = model.c_str();
        q.version = version.c_str();
        const int rc = mr_sdk_ask(client_.get(), &q, &result, &err);
        if (rc < 0) {
            throw Error(rc, err.msg);
        }
        return Result(result);
    }
    static void on_done(void *ctx, int status, const mr_err *err, mr_sdk_result *result)
    {
        const std::unique_ptr<std::promise<Result>> promise(
            static_cast<std::promise<Result> *>(ctx));
        if (status < 0) {
            promise->set_exception(std::make_exception_ptr(Error(status, err->msg)));
        } else {
            promise->set_value(Result(result));
        }
    }
    void create(const mr_sdk_options &o)
    {
        mr_sdk *client = nullptr;
        mr_err err{};
        const int rc = mr_sdk_create(&client, &o, &err);
        if (rc < 0) {
            throw Error(rc, err.msg);
        }
        client_.reset(client);
    }
    struct Free {
        void operator()(mr_sdk *c) const
        {
            mr_sdk_free(&c);
        }
    };
    std::unique_ptr<mr_sdk, Free> client_;
};

} // namespace millrace

#endif
