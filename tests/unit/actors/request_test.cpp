#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/begin_payload.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

BeginPayload full_request() {
    BeginPayload request;
    request.text = {1, 2, 3, 4, 5};
    request.replayed = 2;
    request.cache_generation = 3;
    request.keys_lost = {2, 3};
    request.cache_salt = "a tenant";
    request.sampling.temperature = 0.8F;
    request.sampling.top_k = 40;
    request.sampling.top_p = 0.95F;
    request.sampling.min_p = 0.05F;
    request.sampling.repetition_penalty = 1.1F;
    request.sampling.presence_penalty = 0.1F;
    request.sampling.frequency_penalty = 0.2F;
    request.sampling.penalty_window = 128;
    request.sampling.penalty_begin = 5;
    request.sampling.logit_bias = {{3, -1.0F}, {7, 2.0F}};
    request.sampling.seed = 0x123456789abcdefULL;
    request.end_tokens = {9, 10};
    request.max_tokens = 77;
    request.acceptance = AcceptanceRule::Rejection;
    request.context = 64;
    request.scores = {.answer = true, .prompt = true, .top = 20};
    request.grammar_hash = std::string(kGrammarHashBytes, 'a');
    request.grammar_bytes = "compiled";
    request.grammars_forgotten = true;
    request.speculation = {.on = false,
                           .gamma = 3,
                           .verify_reach_min = 0.1F,
                           .draft_reach_min = 0.2F,
                           .confidence_min = 0.3F};
    return request;
}

}  // namespace

TEST_CASE("a request comes out of its bytes as it went in") {
    const BeginPayload in = full_request();
    const BeginPayload out = decode_begin(encode_begin(in)).value();
    CHECK(out.text == in.text);
    CHECK(out.replayed == in.replayed);
    CHECK(out.cache_generation == in.cache_generation);
    CHECK(out.keys_lost == in.keys_lost);
    CHECK(out.cache_salt == in.cache_salt);
    CHECK(out.sampling.temperature == in.sampling.temperature);
    CHECK(out.sampling.top_k == in.sampling.top_k);
    CHECK(out.sampling.top_p == in.sampling.top_p);
    CHECK(out.sampling.min_p == in.sampling.min_p);
    CHECK(out.sampling.repetition_penalty == in.sampling.repetition_penalty);
    CHECK(out.sampling.presence_penalty == in.sampling.presence_penalty);
    CHECK(out.sampling.frequency_penalty == in.sampling.frequency_penalty);
    CHECK(out.sampling.penalty_window == in.sampling.penalty_window);
    CHECK(out.sampling.logit_bias == in.sampling.logit_bias);
    CHECK(out.sampling.seed == in.sampling.seed);
    CHECK(out.end_tokens == in.end_tokens);
    CHECK(out.max_tokens == in.max_tokens);
    CHECK(out.acceptance == in.acceptance);
    CHECK(out.context == in.context);
    CHECK(out.sampling.penalty_begin == in.sampling.penalty_begin);
    CHECK(out.speculation == in.speculation);
    CHECK(out.scores == in.scores);
    CHECK(out.grammar_hash == in.grammar_hash);
    CHECK(out.grammar_bytes == in.grammar_bytes);
    CHECK(out.grammars_forgotten);
}

TEST_CASE("every truncation of a request is refused, and so is a byte too many") {
    std::vector<std::byte> bytes = encode_begin(full_request());
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        const auto decoded = decode_begin(std::span{bytes}.first(length));
        REQUIRE_FALSE(decoded);
        CHECK(decoded.error().code == Errc::Protocol);
    }
    bytes.push_back(std::byte{0});
    CHECK_FALSE(decode_begin(bytes));
}

TEST_CASE("a count that claims more than there is allocates nothing and is refused by field") {
    std::vector<std::byte> bytes = encode_begin(full_request());
    const std::uint32_t huge = 0xfffffff0U;
    std::memcpy(bytes.data() + 1, &huge,
                sizeof(huge));  // after the byte order mark: the count of `text`
    const auto decoded = decode_begin(bytes);
    REQUIRE_FALSE(decoded);
    CHECK(decoded.error().what.find("text claims 4294967280 items") != std::string::npos);
}

TEST_CASE("random bytes are refused or decoded, never worse") {
    std::mt19937_64 random{1};
    const std::vector<std::byte> good = encode_begin(full_request());
    for (int i = 0; i < 20000; ++i) {
        std::vector<std::byte> bytes = good;
        for (int k = 0; k < 3; ++k)
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        const auto decoded = decode_begin(bytes);
        if (decoded) (void)validate(decoded.value(), 100, 4096);
    }
}

TEST_CASE("a field out of range is refused by name, value and range") {
    struct Case {
        std::function<void(BeginPayload&)> spoil;
        std::string says;
    };
    const std::vector<Case> cases{
        {[](BeginPayload& r) { r.text.clear(); }, "prompt is empty"},
        {[](BeginPayload& r) { r.text[2] = 100; }, "text[2] = 100"},
        {[](BeginPayload& r) { r.text[2] = -1; }, "text[2] = -1"},
        {[](BeginPayload& r) { r.context = 5; }, "no room in the context of 5"},
        {[](BeginPayload& r) { r.context = 4097; }, "context = 4097"},
        {[](BeginPayload& r) { r.replayed = 5; }, "replayed = 5"},
        {[](BeginPayload& r) { r.cache_salt.assign(257, 'x'); }, "cache_salt = 257 bytes"},
        {[](BeginPayload& r) { r.max_tokens = 2; }, "max_tokens = 2"},
        {[](BeginPayload& r) { r.acceptance = static_cast<AcceptanceRule>(3); }, "acceptance = 3"},
        {[](BeginPayload& r) { r.end_tokens = {100}; }, "end_tokens[0] = 100"},
        {[](BeginPayload& r) { r.speculation.gamma = 33; }, "speculation.gamma = 33"},
        {[](BeginPayload& r) { r.scores.top = 21; }, "scores.top = 21, must be 0 .. 20"},
        {[](BeginPayload& r) { r.speculation.gamma = -1; }, "speculation.gamma = -1"},
        {[](BeginPayload& r) { r.speculation.confidence_min = 1.5F; },
         "speculation.confidence_min = 1.5, must be 0 .. 1"},
        {[](BeginPayload& r) { r.sampling.top_p = std::numeric_limits<float>::quiet_NaN(); },
         "top_p"},
    };
    CHECK(validate(full_request(), 100, 4096));
    for (const Case& each : cases) {
        BeginPayload request = full_request();
        each.spoil(request);
        const Status status = validate(request, 100, 4096);
        CAPTURE(each.says);
        REQUIRE_FALSE(status);
        CHECK(status.error().code == Errc::BadArgument);
        CHECK(status.error().what.find(each.says) != std::string::npos);
    }
}
