#include "actors/decoding/begin_payload.hpp"

#include <fmt/core.h>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "actors/decoding/request_checks.hpp"
#include "ipc/base/check.hpp"
#include "ipc/wire/bounded_archive.hpp"

namespace paceline {
namespace {

/// Writes fields in order. The counterpart of Reader: both go through one list of fields
/// (fields()).
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
    void value(std::string_view /*field*/, bool flag) { archive_(std::uint8_t{flag}); }
    template <class T>
    void list(std::string_view /*field*/, const std::vector<T>& items, std::uint32_t items_max) {
        PACE_CHECK(items.size() <= items_max, "a request's list is longer than its bound");
        archive_(static_cast<std::uint32_t>(items.size()));
        for (const T& item : items) element(item);
    }

    void text(std::string_view /*field*/, const std::string& text, std::uint32_t bytes_max) {
        PACE_CHECK(text.size() <= bytes_max, "a request's text is longer than its bound");
        archive_(static_cast<std::uint32_t>(text.size()));
        archive_.saveBinary<1>(text.data(), static_cast<std::streamsize>(text.size()));
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
    void value(std::string_view field, bool& flag) {
        std::uint8_t number = 0;
        value(field, number);
        flag = number != 0;
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
    void text(std::string_view field, std::string& text, std::uint32_t bytes_max) {
        std::uint32_t bytes = 0;
        value(field, bytes);
        if (!error_.empty()) return;
        if (bytes > bytes_max || bytes > buffer_.left()) {
            error_ = fmt::format(
                "request payload: {} claims {} bytes, but {} are left and {} are allowed", field,
                bytes, buffer_.left(), bytes_max);
            return;
        }
        text.resize(bytes);
        archive_.loadBinary<1>(text.data(), static_cast<std::streamsize>(bytes));
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
template <class Archive, class Payload>
void fields(Archive& archive, Payload& begin) {
    archive.list("text", begin.text, kTextTokensMax);
    archive.value("replayed", begin.replayed);
    archive.value("cache_generation", begin.cache_generation);
    archive.value("keys_lost_from", begin.keys_lost.from);
    archive.value("keys_lost_to", begin.keys_lost.to);
    archive.text("cache_salt", begin.cache_salt, kCacheSaltMax);
    auto& sampling = begin.sampling;
    archive.value("temperature", sampling.temperature);
    archive.value("top_k", sampling.top_k);
    archive.value("top_p", sampling.top_p);
    archive.value("min_p", sampling.min_p);
    archive.value("repetition_penalty", sampling.repetition_penalty);
    archive.value("presence_penalty", sampling.presence_penalty);
    archive.value("frequency_penalty", sampling.frequency_penalty);
    archive.value("penalty_window", sampling.penalty_window);
    archive.value("penalty_begin", sampling.penalty_begin);
    archive.list("logit_bias", sampling.logit_bias, kLogitBiasMax);
    archive.value("seed", sampling.seed);
    archive.list("end_tokens", begin.end_tokens, kEndTokensMax);
    archive.value("max_tokens", begin.max_tokens);
    archive.value("acceptance", begin.acceptance);
    archive.value("context", begin.context);
    auto& speculation = begin.speculation;
    archive.value("speculation.on", speculation.on);
    archive.value("speculation.gamma", speculation.gamma);
    archive.value("speculation.verify_reach_min", speculation.verify_reach_min);
    archive.value("speculation.draft_reach_min", speculation.draft_reach_min);
    archive.value("speculation.confidence_min", speculation.confidence_min);
    auto& scores = begin.scores;
    archive.value("scores.answer", scores.answer);
    archive.value("scores.prompt", scores.prompt);
    archive.value("scores.top", scores.top);
    archive.text("grammar_hash", begin.grammar_hash, kGrammarHashBytes);
    archive.text("grammar_bytes", begin.grammar_bytes, kCompiledGrammarMax);
    archive.value("grammars_forgotten", begin.grammars_forgotten);
}

}  // namespace

Status validate(const BeginPayload& begin, int vocab_size, std::int32_t kv_slots) {
    if (Status room = check_room(begin, kv_slots); !room) return room;
    const auto length = static_cast<std::int32_t>(begin.text.size());
    if (begin.replayed < 0 || begin.replayed >= length) {
        return request_out_of_range("replayed", std::to_string(begin.replayed),
                                    fmt::format("0 .. {}", length - 1));
    }
    if (begin.acceptance > AcceptanceRule::Unverified) {
        return request_out_of_range("acceptance",
                                    std::to_string(static_cast<int>(begin.acceptance)),
                                    "0 (coupled), 1 (rejection) or 2 (unverified)");
    }
    if (!begin.grammar_hash.empty() && begin.grammar_hash.size() != kGrammarHashBytes) {
        return request_out_of_range("grammar_hash",
                                    fmt::format("{} bytes", begin.grammar_hash.size()),
                                    fmt::format("0 or {}", kGrammarHashBytes));
    }
    if (begin.grammar_hash.empty() && !begin.grammar_bytes.empty())
        return Error{Errc::BadArgument, "request: the bytes of a grammar without its hash"};
    return check_answer(begin, begin.replayed, vocab_size);
}

std::vector<std::byte> encode_begin(const BeginPayload& begin) {
    std::vector<std::byte> bytes;
    VectorBuffer buffer{bytes};
    std::ostream stream{&buffer};
    Writer writer{stream};
    fields(writer, begin);
    return bytes;
}

Result<BeginPayload> decode_begin(std::span<const std::byte> bytes) {
    // The archive opens with a byte that says the writer's endianness.
    if (bytes.empty()) return Error{Errc::Protocol, "request payload is empty"};
    if (bytes.front() > std::byte{1}) {
        return Error{Errc::Protocol, "request payload has no byte order mark of 0 or 1"};
    }
    SpanBuffer buffer{bytes};
    std::istream stream{&buffer};
    BeginPayload begin;
    Reader reader{stream, buffer};
    fields(reader, begin);
    if (!reader.error().empty()) return Error{Errc::Protocol, reader.error()};
    if (buffer.left() != 0) {
        return Error{Errc::Protocol,
                     fmt::format("request payload has {} bytes too many", buffer.left())};
    }
    return begin;
}

}  // namespace paceline
