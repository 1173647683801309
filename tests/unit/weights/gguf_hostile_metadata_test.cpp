// Keys with wrong types, values out of range, duplicates, and numbers that are none.
#include <algorithm>
#include <limits>
#include <string>
#include <time.h>

#include "tests/unit/weights/expectations.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void expect_bad(const GgufBuilder& builder, std::initializer_list<std::string_view> words) {
    expect_refused(builder.bytes(), Errc::BadFile, words);
}

TEST_CASE("what does not begin with GGUF is refused, and the message shows its first bytes") {
    GgufBuilder builder = tiny_model();
    builder.magic = 0x04034B50;  // a zip archive
    expect_bad(builder, {"not a GGUF file", "PK\\x03\\x04"});
}

TEST_CASE("a key that appears twice is refused") {
    GgufBuilder builder = tiny_model();
    builder.keys.push_back(builder.keys[2]);
    expect_bad(builder, {builder.keys[2].name, "twice"});
}

TEST_CASE("a tensor that appears twice is refused") {
    GgufBuilder builder = tiny_model();
    builder.tensors.push_back(builder.tensors[3]);
    expect_bad(builder, {builder.tensors[3].name, "twice"});
}

/// CPU time of this thread, which other processes do not lengthen: of the fastest of three
/// readings.
double seconds_to_read_keys(int keys) {
    GgufBuilder builder = tiny_model();
    for (int i = 0; i < keys; ++i) {
        builder.keys.push_back({"junk." + std::to_string(i), 7, {std::byte{1}}});
    }
    const Bytes bytes = builder.bytes();
    const auto now = [] {
        timespec time{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    };
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
        const double begin = now();
        CHECK(read_bytes(bytes).ok());
        best = std::min(best, now() - begin);
    }
    return best;
}

TEST_CASE("the time to check keys for duplicates grows with their number, not with its square") {
    // Eight times as many: comparing all pairs would take sixty-four times as long.
    CHECK(seconds_to_read_keys(64'000) < 32 * seconds_to_read_keys(8'000));
}

TEST_CASE("value types that do not exist are refused") {
    GgufBuilder builder = tiny_model();
    for (const std::uint32_t type : {13U, 255U, 0xFFFFFFFFU}) {
        builder.set("some.key", type, {std::byte{0}});
        expect_bad(builder, {"some.key", std::to_string(type)});
    }
    Bytes raw;
    append<std::uint32_t>(raw, 77);
    append<std::uint64_t>(raw, 1);
    builder.set("some.key", 9, raw);
    expect_bad(builder, {"some.key", "77"});
}

TEST_CASE("an array of arrays is refused, so nothing recurses") {
    GgufBuilder builder = tiny_model();
    Bytes raw;
    append<std::uint32_t>(raw, 9);
    append<std::uint64_t>(raw, 1);
    builder.set("some.key", 9, raw);
    expect_bad(builder, {"some.key", "array of arrays"});
}

TEST_CASE("a bool that is neither 0 nor 1 is refused") {
    GgufBuilder builder = tiny_model();
    builder.set("tokenizer.ggml.add_bos_token", 7, {std::byte{2}});
    expect_bad(builder, {"tokenizer.ggml.add_bos_token", "2"});
}

TEST_CASE("a key or tensor without a name is refused") {
    GgufBuilder builder = tiny_model();
    builder.keys[1].name.clear();
    expect_bad(builder, {"empty name"});
    builder = tiny_model();
    builder.tensors[1].name.clear();
    expect_bad(builder, {"without a name"});
}

TEST_CASE("every number of the configuration is required to be there and of its kind") {
    for (const char* key :
         {"block_count", "embedding_length", "feed_forward_length", "context_length",
          "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
        const std::string name = std::string("llama.") + key;
        GgufBuilder builder = tiny_model();
        builder.remove_key(name);
        expect_bad(builder, {name, "missing"});
        builder.set_text(name, "2");
        expect_bad(builder, {name, "string"});
        builder.set_ints(name, {2, 2});  // one value per layer: no switch for that
        expect_bad(builder, {name, "array of 2 int32"});
    }
    GgufBuilder builder = tiny_model();
    builder.remove_key("general.architecture");
    expect_bad(builder, {"general.architecture", "missing"});
}

TEST_CASE("integers of the configuration are refused outside their range") {
    for (const char* key : {"block_count", "embedding_length", "feed_forward_length",
                            "context_length", "attention.head_count", "attention.head_count_kv",
                            "attention.key_length", "rope.dimension_count", "vocab_size"}) {
        const std::string name = std::string("llama.") + key;
        GgufBuilder builder = tiny_model();
        builder.set_u32(name, 0);
        expect_bad(builder, {name, " 0;"});
        builder.set_i32(name, -4);
        expect_bad(builder, {name, "-4"});
        builder.set_u32(name, 0xFFFFFFFF);
        expect_bad(builder, {name, "4294967295"});
        builder.set_u64(name, std::numeric_limits<std::uint64_t>::max());
        expect_bad(builder, {name});
    }
}

TEST_CASE("floats of the configuration are refused when they are not finite or out of range") {
    for (const char* key :
         {"attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor"}) {
        const std::string name = std::string("llama.") + key;
        for (const float value : {kNan, kInfinity, -kInfinity, -1.0F, 1e20F}) {
            GgufBuilder builder = tiny_model();
            builder.set_f32(name, value);
            CAPTURE(value);
            expect_bad(builder, {name});
        }
        GgufBuilder builder = tiny_model();
        builder.set_f64(name, std::numeric_limits<double>::quiet_NaN());
        expect_bad(builder, {name, "nan"});
    }
}

TEST_CASE("norms, biases and rope factors must be finite") {
    TinyModel tiny;
    tiny.qkv_bias = true;
    tiny.rope_factors = true;
    for (const char* name : {"output_norm.weight", "blk.1.ffn_norm.weight", "blk.0.attn_q.bias",
                             "rope_freqs.weight"}) {
        for (const float value : {kNan, kInfinity}) {
            GgufBuilder builder = tiny_model(tiny);
            std::memcpy(builder.tensor(name).data.data() + 12, &value, sizeof value);
            expect_bad(builder, {name, "at 3", "finite"});
        }
    }
    GgufBuilder builder = tiny_model(tiny);
    const float zero = 0;
    std::memcpy(builder.tensor("rope_freqs.weight").data.data(), &zero, sizeof zero);
    expect_bad(builder, {"rope_freqs.weight", "factor 0"});
}

TEST_CASE("heads must divide") {
    GgufBuilder builder = tiny_model();
    builder.set_u32("llama.attention.head_count_kv", 3);
    expect_bad(builder, {"head_count 4", "head_count_kv 3"});
    builder = tiny_model();
    builder.set_u32("llama.attention.head_count", 6);  // 64 / 6
    expect_bad(builder, {"embedding_length 64", "head_count 6"});
}

TEST_CASE("rotated dimensions must be even and inside the head") {
    GgufBuilder builder = tiny_model();
    for (const std::uint32_t dims : {15U, 18U}) {
        builder.set_u32("llama.rope.dimension_count", dims);
        expect_bad(builder, {"llama.rope.dimension_count", std::to_string(dims)});
    }
}

TEST_CASE("a vocabulary size that the embedding does not have is refused") {
    GgufBuilder builder = tiny_model();
    builder.set_u32("llama.vocab_size", 300);
    expect_bad(builder, {"token_embd.weight", "[288, 64]", "[300, 64]"});
}

TEST_CASE("control bytes of a file never reach the terminal") {
    GgufBuilder builder = tiny_model();
    builder.set_text("general.architecture", "\x1b[2Jllama\n");
    const Result<ModelParts> parts = read_bytes(builder.bytes());
    REQUIRE_FALSE(parts.ok());
    CHECK(parts.error().what.find('\x1b') == std::string::npos);
    CHECK(parts.error().what.find("\\x1b[2Jllama\\x0a") != std::string::npos);
}

}  // namespace
}  // namespace paceline
