#include "actors/decoding/request.hpp"

#include <fmt/core.h>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/wire/bounded_archive.hpp"

namespace paceline {
namespace {

Error out_of_range(const std::string& field, const std::string& value, const std::string& range) {
    return Error{Errc::BadArgument, "request: " + field + " = " + value + ", must be " + range};
}

/// Writes fields in order. The counterpart of Reader: both go through one list of fields (fields()).
class Writer {
public:
    explicit Writer(std::ostream& stream) : archive_{stream} {}
    template <class T>
    void value(std::string_view /*field*/, const T& number) {
        archive_(number);
    }
    void value(std::string_view /*field*/, const AcceptanceRule& rule) {
        archive_(static_cast<std::uint8_t>(rule));
    }
    template <class T>
    void list(std::string_view /*field*/, const std::vector<T>& items, std::uint32_t items_max) {
        PACE_CHECK(items.size() <= items_max, "a request's list is longer than its bound");
        archive_(static_cast<std::uint32_t>(items.size()));
        for (const T& item : items) element(item);
    }

private:
    void element(TokenId token) { archive_(token); }
    void element(const std::pair<TokenId, float>& bias) { archive_(bias.first, bias.second); }
    cereal::PortableBinaryOutputArchive archive_;
};

class Reader {
public:
    Reader(std::istream& stream, const SpanBuffer& buffer) : archive_{stream}, buffer_{buffer} {}
    template <class T>
    void value(std::string_view field, T& number) {
        if (!error_.empty()) return;
        if (buffer_.left() < sizeof(T)) {
            error_ = "request payload ends before " + std::string{field};
            return;
        }
        archive_(number);
    }
    void value(std::string_view field, AcceptanceRule& rule) {
        std::uint8_t number = 0;
        value(field, number);
        rule = static_cast<AcceptanceRule>(number);  // validate() looks at it
    }
    template <class T>
    void list(std::string_view field, std::vector<T>& items, std::uint32_t items_max) {
        std::uint32_t count = 0;
        value(field, count);
        if (!error_.empty()) return;
        constexpr std::size_t kItemBytes = std::is_same_v<T, TokenId> ? 4 : 8;
        if (count > items_max || count > buffer_.left() / kItemBytes) {
            error_ = fmt::format(
                "request payload: {} claims {} items, but {} bytes are left and {} are allowed",
                field, count, buffer_.left(), items_max);
            return;
        }
        items.resize(count);
        for (T& item : items) element(item);
    }
    [[nodiscard]] const std::string& error() const { return error_; }

private:
    void element(TokenId& token) { archive_(token); }
    void element(std::pair<TokenId, float>& bias) { archive_(bias.first, bias.second); }
    cereal::PortableBinaryInputArchive archive_;
    const SpanBuffer& buffer_;
    std::string error_;
};

/// The fields in the order in which they travel, for both directions.
template <class Archive, class R>
void fields(Archive& archive, R& request) {
    archive.list("text", request.text, kTextTokensMax);
    archive.value("replayed", request.replayed);
    archive.value("reuse", request.reuse);
    auto& sampling = request.sampling;
    archive.value("temperature", sampling.temperature);
    archive.value("top_k", sampling.top_k);
    archive.value("top_p", sampling.top_p);
    archive.value("min_p", sampling.min_p);
    archive.value("repetition_penalty", sampling.repetition_penalty);
    archive.value("presence_penalty", sampling.presence_penalty);
    archive.value("frequency_penalty", sampling.frequency_penalty);
    archive.value("penalty_window", sampling.penalty_window);
    archive.list("logit_bias", sampling.logit_bias, kLogitBiasMax);
    archive.value("seed", sampling.seed);
    archive.list("end_tokens", request.end_tokens, kEndTokensMax);
    archive.value("max_tokens", request.max_tokens);
    archive.value("gamma", request.gamma);
    archive.value("acceptance", request.acceptance);
    archive.value("context", request.context);
}

Status validate_tokens(const std::string& field, std::span<const TokenId> tokens, int vocab_size) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
        return out_of_range(fmt::format("{}[{}]", field, i), std::to_string(tokens[i]),
                            fmt::format("a token of the vocabulary, 0 .. {}", vocab_size - 1));
    }
    return {};
}

}  // namespace

Status validate(const Request& request, int vocab_size, std::int32_t kv_slots) {
    if (request.text.empty()) return Error{Errc::BadArgument, "request: the prompt is empty"};
    if (request.text.size() > kTextTokensMax) {
        return out_of_range("text", fmt::format("{} tokens", request.text.size()),
                            fmt::format("at most {}", kTextTokensMax));
    }
    const auto length = static_cast<std::int32_t>(request.text.size());
    if (request.context < 1 || request.context > kv_slots) {
        return out_of_range("context", std::to_string(request.context),
                            fmt::format("1 .. {}, the KV slots of the stages", kv_slots));
    }
    if (length >= request.context) {
        return Error{
            Errc::BadArgument,
            fmt::format(
                "request: the prompt has {} tokens, which leaves no room in the context of {}",
                length, request.context)};
    }
    if (request.replayed < 0 || request.replayed >= length) {
        return out_of_range("replayed", std::to_string(request.replayed),
                            fmt::format("0 .. {}", length - 1));
    }
    if (request.reuse < 0 || request.reuse >= length) {
        return out_of_range("reuse", std::to_string(request.reuse),
                            fmt::format("0 .. {}", length - 1));
    }
    if (request.max_tokens != kUnlimitedTokens && request.max_tokens <= request.replayed) {
        return out_of_range(
            "max_tokens", std::to_string(request.max_tokens),
            fmt::format("more than the {} tokens that are there already, or -1", request.replayed));
    }
    if (request.gamma < 0 || request.gamma > static_cast<std::int32_t>(kGammaMax)) {
        return out_of_range("gamma", std::to_string(request.gamma),
                            fmt::format("0 .. {}", kGammaMax));
    }
    if (request.acceptance > AcceptanceRule::Unverified) {
        return out_of_range("acceptance", std::to_string(static_cast<int>(request.acceptance)),
                            "0 (coupled), 1 (rejection) or 2 (unverified)");
    }
    if (request.end_tokens.size() > kEndTokensMax) {
        return out_of_range("end_tokens", fmt::format("{} tokens", request.end_tokens.size()),
                            fmt::format("at most {}", kEndTokensMax));
    }
    if (Status tokens = validate_tokens("text", request.text, vocab_size); !tokens) return tokens;
    if (Status tokens = validate_tokens("end_tokens", request.end_tokens, vocab_size); !tokens) {
        return tokens;
    }
    return validate(request.sampling, vocab_size);
}

std::vector<std::byte> encode_request(const Request& request) {
    std::vector<std::byte> bytes;
    VectorBuffer buffer{bytes};
    std::ostream stream{&buffer};
    Writer writer{stream};
    fields(writer, request);
    return bytes;
}

Result<Request> decode_request(std::span<const std::byte> bytes) {
    // The archive opens with a byte that says the writer's endianness.
    if (bytes.empty()) return Error{Errc::Protocol, "request payload is empty"};
    if (bytes.front() > std::byte{1}) {
        return Error{Errc::Protocol, "request payload has no byte order mark of 0 or 1"};
    }
    SpanBuffer buffer{bytes};
    std::istream stream{&buffer};
    Request request;
    Reader reader{stream, buffer};
    fields(reader, request);
    if (!reader.error().empty()) return Error{Errc::Protocol, reader.error()};
    if (buffer.left() != 0) {
        return Error{Errc::Protocol,
                     fmt::format("request payload has {} bytes too many", buffer.left())};
    }
    return request;
}

}  // namespace paceline
